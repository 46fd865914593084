"""`Backlog`: the closures that are ready, by priority and order. Pure."""

from __future__ import annotations

import heapq
from collections import defaultdict

from jflow.training.coordinator.events import WorkerIndex
from jflow.training.coordinator.open_closures import OpenClosure

_Entry = tuple[int, int]
"""The negative priority and the number, so that the least entry is the next one."""


class Backlog:
    """Closures that are ready to run: each is open, has all its inputs and no attempt.

    A heap for closures that any worker may run, and one for each worker that closures are bound to.
    Removed closures stay in the heaps until they come up.
    """

    def __init__(self) -> None:
        self._heaps: defaultdict[WorkerIndex | None, list[_Entry]] = defaultdict(list)
        self._ready: dict[int, OpenClosure] = {}
        self._bound: defaultdict[WorkerIndex | None, int] = defaultdict(int)

    def __len__(self) -> int:
        return len(self._ready)

    def __contains__(self, number: object) -> bool:
        return number in self._ready

    def add(self, opened: OpenClosure) -> None:
        """Adds a closure; one that is put back takes its former place in the order."""
        closure = opened.closure
        self._ready[closure.number] = opened
        self._bound[closure.worker] += 1
        heapq.heappush(self._heaps[closure.worker], (-closure.priority, closure.number))

    def remove(self, number: int) -> OpenClosure:
        """Takes out a closure."""
        opened = self._ready.pop(number)
        self._bound[opened.closure.worker] -= 1
        return opened

    def get(self, number: int) -> OpenClosure | None:
        """The closure of a number; None if it is not here."""
        return self._ready.get(number)

    def numbers(self) -> list[int]:
        """The closures, in the order of their numbers."""
        return sorted(self._ready)

    def size_for(self, worker: WorkerIndex) -> int:
        """How many closures the worker may run."""
        return self._bound[None] + self._bound[worker]

    def first(self, worker: WorkerIndex) -> OpenClosure | None:
        """The closure that the worker has to run next."""
        tops = [top for top in (self._top(None), self._top(worker)) if top is not None]
        return self._ready[min(tops)[1]] if tops else None

    def _top(self, worker: WorkerIndex | None) -> _Entry | None:
        heap = self._heaps[worker]
        while heap:
            opened = self._ready.get(heap[0][1])
            if opened is not None and opened.closure.worker == worker:
                return heap[0]
            heapq.heappop(heap)
        return None
