"""The operations on queues that plans call."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import numpy as np

from jflow.graph import Array
from jflow.resources import (
    Attempt,
    Close,
    Dequeue,
    DequeueMany,
    Enqueue,
    EnqueueMany,
    Holder,
    Queue,
)

Waiting = Generator[tuple[Holder, Attempt], None, Sequence[Array]]


def _attempt(make: Callable[..., Attempt]) -> Callable[..., Waiting]:
    """The operation that makes one attempt at a queue."""

    def operation(held: Sequence[Holder], values: Sequence[Array], **attributes: Any) -> Waiting:
        attempt = make(*values, **attributes)
        yield held[0], attempt
        return attempt.result()

    return operation


def _look(at: Callable[[Queue], Any]) -> Callable[..., Waiting]:
    """The operation that asks a queue something, for which nobody waits."""

    def operation(held: Sequence[Holder], values: Sequence[Array]) -> Waiting:
        yield from ()
        return (np.asarray(held[0].look(at)),)

    return operation


def _enqueue(*components: Array, by_priority: bool = False) -> Attempt:
    return Enqueue(_prioritized(components) if by_priority else components)


def _enqueue_many(*components: Array, by_priority: bool = False) -> Attempt:
    return EnqueueMany(_prioritized(components) if by_priority else components)


def _prioritized(components: tuple[Array, ...]) -> tuple[Array, ...]:
    """Priorities are 64-bit integers, which programs cannot always make."""
    return (components[0].astype(np.int64), *components[1:])


def _dequeue_many(*counts: Array, **attributes: Any) -> Attempt:
    """The number of elements is an input or an attribute."""
    if counts:
        attributes["count"] = int(counts[0])
    return DequeueMany(**attributes)


QUEUE_OPERATIONS: Mapping[str, Callable[..., Waiting]] = {
    "queue.enqueue": _attempt(_enqueue),
    "queue.enqueue_many": _attempt(_enqueue_many),
    "queue.dequeue": _attempt(Dequeue),
    "queue.dequeue_many": _attempt(_dequeue_many),
    "queue.close": _attempt(Close),
    "queue.size": _look(lambda queue: np.int32(queue.size)),
    "queue.is_closed": _look(lambda queue: np.bool_(queue.is_closed)),
}
