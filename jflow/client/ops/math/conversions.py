"""Conversions between dtypes, and what can be converted, under TensorFlow's names."""

# Arguments have TensorFlow's names, also where Python has them.
# ruff: noqa: A002

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from jflow.base.values import as_dtype as _as_dtype
from jflow.client.ops.lift import operation
from jflow.client.ops.strings import cast
from jflow.compiler.graph import Symbolic


def _conversion(dtype: Any, op_name: str) -> Callable[..., Any]:
    def convert(x: Any, name: str = op_name) -> Any:
        return cast(x, dtype, name=name)

    convert.__doc__ = f"Converts numbers to {jnp.dtype(dtype).name}; see `cast`."
    return convert


to_bfloat16 = _conversion(jnp.bfloat16, "ToBFloat16")
to_complex128 = _conversion(jnp.complex128, "ToComplex128")
to_complex64 = _conversion(jnp.complex64, "ToComplex64")
to_double = _conversion(jnp.float64, "ToDouble")
to_float = _conversion(jnp.float32, "ToFloat")
to_int32 = _conversion(jnp.int32, "ToInt32")
to_int64 = _conversion(jnp.int64, "ToInt64")


def saturate_cast(value: Any, dtype: Any, name: str | None = None) -> Any:
    """Converts numbers to another dtype; those beyond its range become the nearest of both."""
    return _saturated(value, dtype=_as_dtype(dtype), name=name)


def bitcast(input: Any, type: Any, name: str | None = None) -> Any:
    """Returns the bits of a tensor as elements of another dtype.

    Args:
      input: T[*shape].
      type: the dtype. If it is smaller, the result has one more axis; if larger, the last axis has
        the parts of each element.
      name: name of the operation.
    """
    return _bitcast(input, new_dtype=_as_dtype(type), name=name)


def as_dtype(type_value: Any) -> Any:
    """Returns the dtype for a name, a type or a dtype. Raises TypeError if there is none."""
    return _as_dtype(type_value)


def is_tensor(x: Any) -> bool:
    """Whether a value is a tensor, a variable, or an array of JAX."""
    return isinstance(x, Symbolic | jax.Array)


def is_numeric_tensor(tensor: Any) -> bool:
    """Whether a value is a tensor of numbers; booleans and strings are none."""
    return is_tensor(tensor) and bool(jnp.issubdtype(tensor.dtype, jnp.number))


def _within(x: Any, dtype: Any) -> Any:
    x = jnp.asarray(x)
    if bool in (x.dtype, dtype) or jnp.issubdtype(dtype, jnp.complexfloating):
        return x.astype(dtype)
    x = jnp.real(x)
    (least, most), (least_before, most_before) = limits_of(dtype), limits_of(x.dtype)
    low = _towards_zero(max(least, least_before), x.dtype)
    high = _towards_zero(min(most, most_before), x.dtype)
    return jnp.clip(x, low, high).astype(dtype)


def limits_of(dtype: Any) -> tuple[Any, Any]:
    """Returns the least and the greatest number of a dtype, which Python compares exactly."""
    is_integer = jnp.issubdtype(dtype, jnp.integer)
    find: Any = ml_dtypes.iinfo if is_integer else ml_dtypes.finfo
    number = int if is_integer else float
    limits = find(dtype)
    return number(limits.min), number(limits.max)


def _towards_zero(number: Any, dtype: Any) -> Any:
    """Returns the number of a dtype that is nearest to another one and not farther from zero."""
    if jnp.issubdtype(dtype, jnp.integer):
        return np.asarray(int(number), dtype)
    nearest = np.asarray(number, dtype)
    is_beyond = abs(float(nearest)) > abs(number)
    return np.nextafter(nearest, np.zeros((), dtype)) if is_beyond else nearest


_saturated = operation(_within, "saturate_cast")
_bitcast = operation(jax.lax.bitcast_convert_type, "Bitcast")
