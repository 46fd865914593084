"""The closures that have not ended, by number, and those of them that are ready. Pure."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from jflow.training.coordinator.events import Closure, WorkerIndex


@dataclass(slots=True, eq=False)
class OpenClosure:
    """A closure that has not ended.

    Empty collections, as most are, are one immutable object: the time of the garbage collector goes
    by the number of objects.
    """

    closure: Closure
    attempts: frozenset[int] = frozenset()
    """The attempts that can still end it."""
    missing: set[int] | frozenset[int] = frozenset()
    """The inputs that it waits for, all of which are open."""
    dependents: list[int] | tuple[()] = ()
    """The closures that wait for its result."""
    n_attempts: int = 0
    is_alone: bool = False
    """Whether it has been in a batch that failed."""
    together: tuple[int, ...] = ()
    """The closures of its batch in exactly-once mode. They have one effect, so every later attempt
    is of all of them."""
    is_reissued: bool = False
    is_dropped: bool = False
    by_user: bool = False

    def wait_for(self, source: OpenClosure) -> None:
        """Makes this closure wait for the result of another one."""
        if isinstance(self.missing, frozenset):
            self.missing = set()
        if isinstance(source.dependents, tuple):
            source.dependents = []
        self.missing.add(source.closure.number)
        source.dependents.append(self.closure.number)


class OpenClosures:
    """The closures that have not ended, in the order in which they were added.

    A closure is open from `add` to `remove`. One that runs again for its result is added anew: it
    shares nothing with its former life, whose attempts cannot end it.

    Attributes:
      n_added: how many closures there have been.
    """

    def __init__(self) -> None:
        self._open: dict[int, OpenClosure] = {}
        self._expiries: list[tuple[float, int]] = []
        self._n_ended = 0
        self.n_added = 0

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, number: object) -> bool:
        return number in self._open

    def __iter__(self) -> Iterator[OpenClosure]:
        return iter(self._open.values())

    def get(self, number: int) -> OpenClosure | None:
        """Returns an open closure by its number; None if it is not open."""
        return self._open.get(number)

    def add(self, closure: Closure) -> OpenClosure:
        """Opens a closure."""
        opened = self._open[closure.number] = OpenClosure(closure)
        self.n_added = max(self.n_added, closure.number + 1)
        if closure.expires is not None:
            heapq.heappush(self._expiries, (closure.expires, closure.number))
        return opened

    def remove(self, opened: OpenClosure) -> None:
        """Removes a closure that ends; its attempts no longer count."""
        del self._open[opened.closure.number]
        opened.attempts = frozenset()

    def expired(self, now: float) -> Iterator[OpenClosure]:
        """Returns the open closures whose deadline has passed, each of them once."""
        while self._expiries and self._expiries[0][0] <= now:
            _, number = heapq.heappop(self._expiries)
            opened = self._open.get(number)
            if opened is not None:
                yield opened

    def is_wanted(self, opened: OpenClosure) -> bool:
        """Returns whether a closure has to run, for itself or for others of its batch."""
        return not all(one.is_dropped for one in self.together(opened))

    def together(self, opened: OpenClosure) -> list[OpenClosure]:
        """Returns the closures that share one effect with this one: its batch, or itself."""
        return [self._open[n] for n in opened.together if n in self._open] or [opened]

    @property
    def n_queued(self) -> int:
        """The number of closures that wait for a worker or for inputs."""
        return sum(not opened.attempts for opened in self)

    @property
    def n_ended(self) -> int:
        """A number below which all closures have ended."""
        while self._n_ended < self.n_added and self._n_ended not in self._open:
            self._n_ended += 1
        return self._n_ended


_Entry = tuple[int, int]
"""The negative priority and the number, so that the least entry is the next one."""


class Backlog:
    """The ready closures: open, with all inputs available and without an attempt.

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
        """Returns the closure of a number; None if it is not here."""
        return self._ready.get(number)

    def numbers(self) -> list[int]:
        """The numbers of the closures, in order."""
        return sorted(self._ready)

    def size_for(self, worker: WorkerIndex) -> int:
        """Returns the number of closures that a worker may run."""
        return self._bound[None] + self._bound[worker]

    def first(self, worker: WorkerIndex) -> OpenClosure | None:
        """Returns the closure that a worker has to run next."""
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
