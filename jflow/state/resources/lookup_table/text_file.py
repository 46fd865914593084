"""Entries of lookup tables in files of text, one in each line."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jflow.base.values import Array, string
from jflow.errors import InvalidArgumentError
from jflow.state.records import Records
from jflow.state.records.numbers import MalformedNumberError, parse_numbers
from jflow.state.records.reader import text_of
from jflow.state.records.strings import string_array

WHOLE_LINE = -2
"""The index of a column that is the whole line."""

LINE_NUMBER = -1
"""The index of a column that is the number of the line, from 0."""

_BLOCK_LINES = 1 << 14


def read_lines(name: bytes, records: Records, vocab_size: int | None) -> list[bytes]:
    """Reads the lines of a vocabulary and closes its file.

    Args:
      name: name of the file, for messages.
      records: its lines.
      vocab_size: how many lines to read; None for all.

    Raises:
      InvalidArgumentError: if there are not as many lines, or none, or one is empty.
      OpError: if the file cannot be read.
    """
    lines: list[bytes] = []
    try:
        while vocab_size is None or len(lines) < vocab_size:
            wanted = _BLOCK_LINES if vocab_size is None else vocab_size - len(lines)
            _, block = records.read_up_to(min(wanted, _BLOCK_LINES))
            if not block:
                break
            lines += block
    finally:
        records.close()
    if vocab_size is not None and len(lines) < vocab_size:
        raise InvalidArgumentError(
            f"Invalid vocab_size in {text_of(name)}: expected {vocab_size} but got {len(lines)}"
        )
    if not lines:
        raise InvalidArgumentError(f"Invalid content in {text_of(name)}: it has no lines")
    if b"" in lines:
        raise InvalidArgumentError(
            f"Invalid content in {text_of(name)}: line {lines.index(b'')} (from 0) is empty"
        )
    return lines


def column_of(
    lines: Sequence[bytes], index: int, dtype: str, delimiter: bytes, first_number: int
) -> Array:
    """Returns a column of lines, dtype[n].

    Args:
      lines: the lines, n of them.
      index: its number, from 0; `WHOLE_LINE` or `LINE_NUMBER`.
      dtype: the name of its dtype.
      delimiter: the byte between two columns.
      first_number: the number of the first line.

    Raises:
      InvalidArgumentError: if a line has no such column, or not with that dtype.
    """
    if index == LINE_NUMBER:
        return np.arange(first_number, first_number + len(lines)).astype(dtype)
    fields = lines if index == WHOLE_LINE else _fields(lines, index, delimiter)
    if dtype == string.name:
        return string_array(fields)
    if np.dtype(dtype).kind not in "iuf":
        raise InvalidArgumentError(f"a file of text has no values of dtype {dtype}")
    try:
        return parse_numbers(fields, np.dtype(dtype))
    except MalformedNumberError as error:
        raise InvalidArgumentError(
            f"Field {text_of(fields[error.index])} in line {error.index} is not a valid {dtype}"
        ) from None


def _fields(lines: Sequence[bytes], index: int, delimiter: bytes) -> list[bytes]:
    rows = [line.split(delimiter, index + 1) for line in lines]
    for number, row in enumerate(rows):
        if len(row) <= index:
            raise InvalidArgumentError(
                f"Invalid number of columns in line {number} ({text_of(lines[number][:80])}): "
                f"expected at least {index + 1}, got {len(row)}"
            )
    return [row[index] for row in rows]
