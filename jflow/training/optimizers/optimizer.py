"""`Optimizer`: any Optax optimizer on the variables of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from jflow.base.values import is_compatible
from jflow.client.ops import IndexedSlices, Variable, ensure_shape, trainable_variables
from jflow.client.ops.variable import VariableLike
from jflow.compiler.graph import (
    GraphKeys,
    Tensor,
    colocate_with,
    control_dependencies,
    get_default_graph,
    gradients,
)
from jflow.compiler.graph.row_gathers import row_gathers
from jflow.training.optimizers.eager_update import EagerUpdates
from jflow.training.optimizers.graph_update import GraphUpdates
from jflow.training.optimizers.loss_gradients import loss_gradients
from jflow.training.optimizers.rows import slices_of
from jflow.training.optimizers.rule import GradientTransformation, LearningRate, UpdateRule
from jflow.training.optimizers.slots import SlotNames, SlotTable

Gradient = Tensor | IndexedSlices
GradsAndVars = Iterable[tuple[Any, Any]]
"""Gradients, or None, and their variables: tensors and variables of a graph, or arrays and eager
variables, sharded or not."""


class Optimizer:
    """Updates variables, of a graph or eager, by gradients, as an Optax optimizer does.

    The state of the optimizer is in variables, each on the device of the one that it belongs to.
    What concerns one variable is computed there, in place; only scalars, and what an optimizer
    computes from all gradients, such as their norm, cross devices.

    The state belongs to optimizer and variable: two training steps of one optimizer share it.

    Args:
      transformation: an `optax.GradientTransformation`, such as `optax.adam(1e-3)`; with
        `hyperparameters` a function of them that returns one, such as `optax.scale_by_adam`.
      learning_rate: None if the transformation has its own. Otherwise a number, a scalar tensor or
        variable, or a function without arguments that returns one; what the transformation gives is
        scaled by minus the learning rate.
      name: scope of the operations.
      hyperparameters: the arguments of the function, by name, each as a learning rate. The first
        values of the state must not depend on those that are not numbers.

    Attributes:
      GATE_NONE, GATE_OP, GATE_GRAPH: values of `gate_gradients`.

    Raises:
      TypeError: if it is not such a transformation.
    """

    GATE_NONE, GATE_OP, GATE_GRAPH = 0, 1, 2

    _names: ClassVar[SlotNames] = SlotNames()

    def __init__(
        self,
        transformation: GradientTransformation | Callable[..., GradientTransformation],
        learning_rate: LearningRate | None = None,
        name: str = "Optimizer",
        hyperparameters: Mapping[str, LearningRate] | None = None,
    ) -> None:
        self._rule = UpdateRule(transformation, hyperparameters, learning_rate)
        self._name = name
        self._table = SlotTable()
        bases = self._names.bases(hyperparameters or {})
        self._graphs = GraphUpdates(self._rule, self._table, name, self._names, bases)
        self._eager: EagerUpdates | None = None

    def __repr__(self) -> str:
        return f"<jflow.train.Optimizer {self._name!r} with {len(self.variables())} variables>"

    # Gradients --------------------------------------------------------------------------------

    def minimize(
        self,
        loss: Tensor | Callable[[], Any],
        global_step: Variable | None = None,
        var_list: Sequence[Any] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Tensor | None = None,
    ) -> Any:
        """Returns the operation of a training step: `compute_gradients`, then `apply_gradients`.

        Args:
          loss, var_list, gate_gradients, aggregation_method, colocate_gradients_with_ops,
            grad_loss: as for `compute_gradients`.
          global_step, name: as for `apply_gradients`.

        Returns:
          As `apply_gradients`.

        Raises:
          ValueError: if the loss depends on none of the variables.
        """
        pairs = self.compute_gradients(
            loss,
            var_list,
            gate_gradients,
            aggregation_method,
            colocate_gradients_with_ops,
            grad_loss,
        )
        if all(grad is None for grad, _ in pairs):
            names = ", ".join(str(variable.name) for _, variable in pairs) or "there are none"
            raise ValueError(
                f"no gradients: {loss!r} depends on none of the variables to train ({names}); "
                "pass var_list, or build the loss from the variables"
            )
        return self.apply_gradients(pairs, global_step, name)

    def compute_gradients(
        self,
        loss: Tensor | Callable[[], Any],
        var_list: Sequence[Any] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Tensor | None = None,
    ) -> list[tuple[Any, Any]]:
        """Returns the gradients of a loss with respect to variables, for `apply_gradients`.

        The gradient of a variable that the loss uses only by row (`jnp.take(v, indices, axis=0)`,
        `v[indices]`, `embedding_lookup`) is an `IndexedSlices`.

        Args:
          loss: the tensor to minimize, of floats. Of eager variables, a function without arguments
            that returns a real scalar; call this in a `jflow.function`, which is traced once.
          var_list: the variables, eager ones if the loss is a function; None for the trainable
            ones of the graph.
          gate_gradients: GATE_NONE, GATE_OP or GATE_GRAPH. `apply_gradients` always waits for all
            gradients, which is what the last one says.
          aggregation_method: one of `AggregationMethod`, which mean the same, or None.
          colocate_gradients_with_ops: each operation of a gradient requests the device of the
            operation that it is the derivative of, whatever this says.
          grad_loss: the derivative of the final value with respect to the loss; ones if None.

        Returns:
          (gradient, variable) pairs; the gradient is None if the loss does not depend on the
          variable.

        Raises:
          TypeError: if a function does not return a real scalar, or a variable is not eager.
          ValueError: if a function is given without variables or with `grad_loss`, or reads one of
            them inside a loop or branch; if `gate_gradients` or `aggregation_method` is none of
            these.
        """
        if gate_gradients not in {self.GATE_NONE, self.GATE_OP, self.GATE_GRAPH}:
            raise ValueError(
                "gate_gradients must be Optimizer.GATE_NONE, GATE_OP or GATE_GRAPH, got "
                f"{gate_gradients!r:.80}"
            )
        if callable(loss):
            return self._gradients_of_function(loss, var_list, grad_loss)
        variables = trainable_variables() if var_list is None else list(var_list)
        gathers = {v: by_row for v in variables if (by_row := row_gathers(v, [loss])) is not None}
        points: list[Tensor | Variable] = []
        for v in variables:
            points.extend([gather.rows for gather in gathers[v]] if v in gathers else [v])
        slopes = gradients(loss, points, grad_loss, aggregation_method=aggregation_method)
        slope_at = dict(zip(points, slopes, strict=True))
        return [
            (slices_of(v, gathers[v], [slope_at[g.rows] for g in gathers[v]]), v)
            if v in gathers
            else (slope_at[v], v)
            for v in variables
        ]

    def _gradients_of_function(
        self, loss: Callable[[], Any], var_list: Sequence[Any] | None, grad_loss: Any
    ) -> list[tuple[Any, Any]]:
        if not var_list or grad_loss is not None:
            raise ValueError("a loss that is a function takes var_list, and no grad_loss")
        if not all(isinstance(v, VariableLike) and v.is_eager for v in var_list):
            raise TypeError("expected eager variables; the loss of others is a tensor")
        return [*zip(loss_gradients(loss, var_list), var_list, strict=True)]

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> Any:
        """Returns an operation that updates variables by their gradients; updates eager ones.

        All variables are read after all gradients are computed. Of a variable whose gradient is an
        `IndexedSlices`, only the rows that occur are updated, with the same rows of its slots; rows
        that do not occur keep their value and slots as they are. If the transformation keeps
        anything else for a variable than values for its elements, or the variable has a constraint,
        it is updated as a whole.

        Args:
          grads_and_vars: (gradient, variable) pairs; variables whose gradient is None are not
            changed.
          global_step: an integer scalar variable that is incremented after the update.
          name: scope of the operations; the optimizer's name if None.

        Returns:
          The operation; of eager variables the count of updates, int32[].

        Raises:
          ValueError: if there is no gradient, a variable is listed twice, or a gradient has another
            shape than its variable.
          TypeError: if variables are not all of one graph or all eager.
        """
        pairs = [(grad, variable) for grad, variable in grads_and_vars if grad is not None]
        _check(pairs)
        if pairs[0][1].is_eager:
            return self._apply_at_once(pairs, global_step)
        grads = [_fitted(*pair) for pair in pairs]
        variables = [variable for _, variable in pairs]
        update = self._graphs.update(grads, variables, name)
        if global_step is not None:
            with control_dependencies([update]), colocate_with(global_step, ignore_existing=True):
                update = global_step.assign_add(1).op
        update.graph.add_to_collection(GraphKeys.TRAIN_OP, update)
        return update

    def build(self, var_list: Sequence[VariableLike]) -> None:
        """Makes the state for eager variables, which `apply_gradients` does otherwise.

        So that a program which was started again can restore the state before its first step.

        Args:
          var_list: the variables; what is there for some of them stays.

        Raises:
          TypeError: if they are not eager.
        """
        _check([(None, variable) for variable in var_list])
        if not all(variable.is_eager for variable in var_list):
            raise TypeError("expected eager variables; the state of others is made with the graph")
        self._eager_updates(var_list).build(var_list)

    def _eager_updates(self, variables: Sequence[VariableLike]) -> EagerUpdates:
        if self._eager is None:
            self._eager = EagerUpdates(self._rule, self._table, self._name, variables[0])
        return self._eager

    def _apply_at_once(self, pairs: Any, global_step: Variable | None) -> Any:
        variables = [variable for _, variable in pairs]
        count = self._eager_updates(variables).update(variables, [grad for grad, _ in pairs])
        if global_step is not None:
            global_step.assign_add(1)
        return count

    # State ------------------------------------------------------------------------------------

    @property
    def iterations(self) -> Variable:
        """How many updates have been made, an int32 scalar variable that is saved with the slots.

        In graph code only an optimizer that needs the number counts, such as Adam.

        Raises:
          ValueError: if `apply_gradients` has not been called, or the optimizer does not count.
        """
        if self._eager is not None:
            return self._eager.iterations
        count = self._table.counts.get(get_default_graph())
        if count is None:
            raise ValueError(
                f"{self!r} has no count of updates: call apply_gradients first; an optimizer that "
                "does not need the number, such as gradient descent, never has one, so pass "
                "global_step= to count steps"
            )
        return count

    def get_slot(self, var: Variable, name: str) -> Variable | None:
        """Returns a variable of the optimizer's state that belongs to another one, or None.

        Args:
          var: a variable that the optimizer updates.
          name: the name that TensorFlow's optimizer gives it, such as "m" or "v" of Adam; or that
            of its field in the state of the transformation, such as "mu" of `optax.adam`.
        """
        return self._table.slots.get(var, {}).get(self._names.fields.get(name, name))

    def get_slot_names(self) -> list[str]:
        """Returns the names of the slots, in the order of the names."""
        fields = {name for slots in self._table.slots.values() for name in slots}
        names = {field: name for name, field in self._names.fields.items()}
        return sorted(names.get(field, field) for field in fields)

    def variables(self) -> list[Variable]:
        """Returns all variables of the optimizer's state; in graph code, of the default graph."""
        if self._eager is not None:
            return [*self._table.variables(), self._eager.iterations]
        graph = get_default_graph()
        return [slot for slot in self._table.variables() if slot.graph is graph]

    def saved_state(self) -> Any:
        """Returns the state as `jflow.checkpoint` saves it: variables in dicts and lists.

        That of eager variables is known by their order, not their names.
        """
        return self.variables() if self._eager is None else self._eager.saved_state()


