"""TensorFlow's optimizers with regularization: FTRL, dual averaging and proximal steps.

Each update sets a variable from sums over all gradients so far, which Optax does not have. Slots
are zero where no gradient was, or begin with `initial_accumulator_value`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jflow.client.ops.in_place import check_flag
from jflow.training.optimizers.optimizer import Optimizer
from jflow.training.optimizers.rule import LearningRate
from jflow.training.optimizers.slots import SlotNames

_Step = Callable[[Any, Any, tuple[Any, ...]], tuple[Any, tuple[Any, ...]]]
"""From a gradient, a value and its slots to the new value and the new slots."""


class _Sums(NamedTuple):
    """A slot for each variable.

    Attributes:
      accumulator: the sums of squared gradients.
    """

    accumulator: Any


class _LinearSums(NamedTuple):
    """Two slots for each variable.

    Attributes:
      accumulator: the sums of squared gradients.
      linear: the sums of gradients, of FTRL with a correction.
    """

    accumulator: Any
    linear: Any


class _NoSums(NamedTuple):
    """No slots."""


def _transformation(kind: type[Any], first: tuple[float, ...], step: _Step) -> Any:
    """Returns an Optax transformation whose slots begin with numbers.

    Args:
      kind: the state.
      first: what each of its slots begins with.
      step: the update of one variable.
    """

    def init(params: Any) -> Any:
        return kind(*(jax.tree.map(lambda x, v=v: jnp.full_like(x, v), params) for v in first))

    def update(grads: Any, state: Any, params: Any) -> Any:
        leaves, tree = jax.tree.flatten(grads)
        columns = zip(*(jax.tree.leaves(one) for one in state), strict=True)
        slots = [*columns] if len(state) else [()] * len(leaves)
        values = jax.tree.leaves(params)
        done = [step(g, x, s) for g, x, s in zip(leaves, values, slots, strict=True)]
        changes = [new - old for (new, _), old in zip(done, values, strict=True)]
        new_slots = zip(*(own for _, own in done), strict=True) if len(state) else ()
        state = kind(*(jax.tree.unflatten(tree, column) for column in new_slots))
        return jax.tree.unflatten(tree, changes), state

    return import_module("optax").GradientTransformation(init, update)


class FtrlOptimizer(Optimizer):
    """Follows the regularized leader (McMahan et al., 2013); slots "accum" and "linear".

    Args:
      learning_rate, name: as for `Optimizer`.
      learning_rate_power: the power of the sum of squares by which the rate is multiplied; at most
        0, a number.
      initial_accumulator_value: what the sum of squares begins with; a number, at least 0.
      l1_regularization_strength, l2_regularization_strength: factors of the sums of magnitudes and
        of squares that are added to the loss; at least 0.
      l2_shrinkage_regularization_strength: likewise, of squares, in the gradient only.

    Raises:
      ValueError: if a number is out of range.
    """

    _names = SlotNames({"accum": "accumulator", "linear": "linear"})

    def __init__(
        self,
        learning_rate: LearningRate,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: LearningRate = 0.0,
        l2_regularization_strength: LearningRate = 0.0,
        use_locking: bool = False,
        name: str = "Ftrl",
        l2_shrinkage_regularization_strength: LearningRate = 0.0,
    ) -> None:
        check_flag("use_locking", use_locking)
        _check(learning_rate_power <= 0, "learning_rate_power", learning_rate_power, "at most 0")
        first = initial_accumulator_value
        _check(first >= 0, "initial_accumulator_value", first, "at least 0")
        _check_strengths(l1_regularization_strength, l2_regularization_strength)

        def transformation(rate: Any, l1: Any, l2: Any, shrinkage: Any) -> Any:
            def step(g: Any, x: Any, slots: tuple[Any, ...]) -> Any:
                squares, linear = slots
                total = squares + g**2
                shrunk = g + 2 * shrinkage * x
                power = -learning_rate_power
                linear = linear + shrunk - (total**power - squares**power) / rate * x
                quadratic = total**power / rate + 2 * l2
                new = (jnp.sign(linear) * l1 - linear) / quadratic
                return jnp.where(jnp.abs(linear) > l1, new, 0).astype(x.dtype), (total, linear)

            return _transformation(_LinearSums, (first, 0.0), step)

        numbers = {
            "rate": learning_rate,
            "l1": l1_regularization_strength,
            "l2": l2_regularization_strength,
            "shrinkage": l2_shrinkage_regularization_strength,
        }
        super().__init__(transformation, None, name, numbers)


class AdagradDAOptimizer(Optimizer):
    """Adagrad with dual averaging (Duchi et al., 2011).

    Slots are "gradient_accumulator" and "gradient_squared_accumulator".

    Args:
      learning_rate, name: as for `Optimizer`.
      global_step: the number of steps so far, a variable or tensor that begins with 0.
      initial_gradient_squared_accumulator_value: what the sum of squares begins with; a positive
        number.
      l1_regularization_strength, l2_regularization_strength: as for `FtrlOptimizer`.

    Raises:
      ValueError: if a number is out of range.
    """

    _names = SlotNames(
        {"gradient_accumulator": "linear", "gradient_squared_accumulator": "accumulator"}
    )

    def __init__(
        self,
        learning_rate: LearningRate,
        global_step: Any,
        initial_gradient_squared_accumulator_value: float = 0.1,
        l1_regularization_strength: LearningRate = 0.0,
        l2_regularization_strength: LearningRate = 0.0,
        use_locking: bool = False,
        name: str = "AdagradDA",
    ) -> None:
        check_flag("use_locking", use_locking)
        first = initial_gradient_squared_accumulator_value
        _check(first > 0, "initial_gradient_squared_accumulator_value", first, "positive")

        def transformation(rate: Any, step_number: Any, l1: Any, l2: Any) -> Any:
            n = jnp.asarray(step_number, jnp.float32) + 1

            def step(g: Any, x: Any, slots: tuple[Any, ...]) -> Any:
                squares, linear = slots[0] + g**2, slots[1] + g
                left = jnp.sign(linear) * jnp.maximum(jnp.abs(linear) - l1 * n, 0)
                new = -rate * left / (l2 * n * rate + jnp.sqrt(squares))
                return new.astype(x.dtype), (squares, linear)

            return _transformation(_LinearSums, (first, 0.0), step)

        numbers = {
            "rate": learning_rate,
            "step_number": global_step,
            "l1": l1_regularization_strength,
            "l2": l2_regularization_strength,
        }
        super().__init__(transformation, None, name, numbers)


class ProximalGradientDescentOptimizer(Optimizer):
    """Gradient descent with proximal steps for the regularization (Duchi and Singer, 2009).

    Args:
      learning_rate, name: as for `Optimizer`.
      l1_regularization_strength, l2_regularization_strength: as for `FtrlOptimizer`.
    """

    def __init__(
        self,
        learning_rate: LearningRate,
        l1_regularization_strength: LearningRate = 0.0,
        l2_regularization_strength: LearningRate = 0.0,
        use_locking: bool = False,
        name: str = "ProximalGradientDescent",
    ) -> None:
        check_flag("use_locking", use_locking)
        _check_strengths(l1_regularization_strength, l2_regularization_strength)

        def transformation(rate: Any, l1: Any, l2: Any) -> Any:
            def step(g: Any, x: Any, _: tuple[Any, ...]) -> Any:
                return _proximal(x - rate * g, rate, l1, l2).astype(x.dtype), ()

            return _transformation(_NoSums, (), step)

        numbers = {
            "rate": learning_rate,
            "l1": l1_regularization_strength,
            "l2": l2_regularization_strength,
        }
        super().__init__(transformation, None, name, numbers)


class ProximalAdagradOptimizer(Optimizer):
    """Adagrad with proximal steps for the regularization; slot "accumulator".

    Args:
      learning_rate, name: as for `Optimizer`.
      initial_accumulator_value: what the sum of squares begins with; a positive number.
      l1_regularization_strength, l2_regularization_strength: as for `FtrlOptimizer`.

    Raises:
      ValueError: if a number is out of range.
    """

    _names = SlotNames({"accumulator": "accumulator"})

    def __init__(
        self,
        learning_rate: LearningRate,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: LearningRate = 0.0,
        l2_regularization_strength: LearningRate = 0.0,
        use_locking: bool = False,
        name: str = "ProximalAdagrad",
    ) -> None:
        check_flag("use_locking", use_locking)
        first = initial_accumulator_value
        _check(first > 0, "initial_accumulator_value", first, "positive")
        _check_strengths(l1_regularization_strength, l2_regularization_strength)

        def transformation(rate: Any, l1: Any, l2: Any) -> Any:
            def step(g: Any, x: Any, slots: tuple[Any, ...]) -> Any:
                squares = slots[0] + g**2
                own_rate = rate * jax.lax.rsqrt(squares)
                return _proximal(x - own_rate * g, own_rate, l1, l2).astype(x.dtype), (squares,)

            return _transformation(_Sums, (first,), step)

        numbers = {
            "rate": learning_rate,
            "l1": l1_regularization_strength,
            "l2": l2_regularization_strength,
        }
        super().__init__(transformation, None, name, numbers)


def _proximal(x: Any, rate: Any, l1: Any, l2: Any) -> Any:
    return jnp.sign(x) * jnp.maximum(jnp.abs(x) - rate * l1, 0) / (1 + rate * l2)


def _check_strengths(l1: Any, l2: Any) -> None:
    for name, value in (("l1_regularization_strength", l1), ("l2_regularization_strength", l2)):
        if isinstance(value, int | float):
            _check(value >= 0, name, value, "at least 0")


def _check(is_valid: bool, name: str, value: Any, wanted: str) -> None:
    if not is_valid:
        raise ValueError(f"expected {name} to be {wanted}, got {value}")
