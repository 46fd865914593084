"""Conversion of user values to arrays and dtypes, following JAX's rules."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from jflow.base.suggestions import did_you_mean
from jflow.base.values.dims import plain_shape
from jflow.base.values.host import Array, HostArray, HostDtype, as_strings, is_string_tensor, string
from jflow.base.values.physical import is_key

Dtype = Any  # np.dtype | HostDtype | the dtypes of JAX's random keys, whose type is not public
AbstractValue = jax.core.ShapedArray | HostArray

_NUMPY_TYPES = (
    *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    *(np.float16, np.float32, np.float64, np.complex64, np.complex128),
)
# XLA takes neither 1-bit integers nor 6-bit floats from the host.
_SMALL_TYPES = ("bfloat16", "float8", "float4", "int4", "uint4", "int2", "uint2")

NUMBERS: dict[str, np.dtype[Any]] = {
    np.dtype(kind).name: np.dtype(kind)
    for kind in (
        *_NUMPY_TYPES,
        *(kind for name, kind in vars(ml_dtypes).items() if name.startswith(_SMALL_TYPES)),
    )
}
"""The dtypes of arrays by name: all JAX dtypes that can be moved between host and device."""

_KNOWN = frozenset(NUMBERS.values())
_OF_A_LIBRARY = 2  # what NumPy says of dtypes that are not its own
_RANKS = (np.bool_, np.integer, np.floating, np.complexfloating)
_WEAK = (bool, int, float, complex)  # in the order in which they are promoted
_FLOATING = _RANKS.index(np.floating)

_SWITCH_ON = "jax.config.update('jax_enable_x64', True)"


def as_dtype(dtype: Any) -> Dtype:
    """Converts a dtype-like object to a dtype; `str` and `bytes` mean strings.

    Raises:
      TypeError: if it is not a dtype, or devices do not support the dtype.
      ValueError: if the dtype needs 64 bits and `jax_enable_x64` is off.
    """
    if isinstance(dtype, HostDtype) or is_key(dtype):
        return dtype
    if isinstance(dtype, str) and dtype == string.name:
        return string
    wanted = _to_native(_to_numpy_dtype(dtype))
    if wanted.kind in "SU":
        return string
    if wanted not in _KNOWN:
        raise TypeError(_not_a_dtype(wanted))
    if is_switched_off(wanted):
        raise ValueError(
            f"{wanted} requires 64-bit types, which are disabled in JAX; "
            f"call {_SWITCH_ON} first, or use {jax.dtypes.canonicalize_dtype(wanted)}"
        )
    return wanted


def host_dtype(dtype: Any) -> Dtype:
    """Like `as_dtype`, for host values, which may have 64 bits even if programs may not."""
    is_text = isinstance(dtype, str) and dtype == string.name
    if is_text or isinstance(dtype, HostDtype) or is_key(dtype):
        return as_dtype(dtype)
    wanted = _to_numpy_dtype(dtype)
    return _to_native(wanted) if is_switched_off(wanted) else as_dtype(wanted)


def _to_numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """Returns the NumPy dtype of a dtype-like object. Raises TypeError if there is none."""
    try:
        parsed: np.dtype[Any] = np.dtype(dtype)
    except TypeError as error:
        raise TypeError(_not_a_dtype(dtype)) from error
    return parsed


def _not_a_dtype(value: Any) -> str:
    advice = did_you_mean(value, NUMBERS) if isinstance(value, str) else ""
    return f"{value if isinstance(value, np.dtype) else repr(value)} is not a dtype of tensors" + (
        advice or f"; expected one of {', '.join(NUMBERS)}"
    )


def is_switched_off(dtype: Dtype) -> bool:
    """Whether a dtype needs 64 bits while `jax_enable_x64` is off."""
    if not isinstance(dtype, np.dtype) or dtype.itemsize < 8:
        return False
    return bool(jax.dtypes.canonicalize_dtype(dtype) != dtype)


def narrowed(value: Any) -> Array:
    """Converts a value to an array with JAX's dtype for it, which depends on `jax_enable_x64`.

    A JAX array keeps its dtype.
    """
    array: Array = np.asarray(value)
    if isinstance(value, jax.Array):
        return array
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)


def as_array(value: Any, dtype: Any = None, *, on_host: bool = False) -> Any:
    """Converts a value to an array with the dtype that JAX would give it.

    Args:
      value: anything that NumPy converts to an array of numbers or booleans; text, bytes or
        nested lists of them; or JAX random keys.
      dtype: the wanted dtype, or None for the value's own (64-bit dtypes narrow as in JAX).
      on_host: whether no XLA program uses the value, which then may have 64 bits in any case.

    Returns:
      A NumPy array, of `bytes` objects for strings. Random keys are returned unchanged.

    Raises:
      TypeError: if the value has another type, is of another kind than the dtype, or would lose
        more than precision.
      ValueError: as for `as_dtype`.
    """
    is_wide = on_host and is_switched_off(dtype)
    wanted = dtype if dtype is None or is_wide else as_dtype(dtype)
    own_dtype = getattr(value, "dtype", None)
    if is_key(own_dtype) or is_key(wanted):
        return _keys(value, own_dtype, wanted)
    if wanted is string or (wanted is None and _is_text(value)):
        return as_strings(value)
    array = np.asarray(value)
    own = _to_native(array.dtype)
    if own not in _KNOWN:
        kind = "text" if array.dtype.kind in "SU" else array.dtype
        aim = "" if dtype is None else f" for {wanted.name}"
        raise TypeError(f"expected numbers or booleans{aim}, got {kind}: {value!r:.80}")
    wanted = jax.dtypes.canonicalize_dtype(own) if wanted is None else wanted
    return array.astype(wanted, copy=False) if own == wanted else _cast(array, wanted)


def as_operand(values: Sequence[Any], leaves: Sequence[Any], dtype: Dtype) -> Any:
    """Converts nested lists of numbers to an array, with weak types if the other operand allows it.

    Python numbers are weakly typed as in JAX: with float16 they become float16, with int32 floats
    become float32.

    Args:
      values: nested lists or tuples.
      leaves: the numbers in them.
      dtype: the dtype of the other operand.

    Raises:
      TypeError, ValueError: as `as_array`.
    """
    if not isinstance(dtype, np.dtype) or not all(type(leaf) in _WEAK for leaf in leaves):
        return as_array(values)
    widest = max(map(type, leaves), key=_WEAK.index, default=bool)
    return as_array(values, jnp.result_type(dtype, widest))


def abstract(shape: Sequence[Any] | None, dtype: Dtype) -> AbstractValue:
    """Returns the abstract value for a shape and dtype; shape None means any rank."""
    sizes = plain_shape(shape)
    if sizes is None or isinstance(dtype, HostDtype):
        return HostArray(None if sizes is None else tuple(sizes), dtype)
    return jax.core.ShapedArray(tuple(sizes), dtype)


def host_abstract(shape: Sequence[Any] | None, dtype: Dtype) -> AbstractValue:
    """Like `abstract`, for host values, which may have 64 bits even if programs may not."""
    if not is_switched_off(dtype):
        return abstract(shape, dtype)
    sizes = plain_shape(shape)
    return HostArray(None if sizes is None else tuple(sizes), dtype)


def is_unranked(aval: AbstractValue) -> bool:
    """Whether an abstract value has unknown rank and a dtype that programs can use."""
    if not isinstance(aval, HostArray) or aval.shape is not None:
        return False
    return not isinstance(aval.dtype, HostDtype) and not is_switched_off(aval.dtype)


def abstract_of(array: Any) -> AbstractValue:
    """Returns the abstract value of an array that `as_array` returned."""
    return host_abstract(array.shape, string if is_string_tensor(array) else array.dtype)


def _to_native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Converts a dtype to native byte order, the only one that JAX supports."""
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def _is_text(value: Any) -> bool:
    """Whether a value consists of strings; lists are judged by their first element."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "SUO":
        return all(isinstance(item, str | bytes) for item in value.flat)
    if isinstance(value, list | tuple):
        return len(value) > 0 and _is_text(value[0])
    return isinstance(value, str | bytes)


def _keys(value: Any, dtype: Any, wanted: Dtype | None) -> Any:
    if dtype == wanted or wanted is None:
        return value
    if is_key(dtype):
        raise TypeError(
            f"random keys of dtype {dtype} are not compatible with {wanted}; "
            "jax.random.key_data returns their underlying integers"
        )
    raise TypeError(
        f"expected random keys of dtype {wanted}, got {value!r:.80}; make them with "
        "jax.random.key, or with jax.random.wrap_key_data from their underlying integers"
    )


def _cast(values: np.ndarray[Any, Any], wanted: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Casts an array. Raises TypeError if more than precision would be lost."""
    if not values.size:
        return np.empty(values.shape, wanted)
    before, after = _rank(values.dtype), _rank(wanted)
    if before > after:
        raise TypeError(_incompatible_text(values, wanted))
    array = _plain(values)
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(wanted, copy=False)
        if after < _FLOATING:
            changed = _plain(cast) != array
        else:
            changed = None if np.isfinite(cast).all() else _overflow_mask(array, cast)
    if changed is not None and changed.any():
        raise TypeError(
            f"{_incompatible_text(values, wanted)}: {array[changed][0]} is out of its range"
        )
    return cast


@lru_cache(maxsize=256)
def _rank(dtype: np.dtype[Any]) -> int:
    return next(i for i, kind in enumerate(_RANKS) if jax.dtypes.issubdtype(dtype, kind))


def _plain(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Converts to a NumPy dtype, for which all casts and comparisons are supported."""
    if array.dtype.isbuiltin != _OF_A_LIBRARY:
        return array
    return array.astype(np.int8 if _rank(array.dtype) < _FLOATING else np.float32)


def _overflow_mask(array: np.ndarray[Any, Any], cast: np.ndarray[Any, Any]) -> Any:
    """Returns a mask of the elements that a cast has made infinite or NaN."""
    old_values, new_values = array.astype(np.complex128), cast.astype(np.complex128)
    return (
        ~np.isfinite(cast)
        & (old_values != new_values)
        & ~(np.isnan(old_values) & np.isnan(new_values))
    )


def _incompatible_text(array: np.ndarray[Any, Any], wanted: np.dtype[Any]) -> str:
    text = f"a value of dtype {array.dtype} is not compatible with {wanted}"
    if not is_switched_off(array.dtype):
        return text
    return f"{text} (64-bit types are disabled; call {_SWITCH_ON} before building the graph)"
