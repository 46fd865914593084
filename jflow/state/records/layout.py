"""The byte layout of Examples in canonical form, which all common writers use.

In canonical form each field occurs once, numbers are packed, and there are no unknown fields. Each
byte then belongs to *values* or to *structure*: tags, lengths and keys. Examples of equal length
and structure have their values in the same places, so one of them has to be walked for all.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from jflow.base.values import Array
from jflow.state.records.example import BYTES, NO_LIST

_FIRST, _SECOND, _THIRD = (number << 3 | 2 for number in (1, 2, 3))
"""The tags of the first three fields of a message that are length-delimited."""

ByteRange = tuple[int, int]
"""Start and end."""

ValueSpans = tuple[int, Sequence[ByteRange]]
"""The kind of a list, and the spans of its strings, or one span of all its numbers if any."""


class _UnusualError(Exception):
    """An Example that is damaged or not in canonical form."""


@dataclass(frozen=True)
class ExampleLayout:
    """The layout of an Example.

    Attributes:
      value_spans: by key, the spans of the requested lists.
      free: the spans that are not structure: these values, and all of the other features.
    """

    value_spans: dict[bytes, ValueSpans]
    free: Sequence[ByteRange]


def layout_of(data: bytes, wanted: Collection[bytes]) -> ExampleLayout | None:
    """Returns the layout of an Example; None if it is damaged or not in canonical form."""
    value_spans: dict[bytes, ValueSpans] = {}
    free: list[ByteRange] = []
    size = len(data)
    try:
        at, end = _enter(data, 0, _FIRST)
        while at < end:
            entry, at = _enter(data, at, _FIRST)
            first, last = _enter(data, entry, _FIRST)
            start, stop = _enter(data, last, _SECOND)
            key = data[first:last]
            if stop != at or key in value_spans:
                return None
            if key in wanted:
                value_spans[key] = _list(data, start, stop)
                free += value_spans[key][1]
            else:
                free.append((start, stop))
    except (IndexError, _UnusualError):
        return None
    return ExampleLayout(value_spans, free) if at == end == size else None


def alike(bytes_: Array, layout: ExampleLayout) -> Array:
    """Returns bool[n], which of the Examples u8[n, length] have the layout of the first."""
    length = bytes_.shape[1]
    # Tags, lengths and keys are structure. Where they are equal, a walk over any of these Examples
    # would take the same way as over the first, and so find the same spans.
    is_structure = np.ones(length, bool)
    for start, end in layout.free:
        is_structure[start:end] = False
    structure = bytes_[:, np.flatnonzero(is_structure)]
    same: Array = (structure == structure[0]).all(axis=1)
    return same


def _enter(data: bytes, at: int, tag: int) -> ByteRange:
    """The span of the message at an index, which must have that tag."""
    if data[at] != tag:
        raise _UnusualError
    size, start = data[at + 1], at + 2
    if size > 127:
        size, start = _varint(data, at + 1)
    return start, start + size


def _varint(data: bytes, at: int) -> ByteRange:
    """The varint at an index, of at most five bytes, and the index after it."""
    value = 0
    for shift in range(0, 35, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise _UnusualError


def _list(data: bytes, at: int, end: int) -> ValueSpans:
    """The kind and spans of the only list of a Feature."""
    if at == end:
        return NO_LIST, ()
    tag = data[at]
    if tag not in (_FIRST, _SECOND, _THIRD):
        raise _UnusualError
    kind = tag >> 3
    at, last = _enter(data, at, tag)
    spans = []
    while at < last:
        spans.append(_enter(data, at, _FIRST))
        at = spans[-1][1]
    if at != last or last != end or (kind != BYTES and len(spans) > 1):
        raise _UnusualError
    return kind, spans
