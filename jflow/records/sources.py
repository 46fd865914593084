"""The kinds of readers by the names that graphs know them by."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from jflow.errors import InvalidArgumentError
from jflow.records.allowed_directories import AllowedDirectories
from jflow.records.arrayrecord import ArrayRecords
from jflow.records.fixed import FixedLengthRecords
from jflow.records.parquet import ParquetRecords
from jflow.records.reader import Records, text_of
from jflow.records.text import TextLineRecords
from jflow.records.tfrecord import TFRecords
from jflow.records.whole import IdentityRecords, WholeFileRecords

_KINDS: Mapping[str, Callable[..., Records]] = {
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
    """The records of one work item.

    Args:
      kind: the kind of reader, such as "TFRecordReader".
      name: the work item, a file's name for all but the IdentityReader.
      options: keyword arguments of the kind's class.
      roots: where files may be read.
      position: what `Records.position` was, to go on there; None to begin.

    Raises:
      InvalidArgumentError: if there is no such kind or option, or one has no possible value.
      UnimplementedError: if the kind needs a package that is not installed.
      OpError: as for `AllowedDirectories.open`.
    """
    if kind not in _KINDS:
        raise InvalidArgumentError(f"there is no reader {kind!r}; there are {sorted(_KINDS)}")
    try:
        inspect.signature(_KINDS[kind]).bind(name, roots, position, **options)
    except TypeError as error:
        raise InvalidArgumentError(f"{kind} of {text_of(name)}: {error}") from error
    return _KINDS[kind](name, roots, position, **options)
