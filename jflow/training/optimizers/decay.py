"""Learning rates that change with the number of steps, as tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import jax.numpy as jnp

from jflow.client.ops.random import random_normal
from jflow.compiler.graph import Tensor, get_default_graph


def exponential_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str = "ExponentialDecay",
) -> Tensor:
    """`learning_rate * decay_rate ** (global_step / decay_steps)`.

    Args:
      learning_rate: the rate at step 0, a number or scalar tensor; so are the others.
      global_step: the number of steps, an integer tensor or variable.
      decay_steps: the steps after which the decay is as given.
      decay_rate: the decay.
      staircase: whether the fraction of steps is rounded down.
      name: name of the operation.

    Returns:
      The rate at this step, f32[].
    """
    return _scaled(
        lambda done, rate: rate**done,
        *(learning_rate, global_step, decay_steps, decay_rate, staircase, name),
    )


def natural_exp_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str = "ExponentialTimeDecay",
) -> Tensor:
    """`learning_rate * exp(-decay_rate * global_step / decay_steps)`; see `exponential_decay`."""
    return _scaled(
        lambda done, rate: jnp.exp(-rate * done),
        *(learning_rate, global_step, decay_steps, decay_rate, staircase, name),
    )


def inverse_time_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str = "InverseTimeDecay",
) -> Tensor:
    """`learning_rate / (1 + decay_rate * global_step / decay_steps)`; see `exponential_decay`."""
    return _scaled(
        lambda done, rate: 1 / (1 + rate * done),
        *(learning_rate, global_step, decay_steps, decay_rate, staircase, name),
    )


def polynomial_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    end_learning_rate: Any = 0.0001,
    power: Any = 1.0,
    cycle: bool = False,
    name: str = "PolynomialDecay",
) -> Tensor:
    """From a rate to another along a polynomial, in `decay_steps` steps.

    Args:
      learning_rate, global_step, decay_steps, name: as for `exponential_decay`.
      end_learning_rate: the last rate.
      power: of what is left of the steps.
      cycle: whether the decay begins anew with twice as many steps once they are over, and so on.

    Returns:
      The rate at this step, f32[].
    """

    def rate_at(start: Any, step: Any, steps: Any, end: Any, exponent: Any) -> Any:
        done = _float(step) / steps
        done = done / jnp.maximum(jnp.ceil(done), 1) if cycle else jnp.minimum(done, 1)
        return (start - end) * (1 - done) ** exponent + end

    args = (learning_rate, global_step, decay_steps, end_learning_rate, power)
    return _applied(rate_at, args, name)


def cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    alpha: Any = 0.0,
    name: str = "CosineDecay",
) -> Tensor:
    """From a rate to `alpha` times it along half a cosine (Loshchilov and Hutter, 2017).

    Args:
      learning_rate, global_step, decay_steps, name: as for `exponential_decay`.
      alpha: the share of the rate that is left in the end.

    Returns:
      The rate at this step, f32[].
    """

    def rate_at(start: Any, step: Any, steps: Any, least: Any) -> Any:
        done = jnp.minimum(_float(step) / steps, 1)
        return start * ((1 - least) * (1 + jnp.cos(jnp.pi * done)) / 2 + least)

    return _applied(rate_at, (learning_rate, global_step, decay_steps, alpha), name)


def cosine_decay_restarts(
    learning_rate: Any,
    global_step: Any,
    first_decay_steps: Any,
    t_mul: float = 2.0,
    m_mul: Any = 1.0,
    alpha: Any = 0.0,
    name: str = "SGDRDecay",
) -> Tensor:
    """Cosine decays one after another, each from a new start (Loshchilov and Hutter, 2017).

    Args:
      learning_rate, global_step, name: as for `exponential_decay`.
      first_decay_steps: the steps of the first decay.
      t_mul: how much longer each is than the one before; a number.
      m_mul: the rate at the start of each, as a share of that of the one before.
      alpha: the share of the rate that is left in the end of each.

    Returns:
      The rate at this step, f32[].
    """

    def rate_at(start: Any, step: Any, steps: Any, factor: Any, least: Any) -> Any:
        done = _float(step) / steps
        if t_mul == 1:
            n_before = jnp.floor(done)
            fraction = done - n_before
        else:
            n_before = jnp.floor(jnp.log(1 - done * (1 - t_mul)) / jnp.log(t_mul))
            before = (1 - t_mul**n_before) / (1 - t_mul)
            fraction = (done - before) / t_mul**n_before
        cosine = factor**n_before * (1 + jnp.cos(jnp.pi * fraction)) / 2
        return start * ((1 - least) * cosine + least)

    return _applied(rate_at, (learning_rate, global_step, first_decay_steps, m_mul, alpha), name)


def linear_cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    num_periods: Any = 0.5,
    alpha: Any = 0.0,
    beta: Any = 0.001,
    name: str = "LinearCosineDecay",
) -> Tensor:
    """A linear decay times a cosine (Bello et al., 2017).

    Args:
      learning_rate, global_step, decay_steps, name: as for `exponential_decay`.
      num_periods: the number of periods of the cosine in `decay_steps`.
      alpha: added to the linear decay.
      beta: added to the product, a share of the rate.

    Returns:
      The rate at this step, f32[].
    """

    def rate_at(start: Any, step: Any, steps: Any, periods: Any, shift: Any, least: Any) -> Any:
        done = jnp.minimum(_float(step) / steps, 1)
        cosine = (1 + jnp.cos(jnp.pi * 2 * periods * done)) / 2
        return start * ((shift + 1 - done) * cosine + least)

    args = (learning_rate, global_step, decay_steps, num_periods, alpha, beta)
    return _applied(rate_at, args, name)


def noisy_linear_cosine_decay(  # noqa: PLR0913, PLR0917 - the arguments are TensorFlow's
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    initial_variance: Any = 1.0,
    variance_decay: Any = 0.55,
    num_periods: Any = 0.5,
    alpha: Any = 0.0,
    beta: Any = 0.001,
    name: str = "NoisyLinearCosineDecay",
) -> Tensor:
    """A linear decay with noise times a cosine (Bello et al., 2017).

    Args:
      learning_rate, global_step, decay_steps, num_periods, alpha, beta, name: as for
        `linear_cosine_decay`.
      initial_variance: the variance of the normal noise, which is added to the linear decay and
        drawn anew in each run.
      variance_decay: the variance after n steps is divided by `(1 + n) ** variance_decay`.

    Returns:
      The rate at this step, f32[].

    Raises:
      UnimplementedError: as `random_normal`.
    """

    def shift_at(step: Any, steps: Any, variance: Any, decay: Any, shift: Any, noise: Any) -> Any:
        done = jnp.minimum(_float(step), steps)
        return shift + noise * jnp.sqrt(variance / (1 + done) ** decay)

    args = (global_step, decay_steps, initial_variance, variance_decay, alpha, random_normal(()))
    shift = _applied(shift_at, args, f"{name}/shift")
    return linear_cosine_decay(
        learning_rate, global_step, decay_steps, num_periods, shift, beta, name
    )


def piecewise_constant(
    x: Any,
    boundaries: Sequence[float],
    values: Sequence[float],
    name: str = "PiecewiseConstant",
) -> Tensor:
    """Returns the value of the interval that `x` is in: `values[i]` from above `boundaries[i - 1]`.

    Args:
      x: a scalar, such as the number of steps.
      boundaries: numbers that grow.
      values: one more than boundaries.
      name: name of the operation.

    Returns:
      One of the values, f32[].

    Raises:
      ValueError: if there is not one more value than boundaries, or boundaries do not grow.
    """
    if len(values) != len(boundaries) + 1:
        raise ValueError(
            f"expected one value more than boundaries, got {len(values)} values and "
            f"{len(boundaries)} boundaries"
        )
    if any(a >= b for a, b in pairwise(boundaries)):
        raise ValueError(f"expected boundaries that grow, got {list(boundaries)}")

    def value_at(at: Any) -> Any:
        number = jnp.searchsorted(jnp.asarray(boundaries, jnp.float32), _float(at), side="left")
        return jnp.asarray(values, jnp.float32)[number]

    return _applied(value_at, (x,), name)


def _scaled(
    factor: Callable[[Any, Any], Any],
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool,
    name: str,
) -> Tensor:
    """A rate times a factor of the share of the steps that are done and of the decay rate."""

    def rate_at(start: Any, step: Any, steps: Any, rate: Any) -> Any:
        done = _float(step) / steps
        return start * factor(jnp.floor(done) if staircase else done, _float(rate))

    return _applied(rate_at, (learning_rate, global_step, decay_steps, decay_rate), name)


def _float(value: Any) -> Any:
    return jnp.asarray(value).astype(jnp.float32)


def _applied(fun: Callable[..., Any], args: Sequence[Any], name: str) -> Tensor:
    tensor: Tensor = get_default_graph().apply(fun, args, name=name)
    return tensor
