"""TensorFlow's optimizers by name: Optax transformations with a learning rate.

All of them update atomically, so `use_locking` changes nothing. A learning rate, and any of the
other numbers unless a class says otherwise, may be a tensor, as the schedules of `decay.py` give
it, a variable, or a function without arguments that returns one.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jflow.client.ops.in_place import check_flag
from jflow.training.optimizers.optimizer import Optimizer
from jflow.training.optimizers.rule import LearningRate
from jflow.training.optimizers.slots import SlotNames


def _optax() -> Any:
    """Optax, which takes longer to import than all else in this room."""
    return importlib.import_module("optax")


class GradientDescentOptimizer(Optimizer):
    """Subtracts the gradient times the learning rate. Arguments as for `Optimizer`."""

    def __init__(
        self,
        learning_rate: LearningRate,
        use_locking: bool = False,
        name: str = "GradientDescent",
    ) -> None:
        check_flag("use_locking", use_locking)
        super().__init__(_optax().identity(), learning_rate, name)


class MomentumOptimizer(Optimizer):
    """Gradient descent with momentum, slot "momentum".

    Args:
      learning_rate, name: as for `Optimizer`.
      momentum: the share of the last update that is added to the next.
      use_nesterov: whether the gradient is corrected as in Sutskever et al. (2013).
    """

    _names = SlotNames({"momentum": "trace"})

    def __init__(
        self,
        learning_rate: LearningRate,
        momentum: LearningRate,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
    ) -> None:
        check_flag("use_locking", use_locking)

        def transformation(decay: Any) -> Any:
            return _optax().trace(decay, nesterov=use_nesterov)

        super().__init__(transformation, learning_rate, name, {"decay": momentum})


class AdagradOptimizer(Optimizer):
    """Divides by the root of the sum of squared gradients (Duchi et al., 2011).

    Args:
      learning_rate, name: as for `Optimizer`.
      initial_accumulator_value: what the sum of squares begins with, slot "accumulator"; a
        number.
    """

    _names = SlotNames({"accumulator": "sum_of_squares"})

    def __init__(
        self,
        learning_rate: LearningRate,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
    ) -> None:
        check_flag("use_locking", use_locking)
        if initial_accumulator_value <= 0:
            raise ValueError(
                f"expected a positive initial_accumulator_value, got {initial_accumulator_value}"
            )
        super().__init__(_optax().scale_by_rss(initial_accumulator_value, 0.0), learning_rate, name)


class AdadeltaOptimizer(Optimizer):
    """Divides by running averages of gradients and updates (Zeiler, 2012).

    Slots are "accum" and "accum_update".

    Args:
      learning_rate, name: as for `Optimizer`.
      rho: decay of the averages.
      epsilon: added to them.
    """

    _names = SlotNames({"accum": "e_g", "accum_update": "e_x"})

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        rho: LearningRate = 0.95,
        epsilon: LearningRate = 1e-8,
        use_locking: bool = False,
        name: str = "Adadelta",
    ) -> None:
        check_flag("use_locking", use_locking)
        hyperparameters = {"rho": rho, "eps": epsilon}
        super().__init__(_optax().scale_by_adadelta, learning_rate, name, hyperparameters)


class RMSPropOptimizer(Optimizer):
    """Divides by a running root mean square of the gradients (Hinton, 2012), slot "rms".

    The momentum, slot "momentum", is of whole updates, learning rate included: what was added to it
    at one rate keeps that when the rate changes.

    Args:
      learning_rate, name: as for `Optimizer`.
      decay: of the mean square, which begins with 1.
      momentum: the share of the last update that is added to the next; the number 0 makes no slot.
      epsilon: added to the mean square.
      centered: whether the mean of the gradients, slot "mg", is subtracted.
    """

    _names = SlotNames({"rms": "nu", "mg": "mu", "momentum": "momentum"}, always=("momentum",))

    def __init__(
        self,
        learning_rate: LearningRate,
        decay: LearningRate = 0.9,
        momentum: LearningRate = 0.0,
        epsilon: LearningRate = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None:
        check_flag("use_locking", use_locking)
        optax = _optax()
        scale = optax.scale_by_stddev if centered else optax.scale_by_rms

        def scaled(decay: Any, eps: Any) -> Any:
            return optax.chain(scale(decay=decay, eps=eps, initial_scale=1.0))

        def with_momentum(decay: Any, eps: Any, rate: Any, momentum: Any) -> Any:
            by_rms = scale(decay=decay, eps=eps, initial_scale=1.0)
            return optax.chain(by_rms, _momentum_of_updates(rate, momentum))

        numbers = {"decay": decay, "eps": epsilon}
        if isinstance(momentum, float | int) and momentum == 0:
            super().__init__(scaled, learning_rate, name, numbers)
        else:
            numbers |= {"rate": learning_rate, "momentum": momentum}
            super().__init__(with_momentum, None, name, numbers)


class _MomentumState(NamedTuple):
    """The state of `_momentum_of_updates`: a sum for each variable."""

    momentum: Any


def _momentum_of_updates(rate: Any, decay: Any) -> Any:
    """A transformation whose update is minus `momentum = decay * momentum + rate * gradient`."""

    def init(params: Any) -> _MomentumState:
        return _MomentumState(jax.tree.map(jnp.zeros_like, params))

    def update(grads: Any, state: _MomentumState, params: Any = None) -> Any:
        sums = jax.tree.map(lambda g, m: decay * m + rate * g, grads, state.momentum)
        return jax.tree.map(jnp.negative, sums), _MomentumState(sums)

    return _optax().GradientTransformation(init, update)


class AdamOptimizer(Optimizer):
    """Adam (Kingma and Ba, 2015) with slots "m" and "v".

    `epsilon` is added to the corrected root, as in the paper's algorithm and in Optax.

    Args:
      learning_rate, name: as for `Optimizer`.
      beta1, beta2: decays of the averages of gradients and of their squares.
      epsilon: added to the root of the latter.
    """

    _names = SlotNames({"m": "mu", "v": "nu"}, {"beta1_power": "b1", "beta2_power": "b2"})

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta1: LearningRate = 0.9,
        beta2: LearningRate = 0.999,
        epsilon: LearningRate = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:
        check_flag("use_locking", use_locking)
        hyperparameters = {"b1": beta1, "b2": beta2, "eps": epsilon}
        super().__init__(_optax().scale_by_adam, learning_rate, name, hyperparameters)
