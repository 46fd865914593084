"""The readers of record files and the decoders of records, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jflow.base.values import Array
from jflow.errors import InvalidArgumentError
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.records.arrayrecord import ArrayRecords
from jflow.state.records.arrays import equal, not_equal, shape, stack
from jflow.state.records.csv import decode_csv
from jflow.state.records.fixed import FixedLengthRecords
from jflow.state.records.hashing import string_to_hash_bucket_fast
from jflow.state.records.image import decode_image, decode_jpeg, decode_png, encode_jpeg, encode_png
from jflow.state.records.messages import decode_json_example
from jflow.state.records.parquet import ParquetRecords
from jflow.state.records.parse import parse_example, parse_single_example
from jflow.state.records.reader import Records, text_of
from jflow.state.records.sequences import parse_sequence_example, parse_single_sequence_example
from jflow.state.records.sparse import (
    deserialize_many_sparse,
    serialize_many_sparse,
    serialize_sparse,
    sparse_merge,
)
from jflow.state.records.strings import (
    as_string,
    string_join,
    string_split,
    string_strip,
    string_to_number,
    substr,
)
from jflow.state.records.text import TextLineRecords
from jflow.state.records.tfrecord import TFRecords
from jflow.state.records.whole import IdentityRecords, WholeFileRecords

_READERS: Mapping[str, Callable[..., Records]] = {
    "ArrayRecordReader": ArrayRecords,
    "FixedLengthRecordReader": FixedLengthRecords,
    "IdentityReader": IdentityRecords,
    "ParquetReader": ParquetRecords,
    "TFRecordReader": TFRecords,
    "TextLineReader": TextLineRecords,
    "WholeFileReader": WholeFileRecords,
}


def open_records(
    kind: str,
    name: bytes,
    options: Mapping[str, Any],
    roots: AllowedDirectories,
    position: Any = None,
) -> Records:
    """Opens a work item for reading.

    Args:
      kind: name of the reader, such as "TFRecordReader".
      name: the work item, a file name for all readers but the IdentityReader.
      options: keyword arguments of the reader.
      roots: the directories that may be read.
      position: a former `Records.position`, to continue there; None for the start.

    Raises:
      InvalidArgumentError: if there is no such reader or option, or an option is invalid.
      UnimplementedError: if the reader requires a package that is not installed.
      OpError: as `AllowedDirectories.open`.
    """
    if kind not in _READERS:
        raise InvalidArgumentError(f"expected one of the readers {sorted(_READERS)}, got {kind!r}")
    try:
        inspect.signature(_READERS[kind]).bind(name, roots, position, **options)
    except TypeError as error:
        raise InvalidArgumentError(f"{kind} of {text_of(name)}: {error}") from error
    return _READERS[kind](name, roots, position, **options)


_NUMBERS = "biufc"


def decode_raw(
    records: Array, *, out_type: str, little_endian: bool = True, fixed_length: int | None = None
) -> tuple[Array]:
    """Reinterprets the bytes of records as numbers, out_type[..., n].

    Args:
      records: string[...], all of one length unless `fixed_length` is given.
      out_type: name of the dtype of the numbers.
      little_endian: byte order of the numbers.
      fixed_length: number of bytes to which each record is truncated or padded with zeros; only
        programs of other releases may set it.

    Raises:
      InvalidArgumentError: if lengths differ or are not multiples of the dtype's size.
    """
    dtype = np.dtype(out_type)
    if dtype.kind not in _NUMBERS:
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


DECODERS: Mapping[str, Callable[..., Sequence[Array]]] = {
    function.__name__: function
    for function in (
        *(decode_csv, decode_raw, parse_example, parse_single_example),
        *(decode_image, decode_jpeg, decode_png, encode_jpeg, encode_png),
        *(decode_json_example, deserialize_many_sparse, serialize_many_sparse, serialize_sparse),
        *(sparse_merge, parse_sequence_example, parse_single_sequence_example),
        *(as_string, string_join, string_split, string_strip, string_to_number, substr),
        *(string_to_hash_bucket_fast, equal, not_equal, shape, stack),
    )
}
"""Functions from arrays to arrays, with attributes as keyword arguments, that steps call by name.

Results may share memory with arguments.
"""
