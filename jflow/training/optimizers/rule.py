"""`Hyperparameters`: the numbers of an optimizer, some of which a step computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jflow.client.ops import Variable
from jflow.client.ops.arrays import as_scalar
from jflow.compiler.graph import Tensor

LearningRate = float | Tensor | Variable | Callable[[], Any]
"""A number, a scalar tensor or variable, or a function without arguments that returns one."""

_RATE = "learning rate"
"""No hyperparameter has this name, because arguments of functions have no spaces."""


class Hyperparameters:
    """The arguments of an optimizer's transformation, and the rate by which its result is scaled.

    Numbers are part of the program of an update. What is a tensor, a variable or a function is one
    of its inputs, as the rate always is.

    Args:
      values: the arguments, by name.
      rate: the rate, None if nothing is scaled.
    """

    def __init__(self, values: Mapping[str, LearningRate], rate: LearningRate | None) -> None:
        computed = {
            name: value
            for name, value in values.items()
            if isinstance(value, Tensor | Variable) or callable(value)
        }
        self._fixed = {name: value for name, value in values.items() if name not in computed}
        self._computed = computed if rate is None else computed | {_RATE: rate}

    def examples(self) -> dict[str, Any]:
        """Values of all arguments, 0 for those that a step computes."""
        return self._fixed | {name: 0.0 for name in self._computed if name != _RATE}

    def inputs(self) -> dict[str, Any]:
        """The inputs of an update, as numbers, tensors or arrays."""
        return {name: _value(value) for name, value in self._computed.items()}

    def of_inputs(self, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        """All arguments and the rate, given the values of `inputs` in an update."""
        given = dict(inputs)
        rate = given.pop(_RATE, None)
        return self._fixed | given, rate


def _value(value: LearningRate) -> Any:
    found = value() if callable(value) and not isinstance(value, Variable) else value
    return found.read_value() if isinstance(found, Variable) else as_scalar(found)
