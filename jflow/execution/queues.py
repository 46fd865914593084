"""The operations on queues that plans call."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import numpy as np

from jflow.graph import Array
from jflow.resources import Attempt, Holder
from jflow.resources import Close, Dequeue, DequeueMany, Enqueue, EnqueueMany, Queue

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


def _dequeue_many(count: Array, **attributes: Any) -> Attempt:
    return DequeueMany(int(count), **attributes)


QUEUE_OPERATIONS: Mapping[str, Callable[..., Waiting]] = {
    "queue.enqueue": _attempt(lambda *values: Enqueue(values)),
    "queue.enqueue_many": _attempt(lambda *values: EnqueueMany(values)),
    "queue.dequeue": _attempt(Dequeue),
    "queue.dequeue_many": _attempt(_dequeue_many),
    "queue.close": _attempt(Close),
    "queue.size": _look(lambda queue: np.int32(queue.size)),
    "queue.is_closed": _look(lambda queue: np.bool_(queue.is_closed)),
}
