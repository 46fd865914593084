"""A resource behind a lock, which wakes those that wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from jflow.errors import OpError
from jflow.resources.attempt import Attempt, Resource

T = TypeVar("T")


class Holder:
    """A resource and its lock, which may guard more than this. Any thread may call.

    Attributes:
      definitions: those that the resource is known to satisfy.
    """

    __slots__ = ("_lock", "_resource", "definitions")

    def __init__(
        self, resource: Resource, definition: str, lock: threading.Lock | None = None
    ) -> None:
        self._lock = lock or threading.Lock()
        self._resource = resource
        self.definitions = {definition}

    def submit(self, attempt: Attempt, then: Callable[[Attempt], None]) -> bool:
        """Takes an attempt in; says whether it settled at once.

        If not, `then` is called with it when it settles, by whoever brings that about.
        """
        attempt.then = then
        with self._lock:
            settled = self._resource.submit(attempt)
            at_once = attempt.is_settled
        self._tell(settled, attempt)
        return at_once

    def withdraw(self, attempt: Attempt, error: OpError) -> None:
        """Gives an attempt up, unless it has settled; its `then` is not called any more."""
        with self._lock:
            settled = self._resource.withdraw(attempt, error)
        self._tell(settled, attempt)

    def restore(self, attempt: Attempt) -> None:
        """Takes back what an attempt brought that nobody came to have."""
        with self._lock:
            settled = self._resource.restore(attempt)
        self._tell(settled, attempt)

    def abandon(self, error: OpError) -> None:
        """Fails all that wait, and all that comes later."""
        with self._lock:
            settled = self._resource.abandon(error)
        self._tell(settled, None)

    def look(self, at: Callable[[Any], T]) -> T:
        """What a function makes of the resource, which nobody changes meanwhile."""
        with self._lock:
            return at(self._resource)

    def reason(self, attempt: Attempt) -> str:
        """What an attempt waits for, as the end of a sentence; "" if there is nothing to say."""
        with self._lock:
            return self._resource.reason(attempt)

    @staticmethod
    def _tell(settled: Iterable[Attempt], but: Attempt | None) -> None:
        for attempt in settled:
            if attempt is not but and attempt.then is not None:
                attempt.then(attempt)
