"""The closures that wait for a worker, by priority and order, with those of one worker apart."""

from __future__ import annotations

import heapq
from collections import defaultdict

from jflow.coordinator.events import Closure, WorkerIndex

_Entry = tuple[int, int]
"""The negative priority and the number, so that the least entry is the next one."""


class Backlog:
    """Closures that are ready to run.

    A heap for closures that any worker may run, and one for each worker that closures are bound to.
    Removed closures stay in the heaps until they come up.
    """

    def __init__(self) -> None:
        self._heaps: defaultdict[WorkerIndex | None, list[_Entry]] = defaultdict(list)
        self._waiting: dict[int, Closure] = {}
        self._bound: defaultdict[WorkerIndex | None, int] = defaultdict(int)

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, number: object) -> bool:
        return number in self._waiting

    def add(self, closure: Closure) -> None:
        """Adds a closure; one that is put back takes its former place in the order."""
        self._waiting[closure.number] = closure
        self._bound[closure.worker] += 1
        heapq.heappush(self._heaps[closure.worker], (-closure.priority, closure.number))

    def remove(self, number: int) -> None:
        """Removes a closure that waits."""
        closure = self._waiting.pop(number)
        self._bound[closure.worker] -= 1

    def numbers(self) -> list[int]:
        """The closures that wait, in the order of their numbers."""
        return sorted(self._waiting)

    def size_for(self, worker: WorkerIndex) -> int:
        """How many closures the worker may run."""
        return self._bound[None] + self._bound[worker]

    def first(self, worker: WorkerIndex) -> Closure | None:
        """The closure that the worker has to run next."""
        tops = [top for top in (self._top(None), self._top(worker)) if top is not None]
        return self._waiting[min(tops)[1]] if tops else None

    def _top(self, worker: WorkerIndex | None) -> _Entry | None:
        heap = self._heaps[worker]
        while heap:
            number = heap[0][1]
            closure = self._waiting.get(number)
            if closure is not None and closure.worker == worker:
                return heap[0]
            heapq.heappop(heap)
        return None
