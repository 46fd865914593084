"""`UpdateRule`: an Optax transformation with its hyperparameters and a learning rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import jax

from jflow.client.ops import Variable
from jflow.client.ops.arrays import as_scalar
from jflow.compiler.graph import Tensor
from jflow.training.optimizers.locality import owner_of

LearningRate = float | Tensor | Variable | Callable[[], Any]
"""A number, a scalar tensor or variable, or a function without arguments that returns one."""

_RATE = "learning rate"
"""No hyperparameter has this name, because arguments of functions have no spaces."""


class GradientTransformation(Protocol):
    """The interface of an Optax optimizer."""

    @property
    def init(self) -> Any:
        """Function from parameters to the initial state."""

    @property
    def update(self) -> Any:
        """Function from gradients, state and parameters to updates and the next state."""


class Rule(Protocol):
    """How new values of variables and of optimizer state are computed."""

    def next(self, grads: Any, state: Any, params: Any, inputs: Mapping[str, Any]) -> Any:
        """Returns the new parameters and state, in the structures of the old ones; pure."""

    def are_row_wise(self, variables: Sequence[Variable]) -> list[bool]:
        """Returns of which variables some rows can be updated by themselves."""


class UpdateRule:
    """Computes new parameters and optimizer state; pure, without variables.

    Hyperparameters that are numbers are part of the program of an update. What is a tensor, a
    variable or a function is one of its inputs, as the learning rate always is.

    Args:
      transformation, hyperparameters, rate: as for `Optimizer`.

    Attributes:
      init: function from parameters to the initial state.

    Raises:
      TypeError: if it is not such a transformation.
    """

    def __init__(
        self,
        transformation: GradientTransformation | Callable[..., GradientTransformation],
        hyperparameters: Mapping[str, LearningRate] | None,
        rate: LearningRate | None,
    ) -> None:
        computed = {
            name: value
            for name, value in (hyperparameters or {}).items()
            if isinstance(value, Tensor | Variable) or callable(value)
        }
        self._fixed = {k: v for k, v in (hyperparameters or {}).items() if k not in computed}
        self._computed = computed if rate is None else computed | {_RATE: rate}
        self._transformation_of: Callable[..., Any] = (
            (lambda: transformation) if hyperparameters is None else transformation  # type: ignore[assignment]
        )
        example = self._transformation_of(**self._fixed, **dict.fromkeys(computed, 0.0))
        if not (hasattr(example, "init") and hasattr(example, "update")):
            raise TypeError(
                "expected an optax.GradientTransformation, such as optax.adam(1e-3), got "
                f"{example!r:.80}"
            )
        self.init: Callable[[Any], Any] = example.init

    def inputs(self) -> dict[str, Any]:
        """Returns the inputs of an update, as numbers, tensors or arrays."""
        return {name: _value(value) for name, value in self._computed.items()}

    def next(self, grads: Any, state: Any, params: Any, inputs: Mapping[str, Any]) -> Any:
        """Returns the new parameters and state, of values of `inputs` among others."""
        computed = {name: value for name, value in inputs.items() if name != _RATE}
        transformation = self._transformation_of(**self._fixed, **computed)
        updates, new = transformation.update(grads, state, params)
        if _RATE in inputs:
            updates = jax.tree.map(lambda u: -inputs[_RATE] * u, updates)
        return jax.tree.map(_plus, params, updates), jax.tree.map(_with_dtype_of, new, state)

    def are_row_wise(self, variables: Sequence[Variable]) -> list[bool]:
        """Returns whether the state is one value for each element of a variable, or shared.

        Then a row of the state belongs to the same row of the variable. A transformation that keeps
        something else for a variable, such as sums over rows, updates it as a whole.
        """
        shapes: list[tuple[Any, ...]] = [variable.shape for variable in variables]
        whole, _ = self.state_of(variables)
        row_wise = []
        for i, variable in enumerate(variables):
            if not variable.shape:
                row_wise.append(False)
                continue
            more = list(shapes)
            more[i] = (variable.shape[0] + 1, *variable.shape[1:])
            changed, _ = self.state_of(variables, more)
            row_wise.append(
                len(whole) == len(changed)
                and all(
                    before.shape == after.shape or owner_of(path, after, more) == i
                    for (path, before), (_, after) in zip(whole, changed, strict=True)
                )
            )
        return row_wise

    def state_of(
        self, variables: Sequence[Variable], shapes: Sequence[Any] | None = None
    ) -> tuple[list[tuple[Any, Any]], jax.tree_util.PyTreeDef]:
        """The types of the leaves of the state for variables, with their paths, and its structure.

        Args:
          variables: the variables.
          shapes: what to take as their shapes; None for those that they have.
        """
        shapes = [variable.shape for variable in variables] if shapes is None else shapes
        avals = [jax.ShapeDtypeStruct(s, v.dtype) for s, v in zip(shapes, variables, strict=True)]
        return jax.tree_util.tree_flatten_with_path(jax.eval_shape(self.init, avals))


def _value(value: LearningRate) -> Any:
    scalar = value() if callable(value) and not isinstance(value, Variable) else value
    return scalar.read_value() if isinstance(scalar, Variable) else as_scalar(scalar)


def _plus(param: Any, update: Any) -> Any:
    return (param + update).astype(param.dtype)


def _with_dtype_of(new: Any, old: Any) -> Any:
    return new.astype(old.dtype)
