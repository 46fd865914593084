"""The operations on queues that plans call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jflow.execution.waiting import Operation, attempting, looking
from jflow.graph import Array
from jflow.resources import Attempt, Close, Dequeue, DequeueMany, Enqueue, EnqueueMany


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


QUEUE_OPERATIONS: Mapping[str, Operation] = {
    "queue.enqueue": attempting(_enqueue),
    "queue.enqueue_many": attempting(_enqueue_many),
    "queue.dequeue": attempting(Dequeue),
    "queue.dequeue_many": attempting(_dequeue_many),
    "queue.close": attempting(Close),
    "queue.size": looking(lambda queue: np.int32(queue.size)),
    "queue.is_closed": looking(lambda queue: np.bool_(queue.is_closed)),
}
