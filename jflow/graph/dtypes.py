"""Arrays and dtypes at the border of the graph: what JAX would make of a user's value."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """The NumPy dtype that a dtype-like object names.

    Raises:
      TypeError: if it names none.
      ValueError: if it needs 64 bits and `jax_enable_x64` is off.
    """
    wanted: np.dtype[Any] = np.dtype(dtype)
    if jax.dtypes.canonicalize_dtype(wanted) != wanted:
        raise ValueError(
            f"{wanted} needs 64-bit types, which JAX has switched off; "
            "call jax.config.update('jax_enable_x64', True) first, or use "
            f"{jax.dtypes.canonicalize_dtype(wanted)}"
        )
    return wanted


def as_array(value: Any, dtype: Any = None) -> np.ndarray[Any, Any]:
    """The array that a number, list or array stands for, with the dtype JAX would give it.

    Args:
      value: anything that NumPy reads as an array of numbers or booleans.
      dtype: wanted dtype, or None for the value's own (64-bit ones narrow as in JAX).

    Raises:
      TypeError: if the value is no array of numbers, or would lose more than precision.
      ValueError: as for `as_dtype`.
    """
    wanted = None if dtype is None else as_dtype(dtype)
    array = np.asarray(value)
    if array.dtype == wanted and wanted is not None:
        return array
    if array.dtype.kind in "OSUMm":
        raise TypeError(f"expected numbers or booleans, got {array.dtype}: {value!r:.80}")
    if wanted is None:
        wanted = jax.dtypes.canonicalize_dtype(array.dtype)
    if array.size and _loses(array, wanted):
        raise TypeError(
            f"a value of dtype {array.dtype} is not compatible with {wanted}: {value!r:.80}"
        )
    return array.astype(wanted, copy=False)


def _loses(array: np.ndarray[Any, Any], wanted: np.dtype[Any]) -> bool:
    """Whether a cast would drop fractions, imaginary parts or the range of integers."""
    if jax.dtypes.issubdtype(array.dtype, np.integer) and jax.dtypes.issubdtype(wanted, np.integer):
        return not np.array_equal(array.astype(wanted), array)
    order = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3}
    if wanted == np.bool_:
        return bool(array.dtype != np.bool_)
    return order.get(array.dtype.kind, 0) > order.get(wanted.kind, 0)
