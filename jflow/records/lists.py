"""The lists of a batch of Examples.

Examples of one layout are looked at together, and only the others one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jflow.errors import InvalidArgumentError
from jflow.records import example
from jflow.records.example import BYTES, NO_LIST, MalformedError
from jflow.records.layout import alike, layout_of

_MIN_ALIKE = 4
"""Fewer Examples are sooner looked at one by one."""


@dataclass(frozen=True)
class Lists:
    """The lists of one key in all Examples of a batch.

    Kinds and contents are kept apart since tuples of both would keep the garbage collector busy.

    Attributes:
      kinds: of each list.
      contents: of each list its strings, or its packed numbers.
      unread: the Examples whose content is still the message of the list.
    """

    kinds: list[int]
    contents: list[Any]
    unread: Sequence[int]


def find_lists(examples: Sequence[bytes], keys: Sequence[bytes]) -> list[Lists]:
    """For each key its lists in all Examples.

    Raises:
      InvalidArgumentError: if bytes are no Example; the message says which.
    """
    wanted = frozenset(keys)
    rest: list[int] = []
    found = [Lists([NO_LIST] * len(examples), [b""] * len(examples), rest) for _ in keys]
    by_length: dict[int, list[int]] = {}
    for i, data in enumerate(examples):
        by_length.setdefault(len(data), []).append(i)
    for rows in by_length.values():
        rest += _find_alike(examples, rows, keys, found)
    rest.sort()
    for i in rest:
        try:
            features = example.features_of(examples[i], wanted)
        except MalformedError:
            raise InvalidArgumentError(
                f"Can't parse serialized Example {i}: its {len(examples[i])} bytes are no "
                f"tf.train.Example: {examples[i][:40]!r}"
            ) from None
        for lists, key in zip(found, keys, strict=True):
            lists.kinds[i], lists.contents[i] = features.get(key, (NO_LIST, b""))
    return found


def _find_alike(
    examples: Sequence[bytes], rows: list[int], keys: Sequence[bytes], found: list[Lists]
) -> list[int]:
    """Finds the lists of those Examples that are like the first one; returns the others."""
    layout = layout_of(examples[rows[0]], keys) if len(rows) >= _MIN_ALIKE else None
    if layout is None:
        return rows
    is_alike = alike([examples[i] for i in rows], layout).tolist()
    others = [i for i, same in zip(rows, is_alike, strict=True) if not same]
    if others:
        rows = [i for i, same in zip(rows, is_alike, strict=True) if same]
    for lists, key in zip(found, keys, strict=True):
        kind, spans = layout.value_spans.get(key, (NO_LIST, ()))
        if kind == BYTES:
            for i in rows:
                lists.kinds[i] = kind
                lists.contents[i] = [examples[i][start:end] for start, end in spans]
            continue
        start, end = spans[0] if spans else (0, 0)
        for i in rows:
            lists.kinds[i] = kind
            lists.contents[i] = examples[i][start:end]
    return others
