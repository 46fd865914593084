"""The TensorFlow methods of eager queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jflow.eager.queue import EagerQueue
from jflow.stateful.queue import QueueOperations
from jflow.xla.internals import is_tracing


class EagerOperations:
    """Runs queue operations at once, or binds them in the function that JAX traces.

    The methods are those of `QueueOperations`; names of operations are ignored.

    Args:
      queue: runs operations.
      traced: binds operations while JAX traces.
    """

    def __init__(self, queue: EagerQueue, traced: QueueOperations) -> None:
        self._queue = queue
        self._traced = traced

    def enqueue(self, values: Sequence[Any], _: str | None = None) -> None:
        """Enqueues an element."""
        if is_tracing():
            self._traced.enqueue(values)
        else:
            self._queue.put(values)

    def enqueue_many(self, values: Sequence[Any], _: str | None = None) -> None:
        """Enqueues the rows of a batch."""
        if is_tracing():
            self._traced.enqueue_many(values)
        else:
            self._queue.put_many(values)

    def dequeue(self, _: str | None = None) -> Sequence[Any]:
        """Dequeues an element."""
        return self._traced.dequeue() if is_tracing() else self._queue.get()

    def dequeue_many(self, n: Any, _: str | None = None) -> Sequence[Any]:
        """Dequeues a batch of `n` elements."""
        return self._traced.dequeue_many(n) if is_tracing() else self._queue.get_many(n)

    def dequeue_up_to(self, n: Any, _: str | None = None) -> Sequence[Any]:
        """Dequeues a batch of `n` elements, or fewer once the queue is closed."""
        return self._traced.dequeue_up_to(n) if is_tracing() else self._queue.get_up_to(n, n)

    def size(self, _: str | None = None) -> Any:
        """The number of elements in the queue."""
        return self._traced.size() if is_tracing() else self._queue.size()

    def is_closed(self, _: str | None = None) -> Any:
        """Whether the queue is closed."""
        return self._traced.is_closed() if is_tracing() else self._queue.is_closed()

    def close(self, cancel_pending_enqueues: bool, _: str | None = None) -> None:
        """Closes the queue."""
        if is_tracing():
            self._traced.close(cancel_pending_enqueues)
        else:
            self._queue.close(cancel_pending_enqueues)
