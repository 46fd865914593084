"""The header of a safetensors file.

The format: https://huggingface.co/docs/safetensors, "Format". A file is the length of the header
as a little-endian u64, the header in JSON, and the bytes of all tensors in the header's order of
offsets, without gaps.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from typing import NamedTuple

from jflow.base.values import NUMBERS

_LENGTH = struct.Struct("<Q")
_ALIGNMENT = 64
_METADATA = "__metadata__"

_DTYPES = {
    "bool": "BOOL",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "complex64": "C64",
}


class NamedBytes(NamedTuple):
    """Bytes in the file as a tensor of the format.

    Attributes:
      name: its name.
      dtype: the name of its dtype in jflow; one that the format lacks is written as bytes.
      shape: its shape.
      n_bytes: its size.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    n_bytes: int


def header(tensors: Iterable[NamedBytes]) -> bytes:
    """The first bytes of a file with these tensors, in the order of their bytes."""
    names = {_METADATA}
    fields: dict[str, object] = {_METADATA: {"format": "jflow"}}
    begin = 0
    for tensor in tensors:
        name = tensor.name
        while name in names:
            name += "'"
        names.add(name)
        dtype, shape = _described(tensor)
        offsets = [begin, begin + tensor.n_bytes]
        fields[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        begin += tensor.n_bytes
    text = json.dumps(fields, ensure_ascii=True, separators=(",", ":")).encode()
    # Spaces after the JSON, as the format allows, so that the data are aligned.
    n_padding = -(_LENGTH.size + len(text)) % _ALIGNMENT
    return _LENGTH.pack(len(text) + n_padding) + text + b" " * n_padding


def _described(tensor: NamedBytes) -> tuple[str, list[int]]:
    known = _DTYPES.get(tensor.dtype)
    if known is not None:
        return known, [*tensor.shape]
    if tensor.dtype in NUMBERS:
        return "U8", [*tensor.shape, NUMBERS[tensor.dtype].itemsize]
    return "U8", [tensor.n_bytes]
