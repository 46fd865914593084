"""The physical form of extended dtypes (random keys, int4), which replaces them outside XLA.

JAX's random keys have no representation on the host. JAX 0.10 transfers arrays of sub-byte dtypes
to devices in another layout than compiled programs expect, and does not export 2-bit dtypes.
Outside of programs (in slots, variables, messages, feeds and fetches) such values are represented
by arrays of another dtype, their *physical form*. A program converts its arguments from the
physical form and its results to it. All other values are their own physical form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

from jflow.base.values.host import Array

_WIDER = {
    np.dtype(jnp.int2): np.dtype(np.int8),
    np.dtype(jnp.int4): np.dtype(np.int8),
    np.dtype(jnp.uint2): np.dtype(np.uint8),
    np.dtype(jnp.uint4): np.dtype(np.uint8),
    np.dtype(jnp.float4_e2m1fn): np.dtype(jnp.float8_e4m3fn),
}


@dataclass(frozen=True)
class PhysicalForm:
    """Conversions between the values of a dtype and their physical form.

    Attributes:
      wrap: a traceable function from the physical form to the value.
      unwrap: the inverse function.
    """

    wrap: Callable[[Any], Any]
    unwrap: Callable[[Any], Any]


@lru_cache(maxsize=256)
def physical_form(dtype: Any) -> PhysicalForm | None:
    """Returns the physical form of a dtype; None if values need no other form."""
    if is_key(dtype):
        wrap = partial(jax.random.wrap_key_data, impl=key_implementation(dtype))
        return PhysicalForm(wrap, jax.random.key_data)
    if dtype in _WIDER:
        return PhysicalForm(lambda x: x.astype(dtype), lambda x: x.astype(_WIDER[dtype]))
    return None


def is_key(dtype: Any) -> bool:
    """Whether a dtype is one of JAX's random key dtypes."""
    kind = getattr(dtype, "type", None)
    return isinstance(kind, type) and issubclass(kind, jax.dtypes.prng_key)


def key_dtype(implementation: str) -> Any:
    """Returns the dtype of random keys of an implementation, such as "threefry2x32".

    Raises ValueError if JAX has none of that name.
    """
    return jax.eval_shape(lambda: jax.random.key(0, impl=implementation)).dtype


def key_implementation(dtype: Any) -> Any:
    """Returns the implementation of random keys of a dtype, as `jax.random.key_impl`."""
    implementations = []

    def look(key: jax.Array) -> jax.Array:
        implementations.append(jax.random.key_impl(key))
        return key

    jax.eval_shape(look, jax.ShapeDtypeStruct((), dtype))
    return implementations[0]


def to_physical(value: Any) -> Array:
    """Converts a value to its physical form."""
    form = physical_form(value.dtype)
    return value if form is None else np.asarray(form.unwrap(value))


def from_physical(carried: Array, dtype: Any) -> Any:
    """Converts an array from its physical form to a dtype; scalars become NumPy scalars."""
    form = physical_form(dtype)
    value = carried if form is None else form.wrap(carried)
    return value[()] if isinstance(value, np.ndarray) else value


def wrapping(aval: Any) -> jex.ClosedJaxpr | None:
    """Returns the program that converts from the physical form; None if there is no other form."""
    form = physical_form(aval.dtype)
    if form is None:
        return None
    value = jax.ShapeDtypeStruct(aval.shape, aval.dtype)
    return jax.make_jaxpr(form.wrap)(jax.eval_shape(form.unwrap, value))


def unwrapping(aval: Any) -> jex.ClosedJaxpr | None:
    """Returns the program that converts to the physical form; None if there is no other form."""
    form = physical_form(aval.dtype)
    if form is None:
        return None
    return jax.make_jaxpr(form.unwrap)(jax.ShapeDtypeStruct(aval.shape, aval.dtype))


def logical_shape(shape: tuple[int, ...], dtype: str) -> tuple[int, ...]:
    """Converts a shape in physical form to that which programs see: random keys lose a size."""
    return shape[:-1] if dtype.startswith("key<") else shape
