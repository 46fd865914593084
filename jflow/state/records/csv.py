"""The decoder of records of comma-separated values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from jflow.base.values import Array, is_string_tensor, type_name
from jflow.errors import InvalidArgumentError
from jflow.state.records.numbers import MalformedNumberError, parse_numbers

_QUOTE = b'"'


class _OpenQuoteError(ValueError):
    pass


def decode_csv(
    records: Array,
    *record_defaults: Array,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    select_cols: Sequence[int] | None = None,
) -> Sequence[Array]:
    """Parses records of comma-separated values (RFC 4180) into columns.

    Args:
      records: string[...], one record each, without line end.
      record_defaults: for each column an array of its dtype that holds the value of an empty field,
        or is empty if such a field is an error.
      field_delim: delimiter of the fields, one byte.
      use_quote_delim: whether a field may be enclosed in double quotes, and then contain
        delimiters, line ends and doubled quotes.
      na_value: text of a field that counts as empty.
      select_cols: indices of the columns to return, strictly increasing; None for all.

    Returns:
      dtype[*records.shape] for each column.

    Raises:
      InvalidArgumentError: if a record is malformed or has another number of fields, or a field
        cannot be parsed; the message names them.
    """
    columns = _checked_columns(record_defaults, select_cols)
    layout = CsvLayout(columns, field_delim, use_quote_delim, na_value, exact=select_cols is None)
    try:
        arrays = columns_of(records.reshape(-1).tolist(), record_defaults, layout)
    except BadRecordError as error:
        record, field = f"record {error.index}", f"Field {error.column}"
        raise InvalidArgumentError(error.worded(record, field)) from None
    return [array.reshape(records.shape) for array in arrays]


class BadRecordError(Exception):
    """Raised for a record that cannot be parsed.

    Attributes:
      index: index of the record.
      column: index of the field; None if the error is not about one field.
      worded: function from the names of the record and the field to the message.
    """

    def __init__(
        self, index: int, worded: Callable[[str, str], str], column: int | None = None
    ) -> None:
        super().__init__(index, column)
        self.index, self.column, self.worded = index, column, worded


class CsvLayout:
    """The format of records: delimiter, quoting, and which fields are columns.

    Args:
      columns: indices of the columns, strictly increasing.
      field_delim, use_quote_delim, na_value: as for `decode_csv`.
      exact: whether a record with fields after the last column is an error.
      n_fields: number of fields of a record; None for the number of columns.

    Raises:
      InvalidArgumentError: if the delimiter is not one byte.
    """

    def __init__(
        self,
        columns: Sequence[int],
        field_delim: str = ",",
        use_quote_delim: bool = True,
        na_value: str = "",
        *,
        exact: bool = True,
        n_fields: int | None = None,
    ) -> None:
        self.columns = columns
        self.delimiter = field_delim.encode()
        if len(self.delimiter) != 1 or self.delimiter in b'"\r\n':
            raise InvalidArgumentError(f"field_delim must be one byte, got {field_delim!r}")
        self.is_quoted = use_quote_delim
        self.missing = (b"", na_value.encode())
        self._exact = exact
        self._n_fields = len(columns) if n_fields is None else n_fields
        if not exact:
            self._n_fields = max(columns, default=-1) + 1

    def fields(self, record: bytes, index: int) -> list[bytes]:
        """Returns those fields of a record that are columns.

        Raises:
          BadRecordError: if the record is malformed, or has another number of fields.
        """
        fields = self.all_fields(record, index)
        n_fields = len(fields)
        if n_fields < self._n_fields or (self._exact and n_fields > self._n_fields):
            n_fields_text = f"{self._n_fields}{'' if self._exact else ' or more'}"
            raise BadRecordError(
                index,
                lambda at, _: (
                    f"Expect {n_fields_text} fields but have {n_fields} in {at}: {record[:80]!r}"
                ),
            )
        if len(self.columns) == n_fields:
            return fields
        return [fields[column] for column in self.columns]

    def all_fields(self, record: bytes, index: int) -> list[bytes]:
        """Returns all fields of a record. Raises BadRecordError if it is malformed."""
        try:
            return _split_fields(record, self.delimiter, self.is_quoted)
        except ValueError as error:
            reason = str(error)
            raise BadRecordError(index, lambda at, _: f"{at}: {reason}: {record[:80]!r}") from None

    def is_open(self, record: bytes) -> bool:
        """Whether a record ends inside a quoted field, which continues in the next line."""
        if not self.is_quoted or record.count(_QUOTE) % 2 == 0:
            return False
        try:
            _split_quoted(record, self.delimiter)
        except _OpenQuoteError:
            return True
        except ValueError:
            pass
        return False


def columns_of(
    records: Sequence[bytes], defaults: Sequence[Array], layout: CsvLayout
) -> Sequence[Array]:
    """Parses n records; returns dtype[n] for each column.

    Args:
      records: the records.
      defaults: for each column an array of its dtype that holds the value of an empty field, or is
        empty if such a field is an error.
      layout: the layout of the records.

    Raises:
      BadRecordError: if a record cannot be parsed; not necessarily of the first such record.
    """
    rows = [layout.fields(record, i) for i, record in enumerate(records)]
    by_column = zip(*rows, strict=True) if rows else [()] * len(layout.columns)
    return [
        _parse_column(texts, default, layout.missing, i)
        for i, texts, default in zip(layout.columns, by_column, defaults, strict=True)
    ]


def _checked_columns(defaults: Sequence[Array], selected: Sequence[int] | None) -> Sequence[int]:
    """Checks the arguments and returns the indices of the columns."""
    for i, default in enumerate(defaults):
        if default.size > 1:
            raise InvalidArgumentError(
                f"There should only be 1 default per field but field {i} has {default.size}"
            )
    if selected is None:
        return range(len(defaults))
    if len(selected) != len(defaults):
        raise InvalidArgumentError(
            f"select_cols has {len(selected)} columns and record_defaults has {len(defaults)}"
        )
    is_increasing = all(a < b for a, b in pairwise(selected))
    if not is_increasing or (selected and selected[0] < 0):
        raise InvalidArgumentError(f"select_cols must be strictly increasing, got {selected}")
    return selected


def _split_fields(record: bytes, delimiter: bytes, is_quoted: bool) -> list[bytes]:
    """Splits a record into fields. Raises ValueError if it is malformed."""
    if not record:
        return []
    if is_quoted and _QUOTE in record:
        return _split_quoted(record, delimiter)
    if b"\n" in record or b"\r" in record:
        raise ValueError("Unquoted fields cannot have quotes/CRLFs inside")
    return record.split(delimiter)


def _split_quoted(record: bytes, delimiter: bytes) -> list[bytes]:
    fields, at = [], 0
    while True:
        if record.startswith(_QUOTE, at):
            field, at = _parse_quoted(record, at + 1)
            if at < len(record) and not record.startswith(delimiter, at):
                raise ValueError("Quote inside a string has to be escaped by another quote")
        else:
            end = record.find(delimiter, at)
            end = len(record) if end < 0 else end
            field, at = record[at:end], end
            if any(mark in field for mark in (_QUOTE, b"\r", b"\n")):
                raise ValueError("Unquoted fields cannot have quotes/CRLFs inside")
        fields.append(field)
        if at == len(record):
            return fields
        at += 1


def _parse_quoted(record: bytes, at: int) -> tuple[bytes, int]:
    """Returns the quoted field that starts at an index, and the index after its closing quote."""
    start = at
    while (at := record.find(_QUOTE, at)) >= 0:
        if not record.startswith(_QUOTE, at + 1):
            return record[start:at].replace(b'""', _QUOTE), at + 1
        at += 2
    raise _OpenQuoteError("Quoted field has to end with quote followed by delim or end")


def _parse_column(
    texts: Sequence[bytes], default: Array, missing: tuple[bytes, bytes], index: int
) -> Array:
    """Parses the values of one column; `index` is for errors."""
    is_missing = np.zeros(len(texts), bool)
    if any(mark in texts for mark in missing):
        is_missing[:] = [text in missing for text in texts]
        if not default.size:
            raise BadRecordError(
                int(is_missing.argmax()),
                lambda at, field: f"{field} is required but missing in {at}!",
                index,
            )
    result = np.empty(len(texts), default.dtype)
    here = np.flatnonzero(~is_missing)
    if len(here) < len(texts):
        result[is_missing] = default.item()
        present: Sequence[bytes] = [texts[i] for i in here.tolist()]
    else:
        present = texts
    try:
        result[here] = (
            present if is_string_tensor(default) else parse_numbers(present, default.dtype)
        )
    except MalformedNumberError as error:
        i = int(here[error.index])
        text = texts[i][:80].decode(errors="backslashreplace")
        raise BadRecordError(
            i,
            lambda at, field: f"{field} in {at} is not a valid {type_name(default)}: {text}",
            index,
        ) from None
    return result
