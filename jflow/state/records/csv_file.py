"""The reader of CSV files as blocks of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jflow.base.values import Array
from jflow.errors import InvalidArgumentError
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.records.csv import BadRecordError, CsvLayout, columns_of
from jflow.state.records.reader import count_of, text_of
from jflow.state.records.text import TextLineRecords

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAX_RECORD_BYTES = 16 << 20
_TEXT = np.array(b"", object)


class CsvBlocks:
    """Reads the rows of a CSV file in blocks of arrays by column name.

    The format is that of RFC 4180: fields in double quotes may contain delimiters and line ends.
    Empty lines are skipped. The rows before one that cannot be parsed are returned first; the next
    call and all later ones raise the error.

    Args:
      name: name of the file.
      roots: the directories that may be read.
      position: a former `position`, to continue there; None for the start.
      column_names: names of all columns in order; None to read them from the first line.
      columns: names of the columns to read; None for all.
      record_defaults: by column name, or in the order of the columns to read: an array of the
        column's dtype that holds the value of an empty field, or is empty if such a field is an
        error. Other columns are strings, "" if empty.
      skip_header_lines: number of lines to skip at the start.
      block_rows: maximum number of rows in a block.
      **fields: `field_delim`, `use_quote_delim` and `na_value`, as for `decode_csv`.

    Attributes:
      columns: names of the columns that are read, in the order of the file.

    Raises:
      InvalidArgumentError: if the first line does not hold column names, or a requested column is
        missing.
    """

    def __init__(
        self,
        name: bytes,
        roots: AllowedDirectories,
        position: Any = None,
        *,
        column_names: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        record_defaults: Mapping[str, Array] | Sequence[Array],
        skip_header_lines: int = 0,
        block_rows: int = 256,
        **fields: Any,
    ) -> None:
        self._name, self._roots, self._header_lines = name, roots, skip_header_lines
        self._block_rows = count_of(block_rows, name, "block_rows", 1)
        self._layout = CsvLayout((), **fields, exact=False)
        self._lines = self._open(None)
        try:
            names = self._header() if column_names is None else [*column_names]
            defaults = self._defaults_by_name(
                record_defaults, names if columns is None else columns
            )
            indices = self._indices(names, [*(columns or ()), *defaults])
        except BaseException:
            self.close()
            raise
        wanted_indices = (
            range(len(names)) if columns is None else sorted(indices[each] for each in columns)
        )
        self.columns = [names[index] for index in wanted_indices]
        self._defaults = [defaults.get(each, _TEXT) for each in self.columns]
        self._layout = CsvLayout(wanted_indices, **fields, n_fields=len(names))
        if position is not None:
            self.close()
            self._lines = self._open(position)

    @property
    def position(self) -> list[int]:
        """The offset of the next row in bytes, and the number of lines before it."""
        return self._lines.position

    def close(self) -> None:
        """Closes the file."""
        self._lines.close()

    def read(self) -> dict[str, Array] | None:
        """Returns the columns of the next rows, at least one; None at the end.

        Raises:
          InvalidArgumentError: if the first of them cannot be parsed; the message names the file,
            the line and the column.
        """
        start = self.position
        lines, records = self._next_records(self._block_rows)
        while records:
            try:
                arrays = columns_of(records, self._defaults, self._layout)
                return dict(zip(self.columns, arrays, strict=True))
            except BadRecordError as error:
                # Rows before the bad one are returned first; it may not be the first bad one.
                index = error.index
                self._go_to(start, lines[index])
                if index == 0:
                    raise self._error(lines[0], error) from None
                records = records[:index]
        return None

    def _open(self, position: Any) -> TextLineRecords:
        return TextLineRecords(
            self._name, self._roots, position, skip_header_lines=self._header_lines
        )

    def _go_to(self, start: list[int], line: int) -> None:
        """Reopens the file at a position and skips to a line at or after it."""
        self.close()
        self._lines = self._open(start)
        if line - 1 > start[1]:
            self._lines.read_up_to(line - 1 - start[1])

    def _next_records(self, n: int) -> tuple[list[int], list[bytes]]:
        """Reads `n` lines or more; returns the first line numbers of their records, and these."""
        numbers: list[int] = []
        records: list[bytes] = []
        while not records:
            number = self._lines.position[1]
            _, lines = self._lines.read_up_to(n)
            if not lines:
                break
            if number == 0:
                lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
            at = 0
            while at < len(lines):
                record, n_lines = lines[at], 1
                if self._layout.is_open(record):
                    record, n_lines = self._join_lines(lines, at)
                if record:
                    numbers.append(number + at + 1)
                    records.append(record)
                at += n_lines
        return numbers, records

    def _join_lines(self, lines: list[bytes], at: int) -> tuple[bytes, int]:
        """Joins the lines of a record that begins at `at`; returns it and its number of lines.

        Further lines are read into `lines`. A record without an end is returned as far as it was
        read, and its decoding fails.
        """
        end, quotes, size = at, 0, 0
        while size <= _MAX_RECORD_BYTES:
            if end == len(lines):
                lines += self._lines.read_up_to(1)[1]
            if end == len(lines):
                break
            quotes, size, end = quotes + lines[end].count(b'"'), size + len(lines[end]), end + 1
            if quotes % 2 == 0:
                break
        return b"\n".join(lines[at:end]), end - at

    def _header(self) -> list[str]:
        numbers, records = self._next_records(1)
        if not records:
            raise InvalidArgumentError(
                f"{text_of(self._name)} is empty; its first line must name the columns, or pass "
                "column_names"
            )
        try:
            fields = self._layout.all_fields(records[0], 0)
            return [field.decode() for field in fields]
        except BadRecordError as error:
            raise self._error(numbers[0], error) from None
        except UnicodeDecodeError as error:
            raise InvalidArgumentError(
                f"line {numbers[0]} of {text_of(self._name)}, which names the columns, is not "
                f"UTF-8: {records[0][:80]!r}"
            ) from error

    def _defaults_by_name(
        self, defaults: Mapping[str, Array] | Sequence[Array], columns: Sequence[str]
    ) -> Mapping[str, Array]:
        if isinstance(defaults, Mapping):
            return defaults
        if len(defaults) != len(columns):
            raise InvalidArgumentError(
                f"record_defaults has {len(defaults)} columns, but {len(columns)} are to be read "
                f"from {text_of(self._name)}: {[*columns]}"
            )
        return dict(zip(columns, defaults, strict=True))

    def _indices(self, names: Sequence[str], wanted: Sequence[str]) -> dict[str, int]:
        indices = {each: index for index, each in enumerate(names)}
        if len(indices) < len(names):
            raise InvalidArgumentError(
                f"{text_of(self._name)} has several columns of one name: {[*names]}; pass "
                "column_names that differ, and skip_header_lines=1"
            )
        for each in wanted:
            if each not in indices:
                raise InvalidArgumentError(
                    f"{text_of(self._name)} has no column {each!r}; its columns are {[*names]}"
                )
        return indices

    def _error(self, line: int, error: BadRecordError) -> InvalidArgumentError:
        field = ""
        if error.column is not None:
            field = f"Column {self.columns[self._layout.columns.index(error.column)]!r}"
        where = f"line {line} of {text_of(self._name)}"
        return InvalidArgumentError(error.worded(where, field))
