"""Host tensors: values that stay in host memory and never reach XLA.

Host tensors are strings, numbers of unknown rank, and 64-bit numbers while JAX's 64-bit types are
disabled. In feeds, slots and fetches a string tensor is a NumPy array of `bytes` objects; text is
UTF-8. Its serialized form is the length of each string as a little-endian u64, then the strings.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import pairwise
from typing import Any

import jax
import numpy as np

Array = np.ndarray[Any, Any]

_LENGTH = np.dtype("<u8")
_SLICE = 1 << 14
"""How many strings are read at a time, to bound temporary memory."""


class HostDtype(Enum):
    """The dtype of a host tensor that is not a NumPy dtype."""

    string = "string"

    @property
    def itemsize(self) -> int:
        """The minimum size of a serialized element in bytes."""
        return _LENGTH.itemsize

    def __repr__(self) -> str:
        return f"jflow.{self.name}"

    __str__ = __repr__


string = HostDtype.string


@dataclass(frozen=True)
class HostArray(jax.core.AbstractValue):
    """The abstract value of a host tensor; the counterpart of `jax.core.ShapedArray`.

    Attributes:
      shape: sizes of the dimensions, symbols where unknown; None if the rank is unknown.
      dtype: `string`, or a dtype of numbers.
      weak_type: of numbers, whether their dtype gives way to that of another operand, as in JAX.
    """

    shape: tuple[Any, ...] | None
    dtype: Any = string
    weak_type: bool = False

    def str_short(self, short_dtypes: Any = False, mesh_axis_types: Any = False) -> str:
        """Returns the text that JAX prints in equations."""
        sizes = "?" if self.shape is None else ",".join(map(str, self.shape))
        return f"{self.dtype.name}[{sizes}]"


def is_string_tensor(value: Any) -> bool:
    """Whether a value is a string tensor."""
    return isinstance(value, np.ndarray) and value.dtype == object


def refuse_host(tensor: Any, fun: object) -> None:
    """Raises TypeError if an argument of a JAX function is a host tensor."""
    if not isinstance(tensor.aval, HostArray):
        return
    if tensor.dtype == string:
        raise TypeError(
            f"{fun} requires numbers, but got {tensor!r}; strings stay in host memory and are "
            "not supported by XLA"
        )
    if tensor.aval.shape is not None:
        raise TypeError(
            f"{fun} cannot use {tensor!r}, because 64-bit types are disabled in JAX and the "
            "tensor stays in host memory; jflow.cast it to a smaller type, or call "
            "jax.config.update('jax_enable_x64', True) before building the graph"
        )
    raise TypeError(
        f"{fun} must know the rank of {tensor!r} when the graph is built; declare it with "
        "set_shape or jflow.ensure_shape, or give the queue or placeholder a shape"
    )


def as_strings(value: Any) -> Array:
    """Converts text, bytes or nested lists of them to an array of `bytes` objects.

    Raises:
      TypeError: if an element is neither text nor bytes.
    """
    strings = np.array(value, dtype=object, order="C")
    flat = strings.reshape(-1)
    for i, item in enumerate(flat):
        flat[i] = _encode_text(item)
    return strings


def _encode_text(item: Any) -> bytes:
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, bytes):
        return bytes(item)
    raise TypeError(f"expected text or bytes, got {type(item).__name__}: {item!r:.80}")


def type_name(value: Array) -> str:
    """Returns the name of a value's dtype, such as "float32" or "string"."""
    return string.name if is_string_tensor(value) else _name_of(value.dtype)


@lru_cache
def _name_of(dtype: np.dtype[Any]) -> str:
    """Returns a dtype's name; cached, because NumPy builds it at each access."""
    return dtype.name


def memory_bytes(value: Any) -> int:
    """Returns the memory of a host or device array in bytes, the text of strings included."""
    size: int = value.nbytes
    # Not `is_string_tensor`, whose call and comparison of dtypes take as long as all the rest.
    is_string = isinstance(value, np.ndarray) and value.dtype.hasobject
    return size + sum(map(len, value.flat)) if is_string else size


def raw_bytes(value: Array) -> Array:
    """Serializes an array to u8[n]; returns a view if possible."""
    if is_string_tensor(value):
        items = value.reshape(-1).tolist()
        lengths = np.array([len(item) for item in items], _LENGTH)
        return np.frombuffer(b"".join((lengths.tobytes(), *items)), np.uint8)
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8)


def read_strings(data: Array, count: int) -> tuple[Array, int]:
    """Reads `count` strings from the start of `data`, u8[n]; also returns the offset after them.

    Raises:
      ValueError: if `data` is too short; nothing is allocated then.
    """
    start = count * _LENGTH.itemsize
    if start > len(data):
        raise ValueError(f"{count} strings do not fit {len(data)} bytes")
    lengths = data[:start].view(_LENGTH)
    slices = [lengths[first : first + _SLICE] for first in range(0, count, _SLICE)]
    if count and int(lengths.max()) > len(data):  # so that no sum below wraps
        raise ValueError(f"a string of {int(lengths.max())} bytes does not fit {len(data)} bytes")
    end = start + sum(int(each.sum()) for each in slices)
    if end > len(data):
        raise ValueError(f"strings of {end - start} bytes do not fit {len(data)} bytes")
    strings = np.empty(count, object)
    view = data.data
    for number, each in enumerate(slices):
        stops = (start + np.cumsum(each)).tolist()
        strings[number * _SLICE : (number + 1) * _SLICE] = [
            view[a:b].tobytes() for a, b in pairwise((start, *stops))
        ]
        start = stops[-1]
    return strings, end
