"""The lists of a batch of Examples.

Examples of equal layout are read together, which is several times faster; the others are parsed
one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jflow.base.values import Array
from jflow.errors import InvalidArgumentError
from jflow.state.records import example
from jflow.state.records.example import BYTES, NO_LIST, MalformedError
from jflow.state.records.layout import alike, layout_of

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
    """Returns the lists of each key in all Examples.

    Raises:
      InvalidArgumentError: if an Example or one of these lists is malformed; the message says
        which.
    """
    keys_in_bytes = [key.encode() for key in keys]
    rest: list[int] = []
    n = len(examples)
    found = [Lists(np.full(n, NO_LIST, np.uint8), [b""] * n) for _ in keys]
    for rows in _by_length(examples):
        rest += _find_alike(examples, rows, keys_in_bytes, found)
    for i in sorted(rest):
        try:
            features = example.find_lists(examples[i], keys)
        except MalformedError as error:
            raise _refused(i, examples[i], error.key) from None
        for lists, key in zip(found, keys, strict=True):
            lists.kinds[i], lists.contents[i] = features.get(key, (NO_LIST, b""))
    return found


def feature_error(key: str, index: int, reason: str) -> InvalidArgumentError:
    """Returns the error for a feature of the Example at an index of the batch."""
    return InvalidArgumentError(f"Key: {key}.  Can't parse serialized Example {index}: {reason}")


def _refused(index: int, data: bytes, key: str | None) -> InvalidArgumentError:
    if key is not None:
        return feature_error(key, index, "its list is damaged")
    return InvalidArgumentError(
        f"Can't parse serialized Example {index}: its {len(data)} bytes are not a "
        f"tf.train.Example: {data[:40]!r}"
    )


def _by_length(examples: Sequence[bytes]) -> Iterable[Sequence[int]]:
    """The rows of the Examples of each length."""
    if len(set(map(len, examples))) == 1:
        return [range(len(examples))]
    rows: dict[int, list[int]] = {}
    for i, data in enumerate(examples):
        rows.setdefault(len(data), []).append(i)
    return rows.values()


def _find_alike(
    examples: Sequence[bytes], rows: Sequence[int], keys: Sequence[bytes], found: list[Lists]
) -> Sequence[int]:
    """Finds the lists of the Examples with the layout of the first; returns the other rows."""
    layout = layout_of(examples[rows[0]], keys) if len(rows) >= _MIN_ALIKE else None
    if layout is None:
        return rows
    joined = b"".join(map(examples.__getitem__, rows))
    bytes_ = np.frombuffer(joined, np.uint8).reshape(len(rows), -1)
    is_alike = alike(bytes_, layout)
    others = [rows[int(i)] for i in np.flatnonzero(~is_alike)]
    if others:
        rows = [rows[int(i)] for i in np.flatnonzero(is_alike)]
    for lists, key in zip(found, keys, strict=True):
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
