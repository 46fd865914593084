"""How values travel whose type only programs know.

JAX's random keys have no form on the host; arrays of less than a byte an element JAX 0.10 puts on
devices in another layout than compiled programs expect, and those of 2 bits it does not export.
Outside of programs such values are *carried* by an array of another type: in slots, in
variables, between tasks, in feeds and fetches. A program takes carriers apart when it begins and
makes new ones when it ends. All other values are their own carriers.
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

from jflow.values.host import Array

_WIDER = {
    np.dtype(jnp.int2): np.dtype(np.int8),
    np.dtype(jnp.int4): np.dtype(np.int8),
    np.dtype(jnp.uint2): np.dtype(np.uint8),
    np.dtype(jnp.uint4): np.dtype(np.uint8),
    np.dtype(jnp.float4_e2m1fn): np.dtype(jnp.float8_e4m3fn),
}


@dataclass(frozen=True)
class PhysicalForm:
    """What carries values of one dtype.

    Attributes:
      wrap: the function from what carries a value to the value; JAX can trace it.
      unwrap: the function back.
    """

    wrap: Callable[[Any], Any]
    unwrap: Callable[[Any], Any]


@lru_cache(maxsize=256)
def physical_form(dtype: Any) -> PhysicalForm | None:
    """What carries values of a dtype, or None if they carry themselves."""
    if is_key(dtype):
        wrap = partial(jax.random.wrap_key_data, impl=_implementation(dtype))
        return PhysicalForm(wrap, jax.random.key_data)
    if dtype in _WIDER:
        return PhysicalForm(lambda x: x.astype(dtype), lambda x: x.astype(_WIDER[dtype]))
    return None


def is_key(dtype: Any) -> bool:
    """Whether it is one of the dtypes of JAX's random keys."""
    kind = getattr(dtype, "type", None)
    return isinstance(kind, type) and issubclass(kind, jax.dtypes.prng_key)


def _implementation(dtype: Any) -> Any:
    """What `jax.random.key_impl` says of keys of a dtype."""
    found = []

    def look(key: jax.Array) -> jax.Array:
        found.append(jax.random.key_impl(key))
        return key

    jax.eval_shape(look, jax.ShapeDtypeStruct((), dtype))
    return found[0]


def to_physical(value: Any) -> Array:
    """The array that carries a value."""
    form = physical_form(value.dtype)
    return value if form is None else np.asarray(form.unwrap(value))


def from_physical(carried: Array, dtype: Any) -> Any:
    """The value of a dtype that an array carries; NumPy's own scalar for one of numbers."""
    form = physical_form(dtype)
    value = carried if form is None else form.wrap(carried)
    return value[()] if isinstance(value, np.ndarray) else value


def wrapping(aval: Any) -> jex.ClosedJaxpr | None:
    """The program from what carries a value to the value, or None if it carries itself."""
    form = physical_form(aval.dtype)
    if form is None:
        return None
    value = jax.ShapeDtypeStruct(aval.shape, aval.dtype)
    return jax.make_jaxpr(form.wrap)(jax.eval_shape(form.unwrap, value))


def unwrapping(aval: Any) -> jex.ClosedJaxpr | None:
    """The program from a value to what carries it, or None if it carries itself."""
    form = physical_form(aval.dtype)
    if form is None:
        return None
    return jax.make_jaxpr(form.unwrap)(jax.ShapeDtypeStruct(aval.shape, aval.dtype))
