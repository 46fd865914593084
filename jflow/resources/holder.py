"""Resources as threads and event loops share them: each behind a lock, by container and name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from jflow.cluster import Device, Task
from jflow.errors import CancelledError, OpError
from jflow.plan import ResourceSpec
from jflow.records import Roots
from jflow.resources.attempt import Attempt, Resource
from jflow.resources.kinds import check_same, make

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


_Key = tuple[Device, str, str]
_Room = tuple[str, str]
_CLOSED = "the session was closed"


class Holders:
    """The resources of one task, or of one local session, made when they are first used.

    They live in containers, and those that are not shared in a place of their session.

    Args:
      task: whose they are; errors name it.
      roots: where they may read files.
    """

    def __init__(self, task: Task, roots: Roots) -> None:
        self._task = task
        self._roots = roots
        self._lock = threading.Lock()
        self._rooms: dict[_Room, dict[_Key, Holder]] = {}
        self._is_over = False

    def get(self, device: Device, spec: ResourceSpec) -> Holder:
        """The resource.

        Raises:
          InvalidArgumentError: if it exists with another definition, or this one is none.
          CancelledError: if there will be no resources any more.
        """
        room = (spec.owner, "" if spec.container == self._task.job else spec.container)
        key = (device, spec.kind, spec.name)
        holder = self._rooms.get(room, {}).get(key)
        if holder is None:
            with self._lock:
                holder = self._rooms.get(room, {}).get(key)
                if holder is None:
                    if self._is_over:
                        raise self._gone(spec.kind, spec.name, _CLOSED)
                    holder = Holder(make(spec, self._roots), spec.definition)
                    self._rooms.setdefault(room, {})[key] = holder
        if spec.definition not in holder.definitions:
            holder.look(lambda resource: check_same(resource, spec))
            holder.definitions.add(spec.definition)
        return holder

    def clear(self, containers: Iterable[str]) -> None:
        """Frees everything in containers; who waits there gets a CancelledError."""
        names = {"" if name == self._task.job else name for name in containers}
        self._free(lambda room: room[1] in names, "its container was reset")

    def end(self, owner: str) -> None:
        """Frees what belonged to a session."""
        self._free(lambda room: room[0] == owner, "its session has ended")

    def clear_all(self) -> None:
        """Frees everything, and makes nothing any more: nobody would ever come to use it."""
        with self._lock:
            self._is_over = True
        self._free(lambda _: True, _CLOSED)

    def names(self) -> dict[str, list[tuple[str, str]]]:
        """Kind and name of the shared resources by container."""
        with self._lock:
            return {
                container: sorted((kind, name) for _, kind, name in holders)
                for (owner, container), holders in self._rooms.items()
                if not owner
            }

    def _free(self, is_freed: Callable[[_Room], bool], why: str) -> None:
        with self._lock:
            freed = [self._rooms.pop(room) for room in [*self._rooms] if is_freed(room)]
        for holders in freed:
            for (_, kind, name), holder in holders.items():
                holder.abandon(self._gone(kind, name, why))

    def _gone(self, kind: str, name: str, why: str) -> CancelledError:
        return CancelledError(f"{kind} {name!r} is gone: {why}", task=str(self._task))
