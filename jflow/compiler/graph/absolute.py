"""Absolute values with TensorFlow's derivative at zero, where JAX's is one."""

# The name is that of the operation, also where Python has it.
# ruff: noqa: A001

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def abs(x: Any) -> Any:
    """Returns absolute values; their derivative at zero is zero."""
    is_real = jnp.issubdtype(jnp.result_type(x), jnp.floating)
    return _absolute(x) if is_real else jnp.abs(x)


@jax.custom_jvp
def _absolute(x: Any) -> Any:
    return jnp.abs(x)


@_absolute.defjvp
def _derivative_of_absolute(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    return _absolute(x), jnp.sign(x) * dx
