"""The decoder of raw bytes of numbers."""

from __future__ import annotations

import numpy as np

from jflow.base.values import Array
from jflow.errors import InvalidArgumentError

_KINDS = "biufc"


def decode_raw(
    records: Array, *, out_type: str, little_endian: bool = True, fixed_length: int | None = None
) -> tuple[Array]:
    """Reinterprets the bytes of records as numbers, out_type[..., n].

    Args:
      records: string[...], all of one length unless `fixed_length` is given.
      out_type: name of the dtype of the numbers.
      little_endian: byte order of the numbers.
      fixed_length: number of bytes to which each record is truncated or padded with zeros.

    Raises:
      InvalidArgumentError: if lengths differ or are not multiples of the dtype's size.
    """
    dtype = np.dtype(out_type)
    if dtype.kind not in _KINDS:
        raise InvalidArgumentError(f"expected a dtype of numbers as out_type, got {out_type}")
    items: list[bytes] = records.reshape(-1).tolist()
    if fixed_length is not None:
        items = [item[:fixed_length].ljust(fixed_length, b"\0") for item in items]
    length = len(items[0]) if items else fixed_length or 0
    for i, item in enumerate(items):
        if len(item) != length:
            raise InvalidArgumentError(
                "decode_raw requires input strings to all be the same size, but element "
                f"{i} has {len(item)} bytes and the first one {length}"
            )
    if length % dtype.itemsize:
        raise InvalidArgumentError(
            f"the input has length {length}, which is not a multiple of {dtype.itemsize}, the size "
            f"of {out_type}"
        )
    order = dtype.newbyteorder("<" if little_endian else ">")
    flat = np.frombuffer(b"".join(items), order).astype(dtype, copy=False)
    return (flat.reshape(*records.shape, length // dtype.itemsize),)
