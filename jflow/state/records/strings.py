"""Operations on strings, elementwise unless stated otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from jflow.base.values import Array, is_string_tensor
from jflow.errors import InvalidArgumentError
from jflow.state.records.arrays import sparse_rows
from jflow.state.records.numbers import MalformedNumberError, parse_numbers

_UNITS = ("BYTE", "UTF8_CHAR")


def string_split(
    source: Array, *, delimiter: str = " ", skip_empty: bool = True
) -> tuple[Array, Array, Array]:
    """Splits strings into the rows of a sparse matrix.

    Args:
      source: string[n].
      delimiter: delimiters, one per byte; "" splits into single bytes.
      skip_empty: whether to leave out empty parts.

    Returns:
      Indices i64[m, 2], parts string[m], and shape i64[2].
    """
    if source.ndim != 1:
        raise InvalidArgumentError(f"expected string[n], got strings of shape {source.shape}")
    split = _splitter(delimiter.encode())
    rows = [
        [part for part in split(item) if part or not skip_empty] if item else []
        for item in source.tolist()
    ]
    counts = np.array([len(row) for row in rows], np.int64)
    indices, shape = sparse_rows(counts)
    return indices, string_array(part for row in rows for part in row), shape


def string_to_number(strings: Array, *, out_type: str = "float32") -> tuple[Array]:
    """Parses strings as numbers in decimal notation, out_type[...].

    Raises:
      InvalidArgumentError: if a string is not a number of the dtype; the message names the first.
    """
    dtype = np.dtype(out_type)
    if dtype.kind not in "iuf":
        raise InvalidArgumentError(f"expected floats or integers as out_type, got {out_type}")
    texts = strings.reshape(-1).tolist()
    try:
        return (parse_numbers(texts, dtype).reshape(strings.shape),)
    except MalformedNumberError as error:
        raise InvalidArgumentError(
            f"element {error.index} is not a valid {out_type}: {texts[error.index][:80]!r}"
        ) from None


def string_join(*inputs: Array, separator: str = "") -> tuple[Array]:
    """Joins the strings of all inputs elementwise, string[...]; scalars broadcast.

    Raises:
      InvalidArgumentError: if shapes differ.
    """
    shapes = [array.shape for array in inputs if array.ndim]
    if any(shape != shapes[0] for shape in shapes):
        raise InvalidArgumentError(f"Input shapes do not match: {shapes}")
    shape = shapes[0] if shapes else ()
    columns = [np.broadcast_to(array, shape).reshape(-1).tolist() for array in inputs]
    join = separator.encode().join
    return (string_array(map(join, zip(*columns, strict=True))).reshape(shape),)


def string_strip(strings: Array) -> tuple[Array]:
    """Removes white space from both ends of strings, string[...]."""
    return (string_array(item.strip() for item in strings.reshape(-1)).reshape(strings.shape),)


def substr(strings: Array, pos: Array, length: Array, *, unit: str = "BYTE") -> tuple[Array]:
    """Returns substrings of up to `length` units from `pos` on, string[...].

    Args:
      strings: string[...].
      pos: integers that broadcast against the strings; negative ones count from the end.
      length: integers of the shape of `pos`; negative ones extend to the end.
      unit: "BYTE" or "UTF8_CHAR".

    Raises:
      InvalidArgumentError: if a position is out of range, or shapes do not broadcast.
    """
    if unit not in _UNITS:
        raise InvalidArgumentError(f"expected one of {_UNITS} as unit, got {unit!r}")
    if pos.shape != length.shape:
        raise InvalidArgumentError(
            f"pos and len should have the same shape, got {pos.shape} and {length.shape}"
        )
    try:
        strings, pos, length = np.broadcast_arrays(strings, pos, length)
    except ValueError as error:
        raise InvalidArgumentError(f"pos does not broadcast against the strings: {error}") from None
    cut = _cut_bytes if unit == "BYTE" else _cut_characters
    flat = (array.reshape(-1).tolist() for array in (strings, pos, length))
    parts = []
    for i, (item, start, size) in enumerate(zip(*flat, strict=True)):
        part = cut(item, start, size)
        if part is None:
            raise InvalidArgumentError(
                f"pos {start} out of range for string {item[:80]!r} at index {i}"
            )
        parts.append(part)
    return (string_array(parts).reshape(strings.shape),)


def as_string(
    values: Array,
    *,
    precision: int = -1,
    scientific: bool = False,
    shortest: bool = False,
    width: int = -1,
    fill: str = "",
) -> tuple[Array]:
    """Formats values as text, string[...], like C's printf.

    Args:
      values: numbers, booleans or strings.
      precision: number of digits of floats after the point; -1 for six.
      scientific: whether floats have an exponent.
      shortest: whether floats are in the shorter of both notations, without trailing zeros.
      width: minimum number of bytes; -1 for none.
      fill: " " or "0" to pad to the width, "-" to pad at the right, "+" for signs.

    Raises:
      InvalidArgumentError: if the arguments contradict each other or the dtype.
    """
    if is_string_tensor(values):
        return (values,)
    kind = values.dtype.kind
    if scientific and shortest:
        raise InvalidArgumentError("Cannot select both scientific and shortest notation")
    if kind not in "fc" and (precision >= 0 or scientific or shortest):
        raise InvalidArgumentError(
            f"precision, scientific and shortest are not supported for {values.dtype}"
        )
    if fill not in ("", " ", "0", "+", "-"):
        raise InvalidArgumentError(f"Fill argument not supported: {fill!r}")
    notation = "s" if kind == "b" else "d" if kind in "iu" else "f"
    notation = "e" if scientific else "g" if shortest else notation
    point = f".{precision}" if precision >= 0 else ""
    template = f"%{fill}{width if width >= 0 else ''}{point}{notation}"
    flat = values.reshape(-1).tolist()
    if kind == "c":
        texts = [f"({template % item.real},{template % item.imag})" for item in flat]
    else:
        texts = [template % (str(x).lower() if kind == "b" else x) for x in flat]
    return (string_array(text.encode() for text in texts).reshape(values.shape),)


def _splitter(delimiter: bytes) -> Callable[[bytes], Iterable[bytes]]:
    """Returns a function that splits a string at each byte of the delimiter."""
    if not delimiter:
        return lambda item: [item[i : i + 1] for i in range(len(item))]
    first, others = delimiter[:1], delimiter[1:]
    if not others:
        return lambda item: item.split(first)
    table = bytes.maketrans(others, first * len(others))
    return lambda item: item.translate(table).split(first)


def _cut_bytes(item: bytes, start: int, size: int) -> bytes | None:
    if not -len(item) <= start <= len(item):
        return None
    begin = start if start >= 0 else len(item) + start
    return item[begin : begin + size] if size >= 0 else item[begin:]


def _cut_characters(item: bytes, start: int, size: int) -> bytes | None:
    # Bytes that are not UTF-8 are kept.
    text = item.decode(errors="surrogateescape")
    if not -len(text) <= start <= len(text):
        return None
    begin = start if start >= 0 else len(text) + start
    part = text[begin : begin + size] if size >= 0 else text[begin:]
    return part.encode(errors="surrogateescape")


def string_array(items: Iterable[bytes]) -> Array:
    """Returns the items as an array, string[n]."""
    texts = list(items)
    array = np.empty(len(texts), object)
    array[:] = texts
    return array
