"""TensorFlow's optimizers by name: Optax transformations with a learning rate.

All of them update atomically, so `use_locking` changes nothing. A learning rate may be a tensor, as
the schedules of `decay.py` give it.
"""

from __future__ import annotations

import importlib
from typing import Any

from jflow.training.optimizer import LearningRate, Optimizer


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
        super().__init__(_optax().identity(), learning_rate, name)


class MomentumOptimizer(Optimizer):
    """Gradient descent with momentum, slot "trace".

    Args:
      learning_rate, name: as for `Optimizer`.
      momentum: the share of the last update that is added to the next.
      use_nesterov: whether the gradient is corrected as in Sutskever et al. (2013).
    """

    def __init__(
        self,
        learning_rate: LearningRate,
        momentum: float,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(_optax().trace(momentum, nesterov=use_nesterov), learning_rate, name)


class AdagradOptimizer(Optimizer):
    """Divides by the root of the sum of squared gradients (Duchi et al., 2011).

    Args:
      learning_rate, name: as for `Optimizer`.
      initial_accumulator_value: what the sum of squares begins with, slot "sum_of_squares".
    """

    def __init__(
        self,
        learning_rate: LearningRate,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
    ) -> None:
        if initial_accumulator_value <= 0:
            raise ValueError(
                f"expected a positive initial_accumulator_value, got {initial_accumulator_value}"
            )
        super().__init__(_optax().scale_by_rss(initial_accumulator_value, 0.0), learning_rate, name)


class AdadeltaOptimizer(Optimizer):
    """Divides by running averages of gradients and updates (Zeiler, 2012); slots "e_g" and "e_x".

    Args:
      learning_rate, name: as for `Optimizer`.
      rho: decay of the averages.
      epsilon: added to them.
    """

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        rho: float = 0.95,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "Adadelta",
    ) -> None:
        super().__init__(_optax().scale_by_adadelta(rho, epsilon), learning_rate, name)


class RMSPropOptimizer(Optimizer):
    """Divides by a running root mean square of the gradients (Hinton, 2012), slot "nu".

    The momentum, slot "trace", is of what is divided, before the learning rate; TensorFlow's is
    after it, which differs only while the learning rate changes.

    Args:
      learning_rate, name: as for `Optimizer`.
      decay: of the mean square, which begins with 1.
      momentum: the share of the last update that is added to the next.
      epsilon: added to the mean square.
      centered: whether the mean of the gradients, slot "mu", is subtracted.
    """

    def __init__(
        self,
        learning_rate: LearningRate,
        decay: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None:
        optax = _optax()
        scale = optax.scale_by_stddev if centered else optax.scale_by_rms
        scaled = scale(decay=decay, eps=epsilon, initial_scale=1.0)
        steps = [scaled, optax.trace(momentum)] if momentum else [scaled]
        super().__init__(optax.chain(*steps), learning_rate, name)


class AdamOptimizer(Optimizer):
    """Adam (Kingma and Ba, 2015) with slots "mu" and "nu".

    `epsilon` is added to the corrected root, as in the paper's algorithm and in Optax.

    Args:
      learning_rate, name: as for `Optimizer`.
      beta1, beta2: decays of the averages of gradients and of their squares.
      epsilon: added to the root of the latter.
    """

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:
        super().__init__(_optax().scale_by_adam(beta1, beta2, epsilon), learning_rate, name)
