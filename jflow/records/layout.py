"""Where the values of an Example lie that is written as all writers do it.

Such an Example says everything once and without gaps, with its numbers packed. Its bytes are then
*values* or *structure*: tags, lengths and keys. Examples of one structure differ only in values.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from jflow.records.example import BYTES, FLOATS, INTEGERS, NO_LIST, MalformedError, varint
from jflow.values import Array

_FIRST, _SECOND = BYTES, FLOATS  # which are the tags of a message's first and second field

Span = tuple[int, int]
"""Start and end."""

ValueSpans = tuple[int, Sequence[Span]]
"""Kind of a list, and where its strings are or all its numbers; an empty list has no span."""


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
    except (IndexError, MalformedError):
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
        raise MalformedError
    size = data[at + 1]
    start = at + 2
    if size > 127:
        size, start = varint(data, at + 1)
    return start, start + size


def _list(data: bytes, at: int, end: int) -> ValueSpans:
    """Kind of a Feature's only list, and where its strings are or all its numbers."""
    if at == end:
        return NO_LIST, ()
    kind = data[at]
    if kind not in (BYTES, FLOATS, INTEGERS):
        raise MalformedError
    at, last = _enter(data, at, kind)
    spans = []
    while at < last:
        spans.append(_enter(data, at, _FIRST))
        at = spans[-1][1]
    if at != last or last != end or (kind != BYTES and len(spans) > 1):
        raise MalformedError
    return kind, spans
