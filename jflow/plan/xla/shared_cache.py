"""`SharedCache`: values that are slow to make, each made once for all threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SharedCache(Generic[K, V]):
    """A thread-safe LRU cache of values that are slow to make.

    Threads that request the same value at the same time share one making.

    Args:
      capacity: maximum number of values.

    Attributes:
      n_made: number of values made so far.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lock = threading.Lock()
        self._values: OrderedDict[K, Future[V]] = OrderedDict()
        self.n_made = 0

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Returns the value; calls `make()` if it is not cached.

        Raises what that raises, also in the threads that wait for it; a failure is not cached.
        """
        while True:
            with self._lock:
                future = self._values.get(key)
                mine = future is None
                if future is None:
                    future = self._values[key] = Future()
                    future.set_running_or_notify_cancel()  # waiters cannot cancel it
                self._values.move_to_end(key)
            if mine:
                self._make(key, future, make)
            try:
                return future.result()
            except _InterruptedError:
                continue

    def future_of(self, key: K) -> Future[V] | None:
        """Returns the future of a value that is cached or being made; None if it is neither."""
        with self._lock:
            return self._values.get(key)

    def clear(self) -> None:
        """Removes all values, except for those that are being made."""
        with self._lock:
            for key in [key for key, future in self._values.items() if future.done()]:
                del self._values[key]

    def _make(self, key: K, future: Future[V], make: Callable[[], V]) -> None:
        try:
            value = make()
        except BaseException as error:
            with self._lock:
                self._values.pop(key, None)
            # Ctrl-C is meant for the thread that makes the value, and for no other.
            future.set_exception(error if isinstance(error, Exception) else _InterruptedError())
            raise
        with self._lock:
            self.n_made += 1
            while len(self._values) > self._capacity:
                self._values.popitem(last=False)
        future.set_result(value)


class _InterruptedError(Exception):
    """Raised to waiting threads if the thread that makes their value is interrupted."""
