"""The table of readers by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from jflow.errors import InvalidArgumentError
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.records.arrayrecord import ArrayRecords
from jflow.state.records.fixed import FixedLengthRecords
from jflow.state.records.parquet import ParquetRecords
from jflow.state.records.reader import Records, text_of
from jflow.state.records.text import TextLineRecords
from jflow.state.records.tfrecord import TFRecords
from jflow.state.records.whole import IdentityRecords, WholeFileRecords

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
    if kind not in _KINDS:
        raise InvalidArgumentError(f"expected one of the readers {sorted(_KINDS)}, got {kind!r}")
    try:
        inspect.signature(_KINDS[kind]).bind(name, roots, position, **options)
    except TypeError as error:
        raise InvalidArgumentError(f"{kind} of {text_of(name)}: {error}") from error
    return _KINDS[kind](name, roots, position, **options)
