"""Moving averages of variables and tensors, in graph code; TensorFlow's names and values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax.numpy as jnp
import numpy as np

from jflow.base.values import as_dtype
from jflow.client.ops import Variable, global_variables, group, identity, trainable_variables
from jflow.compiler.graph import (
    Graph,
    GraphKeys,
    Operation,
    Tensor,
    colocate_with,
    control_dependencies,
    get_default_graph,
    name_scope,
)

_FLOATS = ("float16", "bfloat16", "float32", "float64")


class ExponentialMovingAverage:
    """Keeps averages of variables and tensors of a graph, in which old values fade.

    `apply` adds the operation that moves each average by `(1 - decay)` of the way to the present
    value. Run it after each training step::

        with jflow.control_dependencies([train_op]):
            train_op = averages.apply()

    The average of a variable begins with the variable's initial value, that of a tensor with zeros.
    It is a variable beside the other one, on its device.

    Args:
      decay: how much of the average stays, such as 0.999: a number or a scalar tensor.
      num_updates: a number of updates, such as the global step: the decay is then at most
        `(1 + num_updates) / (10 + num_updates)`, so that early averages move faster. A number,
        tensor or variable.
      zero_debias: whether averages of tensors are corrected for beginning with zeros (Kingma and
        Ba, "Adam", 2014).
      name: what the names of averages end with.
    """

    def __init__(
        self,
        decay: Any,
        num_updates: Any = None,
        zero_debias: bool = False,
        name: str = "ExponentialMovingAverage",
    ) -> None:
        self._decay = decay
        self._num_updates = num_updates
        self._zero_debias = zero_debias
        self._name = name
        self._averages: dict[Variable | Tensor, Variable] = {}

    def __repr__(self) -> str:
        return f"<jflow.train.ExponentialMovingAverage {self._name!r} of {len(self._averages)}>"

    @property
    def name(self) -> str:
        """What the names of averages end with."""
        return self._name

    def apply(self, var_list: Sequence[Variable | Tensor] | None = None) -> Operation:
        """Makes averages of variables and tensors, and returns the operation that moves them.

        It reads the variables when the operations of `jflow.control_dependencies` have run. It may
        be called again, also for what has an average.

        Args:
          var_list: the variables and tensors; None for the trainable variables.

        Raises:
          TypeError: if one of them is neither, is eager, or is not of floats.
          ValueError: if the shape of a tensor is not known.
        """
        members = trainable_variables() if var_list is None else [*var_list]
        for one in members:
            _check(one)
            if one not in self._averages:
                self._averages[one] = self._created(one)
                if isinstance(one, Variable):
                    collection = one.graph.get_collection_ref(GraphKeys.MOVING_AVERAGE_VARIABLES)
                    collection += [one] * (one not in collection)
        with name_scope(self._name) as scope:
            updates = [self._update(one) for one in members]
        return group(*updates, name=scope)

    def average(self, var: Variable | Tensor) -> Variable | None:
        """Returns the variable that keeps an average; None if `apply` was not called for it."""
        return self._averages.get(var)

    def average_name(self, var: Variable | Tensor) -> str:
        """Returns the name of the average that a variable or tensor has, or would have."""
        known = self._averages.get(var)
        return f"{var.op.name}/{self._name}" if known is None else str(known.op.name)

    def variables_to_restore(
        self, moving_avg_variables: Iterable[Variable] | None = None
    ) -> dict[str, Variable]:
        """Returns the variables of the graph by the names under which a `Saver` restores them.

        Those with averages are restored from their averages, for an evaluation.

        Args:
          moving_avg_variables: those with averages; None for the trainable ones and those of the
            collection MOVING_AVERAGE_VARIABLES.
        """
        graph = get_default_graph()
        if moving_avg_variables is None:
            listed = graph.get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES)
            moving_avg_variables = [*trainable_variables(), *listed]
        averaged = dict.fromkeys(moving_avg_variables)
        restored = {self.average_name(variable): variable for variable in averaged}
        for variable in global_variables():
            if variable not in averaged:
                restored.setdefault(str(variable.op.name), variable)
        return restored

    def _created(self, one: Variable | Tensor) -> Variable:
        """Makes the variable of an average."""
        with _beside(one):
            if isinstance(one, Variable):
                initial = one.initialized_value()
                average = Variable(initial, trainable=False, name=self._name, sharding=one.sharding)
                if (info := one.save_slice_info) is not None:
                    full_name = f"{info.full_name}/{self._name}"
                    average.save_slice_info = dataclasses.replace(info, full_name=full_name)
                return average
            zeros = np.zeros(_shape_of(one), one.dtype)
            return Variable(zeros, trainable=False, name=self._name)

    def _update(self, one: Variable | Tensor) -> Tensor:
        """Returns an average after it has moved."""
        average = self._averages[one]
        corrects = self._zero_debias and not isinstance(one, Variable)
        return assign_moving_average(average, one, self._present_decay(one.graph), corrects)

    def _present_decay(self, graph: Graph) -> Any:
        if self._num_updates is None:
            return self._decay
        operands = graph.as_tensor(self._decay), graph.as_tensor(self._num_updates)
        return graph.apply(_bounded, operands, name="decay")


def assign_moving_average(
    variable: Variable,
    value: Any,
    decay: Any,
    zero_debias: bool = True,
    name: str = "AssignMovingAvg",
) -> Tensor:
    """Moves a variable by `(1 - decay)` of the way to a value; returns what it is then.

    Args:
      variable: the average, of floats, in graph code.
      value: a tensor or variable of the same shape.
      decay: how much of the average stays: a number or a scalar tensor.
      zero_debias: whether the average began with zeros, which it is corrected for; that takes two
        more variables, whose names end with `biased` and `local_step`.
      name: name of the operation.

    Raises:
      TypeError: if it is not such a variable.
    """
    _check(variable)
    if not isinstance(variable, Variable):
        raise TypeError(f"expected a variable that keeps an average, got {variable!r}")
    graph = variable.graph
    present = value.read_value() if isinstance(value, Variable) else graph.as_tensor(value)
    if zero_debias:
        return _assign_corrected(variable, present, decay, name)
    with name_scope(name), colocate_with(variable, ignore_existing=True):
        operands = variable.read_value(), present, graph.as_tensor(decay)
        moved: Tensor = variable.assign_sub(graph.apply(_step, operands, name="step"))
        return moved


def weighted_moving_average(
    value: Any,
    decay: Any,
    weight: Any,
    truediv: bool = True,
    collections: Sequence[str] | None = None,
    name: str = "WeightedMovingAvg",
) -> Tensor:
    """Returns the average of a value so far, weighted in each step, in which old values fade.

    It keeps averages of `value * weight` and of `weight`, which begin with zeros, and divides them.

    Args:
      value: a tensor of floats of a known shape.
      decay: as for `assign_moving_average`.
      weight: a tensor whose shape broadcasts to that of the value.
      truediv: has no effect: the value is of floats.
      collections: the collections of the two variables; None for the global variables.
      name: scope of the operations and variables.

    Raises:
      TypeError: if the value is not of floats.
      ValueError: if the shape of the value or weight is not known.
    """
    graph = value.graph if isinstance(value, Tensor) else get_default_graph()
    value = graph.as_tensor(value)
    _check(value)
    weight = graph.as_tensor(weight)
    with name_scope(name):
        pairs = []
        for what, term in (("value_x_weight", value * weight), ("weight", weight)):
            with control_dependencies(None):
                kept = Variable(
                    np.zeros(_shape_of(term), term.dtype),
                    trainable=False,
                    name=what,
                    collections=collections,
                )
            pairs.append(assign_moving_average(kept, term, decay, zero_debias=False))
        return identity(pairs[0] / pairs[1], name)


def _assign_corrected(variable: Variable, value: Tensor, decay: Any, name: str) -> Tensor:
    """Moves an average that began with zeros, and corrects it for that."""
    graph = variable.graph
    with _beside(variable):
        zeros = np.zeros(_shape_of(variable), variable.dtype)
        biased = Variable(zeros, trainable=False, name="biased")
        steps = Variable(np.zeros((), variable.dtype), trainable=False, name="local_step")
    with name_scope(name), colocate_with(variable, ignore_existing=True):
        kept = graph.as_tensor(decay)
        step = graph.apply(_step, (biased.read_value(), value, kept), name="step")
        moved, n_steps = biased.assign_sub(step), steps.assign_add(1)
        corrected = graph.apply(_corrected, (moved, n_steps, kept), name="corrected")
        moved_to: Tensor = variable.assign(corrected)
        return moved_to


@contextmanager
def _beside(one: Variable | Tensor) -> Iterator[None]:
    """A block whose variables are beside another one, below its name.

    They are initialized at any time, whatever comes before the operation that moves them.
    """
    with (
        name_scope(f"{one.op.name}/"),
        control_dependencies(None),
        colocate_with(one, ignore_existing=True),
    ):
        yield


def _step(average: Any, value: Any, decay: Any) -> Any:
    return (average - value) * (1 - jnp.asarray(decay, average.dtype))


def _corrected(biased: Any, n_steps: Any, decay: Any) -> Any:
    return biased / (1 - jnp.power(jnp.asarray(decay, biased.dtype), n_steps))


def _bounded(decay: Any, n_updates: Any) -> Any:
    n = jnp.asarray(n_updates, decay.dtype)
    return jnp.minimum(decay, (1 + n) / (10 + n))


def _check(one: Any) -> None:
    """Raises TypeError unless it is a variable of a graph, or a tensor, of floats."""
    if not isinstance(one, Variable | Tensor) or (isinstance(one, Variable) and one.is_eager):
        raise TypeError(
            f"expected variables of a graph and tensors, got {one!r}; the average of an eager "
            "variable is another one: average.assign(0.99 * average.value() + 0.01 * v.value())"
        )
    dtype = as_dtype(one.dtype)
    if getattr(dtype, "name", "") not in _FLOATS:
        raise TypeError(f"expected variables and tensors of floats, got {one!r}")


def _shape_of(one: Variable | Tensor) -> tuple[int, ...]:
    shape = tuple(one.shape)
    if not all(isinstance(size, int) for size in shape):
        raise ValueError(f"the average of {one!r} needs a known shape; use set_shape")
    return shape
