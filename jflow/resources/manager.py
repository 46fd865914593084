"""The resources of a task by container, device, kind and name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from jflow.cluster import Device, Task
from jflow.errors import CancelledError
from jflow.plan import ResourceSpec
from jflow.records import Roots
from jflow.resources.cell import Holder
from jflow.resources.kinds import check_same, make

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
