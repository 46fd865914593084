"""Operations on strings, elementwise unless they say otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from jflow.errors import InvalidArgumentError
from jflow.records.numbers import MalformedNumberError, parse_numbers
from jflow.values import Array, is_host

_UNITS = ("BYTE", "UTF8_CHAR")


def string_split(
    source: Array, *, delimiter: str = " ", skip_empty: bool = True
) -> tuple[Array, Array, Array]:
    """The parts of strings, as a sparse matrix with a row for each string.

    Args:
      source: string[n].
      delimiter: each byte of it separates; "" makes each byte a part.
      skip_empty: whether parts without a byte are left out.

    Returns:
      Indices i64[m, 2], the parts string[m], and the shape i64[2].
    """
    if source.ndim != 1:
        raise InvalidArgumentError(f"expected string[n], got string{list(source.shape)}")
    split = _splitter(delimiter.encode())
    rows = [
        [part for part in split(item) if part or not skip_empty] if item else []
        for item in source.tolist()
    ]
    counts = np.array([len(row) for row in rows], np.int64)
    row_of = np.repeat(np.arange(len(rows)), counts)
    place = np.arange(len(row_of)) - np.repeat(np.cumsum(counts) - counts, counts)
    values = _strings(part for row in rows for part in row)
    shape = np.array([len(rows), counts.max(initial=0)], np.int64)
    return np.stack((row_of, place), axis=1), values, shape


def string_to_number(strings: Array, *, out_type: str = "float32") -> tuple[Array]:
    """out_type[...], the numbers that the strings say in decimal notation.

    Raises:
      InvalidArgumentError: at the first string that says none.
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
    """string[...], the strings of all inputs one after the other; scalars go with each.

    Raises:
      InvalidArgumentError: if the shapes differ.
    """
    shapes = [array.shape for array in inputs if array.ndim]
    if any(shape != shapes[0] for shape in shapes):
        raise InvalidArgumentError(f"Input shapes do not match: {[list(x) for x in shapes]}")
    shape = shapes[0] if shapes else ()
    columns = [np.broadcast_to(array, shape).reshape(-1).tolist() for array in inputs]
    join = separator.encode().join
    return (_strings(map(join, zip(*columns, strict=True))).reshape(shape),)


def string_strip(strings: Array) -> tuple[Array]:
    """string[...], without the white space at both ends."""
    return (_strings(item.strip() for item in strings.reshape(-1)).reshape(strings.shape),)


def substr(strings: Array, pos: Array, length: Array, *, unit: str = "BYTE") -> tuple[Array]:
    """string[...], `length` units from `pos` on, or what there is of them.

    Args:
      strings: string[...].
      pos: integers that broadcast against the strings; negative ones count from the end.
      length: integers of the shape of `pos`.
      unit: "BYTE" or "UTF8_CHAR".

    Raises:
      InvalidArgumentError: if a string has no such position, or shapes do not fit.
    """
    if unit not in _UNITS:
        raise InvalidArgumentError(f"expected one of {_UNITS} as unit, got {unit!r}")
    if pos.shape != length.shape:
        raise InvalidArgumentError(
            f"pos and len should have the same shape, got {list(pos.shape)}, {list(length.shape)}"
        )
    try:
        strings, pos, length = np.broadcast_arrays(strings, pos, length)
    except ValueError as error:
        raise InvalidArgumentError(f"pos and the strings do not fit: {error}") from None
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
    return (_strings(parts).reshape(strings.shape),)


def as_string(
    values: Array,
    *,
    precision: int = -1,
    scientific: bool = False,
    shortest: bool = False,
    width: int = -1,
    fill: str = "",
) -> tuple[Array]:
    """string[...], the values as C's printf writes them.

    Args:
      values: numbers, booleans or strings.
      precision: digits after the point of floats, -1 for six.
      scientific: whether floats have an exponent.
      shortest: whether floats are written in the shorter of both notations, without zeros.
      width: the least number of bytes, -1 for none.
      fill: " " or "0" for what fills up to the width, "-" to fill at the right, "+" for signs.

    Raises:
      InvalidArgumentError: if the arguments contradict each other or the dtype.
    """
    if is_host(values):
        return (values,)
    kind = values.dtype.kind
    if scientific and shortest:
        raise InvalidArgumentError("Cannot select both scientific and shortest notation")
    if kind not in "fc" and (precision >= 0 or scientific or shortest):
        raise InvalidArgumentError(f"{values.dtype} has no precision and no notation")
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
    return (_strings(text.encode() for text in texts).reshape(values.shape),)


def _splitter(delimiter: bytes) -> Callable[[bytes], Iterable[bytes]]:
    """How strings are split where each byte of the delimiter separates."""
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
    # Bytes that are no UTF-8 stay what they are.
    text = item.decode(errors="surrogateescape")
    if not -len(text) <= start <= len(text):
        return None
    begin = start if start >= 0 else len(text) + start
    part = text[begin : begin + size] if size >= 0 else text[begin:]
    return part.encode(errors="surrogateescape")


def _strings(items: Iterable[bytes]) -> Array:
    """string[n]"""
    found = list(items)
    array = np.empty(len(found), object)
    array[:] = found
    return array
