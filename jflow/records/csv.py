"""Lines of comma-separated values become columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from jflow.errors import InvalidArgumentError
from jflow.graph.host import Array, is_host, type_name
from jflow.records.numbers import NotANumberError, parse_numbers

_QUOTE = b'"'


def decode_csv(
    records: Array,
    *record_defaults: Array,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    select_cols: Sequence[int] | None = None,
) -> Sequence[Array]:
    """The columns of records in the format of RFC 4180.

    Args:
      records: string[...], a record each, without the end of its line.
      record_defaults: for each column an array of its dtype: of the value that stands for a field
        that is empty or `na_value`, or of no value where such a field is an error.
      field_delim: what is between fields, one byte.
      use_quote_delim: whether a field may be in double quotes, with delimiters, ends of lines and
        doubled quotes in it.
      na_value: another text that means that there is no value.
      select_cols: indices of the columns to give, strictly increasing, where it is not all.

    Returns:
      An array of the records' shape for each column.

    Raises:
      InvalidArgumentError: if a record is no such record, or has another number of fields, or a
        field is no value of its dtype; the message says which.
    """
    columns = _checked_columns(record_defaults, select_cols)
    delimiter = field_delim.encode()
    if len(delimiter) != 1 or delimiter in b'"\r\n':
        raise InvalidArgumentError(f"field_delim must be one byte, got {field_delim!r}")
    rows = []
    for i, record in enumerate(records.reshape(-1).tolist()):
        try:
            fields = _fields(record, delimiter, use_quote_delim)
        except ValueError as error:
            raise InvalidArgumentError(f"record {i}: {error}: {record[:80]!r}") from None
        if select_cols is not None and len(fields) > columns[-1]:
            fields = [fields[column] for column in columns]
        if len(fields) != len(columns):
            raise InvalidArgumentError(
                f"Expect {len(columns)} fields but have {len(fields)} in record {i}: "
                f"{record[:80]!r}"
            )
        rows.append(fields)
    missing = (b"", na_value.encode())
    by_column = zip(*rows, strict=True) if rows else [()] * len(columns)
    return [
        _column(texts, default, missing, i).reshape(records.shape)
        for i, texts, default in zip(columns, by_column, record_defaults, strict=True)
    ]


def _checked_columns(defaults: Sequence[Array], selected: Sequence[int] | None) -> Sequence[int]:
    """Indices of the columns that are wanted."""
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


def _fields(record: bytes, delimiter: bytes, is_quoted: bool) -> list[bytes]:
    """The fields of a record. Raises ValueError if it is none."""
    if not record:
        return []
    if is_quoted and _QUOTE in record:
        return _quoted_fields(record, delimiter)
    if b"\n" in record or b"\r" in record:
        raise ValueError("Unquoted fields cannot have quotes/CRLFs inside")
    return record.split(delimiter)


def _quoted_fields(record: bytes, delimiter: bytes) -> list[bytes]:
    fields, at = [], 0
    while True:
        if record.startswith(_QUOTE, at):
            field, at = _quoted(record, at + 1)
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


def _quoted(record: bytes, at: int) -> tuple[bytes, int]:
    """The field that starts behind a quote, and the index behind its last quote."""
    start = at
    while (at := record.find(_QUOTE, at)) >= 0:
        if not record.startswith(_QUOTE, at + 1):
            return record[start:at].replace(b'""', _QUOTE), at + 1
        at += 2
    raise ValueError("Quoted field has to end with quote followed by delim or end")


def _column(
    texts: Sequence[bytes], default: Array, missing: tuple[bytes, bytes], index: int
) -> Array:
    """The values of a column, whose index errors name."""
    is_missing = np.zeros(len(texts), bool)
    if any(mark in texts for mark in missing):
        is_missing[:] = [text in missing for text in texts]
        if not default.size:
            raise InvalidArgumentError(
                f"Field {index} is required but missing in record {is_missing.argmax()}!"
            )
    result = np.empty(len(texts), default.dtype)
    here = np.flatnonzero(~is_missing)
    if len(here) < len(texts):
        result[is_missing] = default.item()
        present: Sequence[bytes] = [texts[i] for i in here.tolist()]
    else:
        present = texts
    try:
        result[here] = present if is_host(default) else parse_numbers(present, default.dtype)
    except NotANumberError as error:
        i = int(here[error.index])
        raise InvalidArgumentError(
            f"Field {index} in record {i} is not a valid {type_name(default)}: "
            f"{texts[i][:80].decode(errors='backslashreplace')}"
        ) from None
    return result
