"""Where the values of an Example lie that is written as all writers do it.

Such an Example says everything once and without gaps, with its numbers packed. Its bytes are then
*values* or *structure*: tags, lengths and keys. Examples of one structure differ only in values.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from jflow.records.example import BYTES, NO_LIST
from jflow.values import Array

_FIRST, _SECOND, _THIRD = (number << 3 | 2 for number in (1, 2, 3))
"""Tags of the fields of a message that are messages or bytes themselves."""

Span = tuple[int, int]
"""Start and end."""

ValueSpans = tuple[int, Sequence[Span]]
"""Kind of a list, and where its strings are or all its numbers; an empty list has no span."""


class _UnusualError(Exception):
    """An Example that is damaged, or valid but not written as all writers do it."""


@dataclass(frozen=True)
class ExampleLayout:
    """Where values lie in an Example.

    Attributes:
      value_spans: by key those of the lists that are wanted.
      free: all that is no structure: these values, and the features that are not requested.
    """

    value_spans: dict[bytes, ValueSpans]
    free: Sequence[Span]


def layout_of(data: bytes, wanted: Collection[bytes]) -> ExampleLayout | None:
    """Where the values of an Example lie; None if it is written in another way, or damaged."""
    value_spans: dict[bytes, ValueSpans] = {}
    free: list[Span] = []
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


def alike(examples: Sequence[bytes], layout: ExampleLayout) -> Array:
    """bool[n], which Examples have this layout, that of the first; all have the same length."""
    length = len(examples[0])
    bytes_ = np.frombuffer(b"".join(examples), np.uint8).reshape(-1, length)
    is_structure = np.ones(length, bool)
    for start, end in layout.free:
        is_structure[start:end] = False
    structure = bytes_[:, np.flatnonzero(is_structure)]
    same: Array = (structure == structure[0]).all(axis=1)
    return same


def _enter(data: bytes, at: int, tag: int) -> Span:
    """Start and end of the message at an index, which has to have that tag."""
    if data[at] != tag:
        raise _UnusualError
    size, start = data[at + 1], at + 2
    if size > 127:
        size, start = _varint(data, at + 1)
    return start, start + size


def _varint(data: bytes, at: int) -> Span:
    """The integer at an index, of at most five bytes as sizes are, and the index behind it."""
    value = 0
    for shift in range(0, 35, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise _UnusualError


def _list(data: bytes, at: int, end: int) -> ValueSpans:
    """Kind of a Feature's only list, and where its strings are or all its numbers."""
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
