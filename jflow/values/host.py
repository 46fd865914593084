"""Host tensors: values that stay in a task's own memory and never reach XLA.

These are strings, and numbers whose rank is not known before they are there. In feeds, slots and
fetches a tensor of strings is a NumPy array of `bytes` objects; text is UTF-8. In one piece it is
the length of each string as a little-endian u64, then the strings.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import numpy as np

Array = np.ndarray[Any, Any]

_LENGTH = np.dtype("<u8")


@dataclass(frozen=True)
class HostDtype:
    """Type of the elements of a host tensor."""

    name: str

    @property
    def itemsize(self) -> int:
        """What an element takes in one piece at least, in bytes."""
        return _LENGTH.itemsize

    def __repr__(self) -> str:
        return f"jflow.{self.name}"


string = HostDtype("string")


@dataclass(frozen=True)
class HostArray(jax.core.AbstractValue):
    """The abstract value of a host tensor, as `jax.core.ShapedArray` is that of an array.

    Attributes:
      shape: size of each dimension, a symbol where it is not known; None if not even the rank is.
      dtype: `string`, or the dtype of numbers of unknown rank.
    """

    shape: tuple[Any, ...] | None
    dtype: Any = string

    def str_short(self, short_dtypes: Any = False, mesh_axis_types: Any = False) -> str:
        """How JAX prints it in an equation."""
        sizes = "?" if self.shape is None else ",".join(map(str, self.shape))
        return f"{self.dtype.name}[{sizes}]"


def is_host(value: Any) -> bool:
    """Whether the value of a tensor is a host tensor's."""
    return isinstance(value, np.ndarray) and value.dtype == object


def refuse_host(tensor: Any, fun: object) -> None:
    """Raises TypeError if a tensor that a function of JAX is given is a host tensor."""
    if not isinstance(tensor.aval, HostArray):
        return
    if tensor.dtype == string:
        raise TypeError(
            f"{fun} computes with numbers; {tensor!r} holds strings, "
            "which stay in the memory of a task and never reach XLA"
        )
    if tensor.shape is not None:
        raise TypeError(
            f"{fun} computes without the 64-bit types, which JAX has switched off; {tensor!r} "
            "stays in the memory of a task: jflow.cast it to a smaller type, or call "
            "jax.config.update('jax_enable_x64', True) before the graph is built"
        )
    raise TypeError(
        f"{fun} cannot be traced for {tensor!r}, of which not even the rank is known; "
        "use jflow.ensure_shape, or give the queue or placeholder that it comes from a shape"
    )


def as_strings(value: Any) -> Array:
    """The array of `bytes` that text, bytes or nested lists of them stand for.

    Raises:
      TypeError: if an element is something else.
    """
    strings = np.array(value, dtype=object, order="C")
    flat = strings.reshape(-1)
    for i, item in enumerate(flat):
        flat[i] = _encoded(item)
    return strings


def _encoded(item: Any) -> bytes:
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, bytes):
        return bytes(item)
    raise TypeError(f"expected text or bytes, got {type(item).__name__}: {item!r:.80}")


def type_name(value: Array) -> str:
    """Name of the type of a value's elements, such as "float32" or "string"."""
    return string.name if is_host(value) else _name_of(value.dtype)


@lru_cache
def _name_of(dtype: np.dtype[Any]) -> str:
    """NumPy puts the name together anew each time, which takes longer than all the rest."""
    return dtype.name


def raw_bytes(value: Array) -> Array:
    """The value in one piece, u8[n]; without a copy where it is an array in C order."""
    if is_host(value):
        items = value.reshape(-1).tolist()
        lengths = np.array([len(item) for item in items], _LENGTH)
        return np.frombuffer(b"".join((lengths.tobytes(), *items)), np.uint8)
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8)


def read_strings(data: Array, count: int) -> tuple[Array, int]:
    """The first strings of `data`, which is u8[n], and how many bytes they took.

    Raises:
      ValueError: if `data` is too short for them; no memory is taken then.
    """
    start = count * _LENGTH.itemsize
    if start > len(data):
        raise ValueError(f"{count} strings do not fit {len(data)} bytes")
    lengths: list[int] = data[:start].view(_LENGTH).tolist()
    end = start + sum(lengths)
    if end > len(data):
        raise ValueError(f"strings of {end - start} bytes do not fit {len(data)} bytes")
    strings = np.empty(count, object)
    for i, length in enumerate(lengths):
        strings[i] = data[start : start + length].tobytes()
        start += length
    return strings, end
