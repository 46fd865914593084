"""Finds the lists of features in a batch of Examples.

Examples of equal layout are read together, which is several times faster; the others are parsed
one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jflow.base.values import Array
from jflow.errors import InvalidArgumentError
from jflow.state.records import example
from jflow.state.records.example import BYTES, NO_LIST, MalformedError

_FIRST, _SECOND, _THIRD = (number << 3 | 2 for number in (1, 2, 3))
"""The tags of the first three fields of a message that are length-delimited."""

ByteRange = tuple[int, int]
"""The start and the end of a range of bytes."""

ValueSpans = tuple[int, Sequence[ByteRange]]
"""The kind of a list, and the spans of its strings, or one span of all its numbers if any."""


class _UnusualError(Exception):
    """Raised for an Example that is damaged or not in canonical form."""


@dataclass(frozen=True)
class ExampleLayout:
    """The positions of the requested lists in an Example, and in others of equal structure.

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
        at, end = _message_span(data, 0, _FIRST)
        while at < end:
            entry, at = _message_span(data, at, _FIRST)
            first, last = _message_span(data, entry, _FIRST)
            start, stop = _message_span(data, last, _SECOND)
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
    """Returns bool[n]: which of the Examples u8[n, length] have the layout of the first."""
    length = bytes_.shape[1]
    # Tags, lengths and keys are structure. Where they are equal, a walk over any of these Examples
    # would take the same way as over the first, and so find the same spans.
    is_structure = np.ones(length, bool)
    for start, end in layout.free:
        is_structure[start:end] = False
    structure = bytes_[:, np.flatnonzero(is_structure)]
    same: Array = (structure == structure[0]).all(axis=1)
    return same


def _message_span(data: bytes, at: int, tag: int) -> ByteRange:
    """Returns the span of the message at an index, which must have this tag."""
    if data[at] != tag:
        raise _UnusualError
    size, start = data[at + 1], at + 2
    if size > 127:
        size, start = _varint(data, at + 1)
    return start, start + size


def _varint(data: bytes, at: int) -> ByteRange:
    """Returns the varint of at most five bytes at an index, and the index after it."""
    value = 0
    for shift in range(0, 35, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise _UnusualError


def _list(data: bytes, at: int, end: int) -> ValueSpans:
    """Returns the kind and spans of the only list in a Feature."""
    if at == end:
        return NO_LIST, ()
    tag = data[at]
    if tag not in (_FIRST, _SECOND, _THIRD):
        raise _UnusualError
    kind = tag >> 3
    at, last = _message_span(data, at, tag)
    spans = []
    while at < last:
        spans.append(_message_span(data, at, _FIRST))
        at = spans[-1][1]
    if at != last or last != end or (kind != BYTES and len(spans) > 1):
        raise _UnusualError
    return kind, spans


_MIN_ALIKE = 4
"""Fewer Examples are parsed faster one by one."""


@dataclass
class Lists:
    """The lists of one key in all Examples of a batch.

    Kinds and contents are separate, because tuples of both would burden the garbage collector.

    Attributes:
      kinds: u8[batch], kind of each list.
      contents: strings or packed numbers of each list.
      together: u8[batch, n], packed numbers that take as many bytes in each Example and are not in
        `contents`; None if there are none.
    """

    kinds: Array
    contents: list[Any]
    together: Array | None = None


def lists_of_batch(examples: Sequence[bytes], keys: Sequence[str]) -> list[Lists]:
    """Returns the lists of each key in a batch of Examples.

    Raises:
      InvalidArgumentError: if an Example or one of these lists is malformed; the message says
        which.
    """
    keys_in_bytes = [key.encode() for key in keys]
    rest: list[int] = []
    n = len(examples)
    all_lists = [Lists(np.full(n, NO_LIST, np.uint8), [b""] * n) for _ in keys]
    for rows in _group_rows_by_length(examples):
        rest += _find_alike(examples, rows, keys_in_bytes, all_lists)
    for i in sorted(rest):
        try:
            features = example.find_lists(examples[i], keys)
        except MalformedError as error:
            raise _example_error(i, examples[i], error.key) from None
        for lists, key in zip(all_lists, keys, strict=True):
            lists.kinds[i], lists.contents[i] = features.get(key, (NO_LIST, b""))
    return all_lists


def example_at(index: int) -> str:
    """Returns how messages name the Example at an index of the batch."""
    return f"Example {index}"


def feature_error(key: str, where: str, reason: str) -> InvalidArgumentError:
    """Returns the error for a feature of an Example, such as "Example 3"."""
    return InvalidArgumentError(f"Key: {key}.  Can't parse serialized {where}: {reason}")


def _example_error(index: int, data: bytes, key: str | None) -> InvalidArgumentError:
    if key is not None:
        return feature_error(key, example_at(index), "its list is damaged")
    return InvalidArgumentError(
        f"Can't parse serialized Example {index}: its {len(data)} bytes are not a "
        f"tf.train.Example: {data[:40]!r}"
    )


def _group_rows_by_length(examples: Sequence[bytes]) -> Iterable[Sequence[int]]:
    """Groups the rows of Examples by the length of the Example."""
    if len(set(map(len, examples))) == 1:
        return [range(len(examples))]
    rows: dict[int, list[int]] = {}
    for i, data in enumerate(examples):
        rows.setdefault(len(data), []).append(i)
    return rows.values()


def _find_alike(
    examples: Sequence[bytes], rows: Sequence[int], keys: Sequence[bytes], all_lists: list[Lists]
) -> Sequence[int]:
    """Finds the lists of Examples with the layout of the first one; returns the other rows."""
    layout = layout_of(examples[rows[0]], keys) if len(rows) >= _MIN_ALIKE else None
    if layout is None:
        return rows
    joined = b"".join(map(examples.__getitem__, rows))
    bytes_ = np.frombuffer(joined, np.uint8).reshape(len(rows), -1)
    is_alike = alike(bytes_, layout)
    others = [rows[int(i)] for i in np.flatnonzero(~is_alike)]
    if others:
        rows = [rows[int(i)] for i in np.flatnonzero(is_alike)]
    for lists, key in zip(all_lists, keys, strict=True):
        kind, spans = layout.value_spans.get(key, (NO_LIST, ()))
        start, end = spans[0] if spans else (0, 0)
        if len(rows) == len(examples):
            lists.kinds[:] = kind
            if kind != BYTES:
                lists.together = bytes_[:, start:end]
                continue
        for i in rows:
            lists.kinds[i] = kind
            lists.contents[i] = (
                [examples[i][start:end] for start, end in spans]
                if kind == BYTES
                else examples[i][start:end]
            )
    return others