def as_optimizer(optimizer: Optimizer | GradientTransformation) -> Optimizer:
    """Returns an optimizer as it is, and one for an Optax transformation."""
    return optimizer if isinstance(optimizer, Optimizer) else Optimizer(optimizer)


def _fitted(grad: Any, variable: VariableLike) -> Any:
    """Returns a gradient with the shape of its variable, which the step checks if it is unknown."""
    if not isinstance(grad, Tensor) or grad.shape == variable.shape:
        return grad
    with grad.graph.as_default():
        return ensure_shape(grad, variable.shape)


def _check(pairs: Sequence[tuple[Any, Any]]) -> None:
    if not pairs:
        raise ValueError("expected the gradient of at least one variable, got none")
    seen: set[VariableLike] = set()
    for grad, variable in pairs:
        if not isinstance(variable, VariableLike) or variable.is_eager != pairs[0][1].is_eager:
            raise TypeError(
                f"expected variables to update, all of one graph or all eager, got {variable!r:.80}"
            )
        if variable in seen:
            raise ValueError(f"{variable.name!r} is listed twice; add up its gradients")
        seen.add(variable)
        shape = variable.shape if grad is None else getattr(grad, "shape", np.shape(grad))
        if not is_compatible(variable.shape, shape):
            raise ValueError(
                f"the gradient of {variable.name!r} has shape {shape}, expected {variable.shape}"
            )
