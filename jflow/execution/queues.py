"""The operations on queues that plans call."""

from __future__ import annotations

import operator
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np

from jflow.errors import InvalidArgumentError
from jflow.execution.waiting import Operation, Wanted, attempting, looking
from jflow.resources import (
    Attempt,
    Close,
    Dequeue,
    DequeueMany,
    Enqueue,
    EnqueueMany,
    Holder,
)
from jflow.values import Array


def _enqueue(*components: Array, by_priority: bool = False) -> Attempt:
    return Enqueue(_prioritized(components) if by_priority else components)


def _enqueue_many(*components: Array, by_priority: bool = False) -> Attempt:
    return EnqueueMany(_prioritized(components) if by_priority else components)


def _prioritized(components: tuple[Array, ...]) -> tuple[Array, ...]:
    """Priorities are 64-bit integers, which programs cannot always make."""
    return (components[0].astype(np.int64), *components[1:])


def _dequeue_many(
    *counts: Array, count: int = 0, up_to: bool = False, minimum: int | None = None
) -> Attempt:
    """The number of elements, and how many will do, are inputs or attributes."""
    wanted = counts[0].item() if counts else count
    enough = counts[1].item() if len(counts) > 1 else minimum
    return DequeueMany(
        operator.index(wanted), up_to, None if enough is None else operator.index(enough)
    )


_OPERATIONS: Mapping[str, Operation] = {
    "queue.enqueue": attempting(_enqueue),
    "queue.enqueue_many": attempting(_enqueue_many),
    "queue.dequeue": attempting(Dequeue),
    "queue.dequeue_many": attempting(_dequeue_many),
    "queue.close": attempting(Close),
    "queue.size": looking(lambda queue: np.int32(queue.size)),
    "queue.is_closed": looking(lambda queue: np.bool_(queue.is_closed)),
}


def _selected(
    held: Sequence[Holder], values: Sequence[Array], *, function: str, **attributes: Any
) -> Generator[Wanted, None, Sequence[Array]]:
    """Another operation on the one of several queues whose number comes first."""
    number = operator.index(values[0].item())
    if not 0 <= number < len(held):
        raise InvalidArgumentError(f"there are {len(held)} queues to select from, got {number}")
    if function not in _OPERATIONS:
        raise InvalidArgumentError(f"{function!r} is no operation on a queue")
    return (yield from _OPERATIONS[function]([held[number]], values[1:], **attributes))


QUEUE_OPERATIONS: Mapping[str, Operation] = {**_OPERATIONS, "queue.selected": _selected}
