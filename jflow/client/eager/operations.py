"""The TensorFlow methods of eager queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jflow.client.eager.calls import TracedCalls
from jflow.client.eager.queue import EagerQueue
from jflow.client.stateful.queue import QueueOperations
from jflow.plan.xla.internals import is_tracing


class EagerOperations(QueueOperations):
    """Runs queue operations at once, or binds them in the function that JAX traces.

    Names of operations are ignored.

    Args:
      queue: runs operations.
      calls: binds operations while JAX traces.
      title: as for `QueueOperations`.
    """

    def __init__(self, queue: EagerQueue, calls: TracedCalls, title: str) -> None:
        super().__init__(queue.elements, calls, title)
        self._queue = queue

    def _add(self, function: str, values: Sequence[Any], name: str, is_batch: bool) -> Any:
        if is_tracing():
            return super()._add(function, values, name, is_batch)
        return self._queue.add(function, values, is_batch=is_batch)

    def _take(self, function: str, name: str) -> Sequence[Any]:
        return super()._take(function, name) if is_tracing() else self._queue.take(function)

    def _take_many(self, n: Any, name: str, **attributes: Any) -> Sequence[Any]:
        if is_tracing():
            return super()._take_many(n, name, **attributes)
        return self._queue.get_up_to(n, n) if attributes else self._queue.get_many(n)

    def _query(self, function: str, dtype: Any, name: str) -> Any:
        if is_tracing():
            return super()._query(function, dtype, name)
        return self._queue.query(function, dtype)

    def _change(self, function: str, attributes: dict[str, Any], name: str) -> Any:
        if is_tracing():
            return super()._change(function, attributes, name)
        return self._queue.change(function, attributes)
