"""The cell of a resource: its lock, and the notification of steps that wait for its attempts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, TypeVar

from jflow.errors import OpError
from jflow.state.resources.attempt import Attempt, Resource
from jflow.state.resources.snapshot import Snapshot, Snapshottable

T = TypeVar("T")


class Cell:
    """A resource behind a lock; thread-safe.

    Args:
      resource: the resource.
      definition: the definition it was created from, if known.
      lock: a lock shared with other state; a new one if None.

    Attributes:
      definitions: the definitions that the resource is known to satisfy.
    """

    __slots__ = ("_lock", "_resource", "definitions")

    def __init__(
        self,
        resource: Resource,
        definition: bytes | None = None,
        lock: threading.Lock | None = None,
    ) -> None:
        self._lock = lock or threading.Lock()
        self._resource = resource
        self.definitions = set() if definition is None else {definition}

    def submit(self, attempt: Attempt, then: Callable[[Attempt], None]) -> bool:
        """Starts an attempt; returns whether it has completed.

        Otherwise `then` is called with it when it completes, on the thread that completes it.
        """
        with self._lock:
            attempt.then = then
            completed = self._resource.submit(attempt)
            is_complete = attempt.is_complete
        notify(completed, attempt)
        return is_complete

    def cancel(self, attempt: Attempt, error: OpError) -> None:
        """Cancels an attempt unless it has completed; its `then` is not called."""
        with self._lock:
            completed = self._resource.cancel(attempt, error)
        notify(completed, attempt)

    def interrupt(self, attempt: Attempt, error: OpError) -> None:
        """Like `cancel`, from outside the waiting step: calls `then` if the attempt was waiting.

        An attempt that has not been submitted fails when it is.
        """
        with self._lock:
            is_waiting = attempt.then is not None and not attempt.is_complete
            completed = self._resource.cancel(attempt, error)
        notify(completed, None if is_waiting else attempt)

    def unread(self, attempt: Attempt) -> None:
        """Puts back the values of a completed attempt whose caller will not read them."""
        with self._lock:
            completed = self._resource.unread(attempt)
        notify(completed, attempt)

    def close(self, error: OpError) -> None:
        """Fails all waiting and later attempts."""
        assert isinstance(self._resource, Snapshottable)
        with self._lock:
            completed = self._resource.close(error)
        notify(completed)

    def snapshot(self) -> Snapshot:
        """Returns a copy of the state. Raises as `Snapshottable.snapshot`."""
        assert isinstance(self._resource, Snapshottable)
        with self._lock:
            return self._resource.snapshot()

    def restore(self, snapshot: Snapshot) -> None:
        """Replaces the state; waiting attempts may complete. Raises as `Snapshottable.restore`."""
        assert isinstance(self._resource, Snapshottable)
        with self._lock:
            completed = self._resource.restore(snapshot)
        notify(completed)

    def query(self, read: Callable[[Any], T]) -> T:
        """Calls a function with the resource under its lock and returns its result."""
        with self._lock:
            return read(self._resource)

    def reason(self, attempt: Attempt) -> str:
        """Describes what an attempt waits for; "" if that is unknown."""
        with self._lock:
            return self._resource.reason(attempt)

    def waiting(self, limit: int) -> list[tuple[Attempt, str]]:
        """Returns up to `limit` waiting attempts, each with its `reason`."""
        with self._lock:
            attempts = islice(self._resource.waiting(), limit)
            return [(attempt, self._resource.reason(attempt)) for attempt in attempts]


def notify(completed: Iterable[Attempt], but: Attempt | None = None) -> None:
    """Calls what waits for attempts that have completed, except one of them; without the lock."""
    for attempt in completed:
        if attempt is not but and attempt.then is not None:
            attempt.then(attempt)
