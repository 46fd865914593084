"""Results that stay on the workers that computed them, as the scheduler knows them. Pure.

A result of which the coordinator has a copy may be lost with its worker: the copy takes its place.
One without a copy is that of a function of its arguments alone; so if it is lost and wanted, its
closure runs again, and gives the same. That result goes to the coordinator, so no closure runs more
than twice for the sake of its readers. If that run fails, the result cannot be had any more: its
readers, also those that start later, fail with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum

from jflow.training.coordinator.events import Closure, Keeping, WorkerIndex


class Failure(Enum):
    """Why a lost result cannot be recomputed."""

    FAILED = "failed"
    """Its closure has failed."""
    DROPPED = "dropped"
    """Its closure was cancelled."""


@dataclass
class _Location:
    """The location of a result.

    Attributes:
      closure: computes it again.
      worker: has it; None if it was lost.
      has_copy: whether the coordinator has it as well.
      failure: how it ended to compute it again; None if it did not fail.
    """

    closure: Closure
    worker: WorkerIndex | None
    has_copy: bool
    failure: Failure | None = None

    @property
    def is_lost(self) -> bool:
        """Whether neither a worker nor the coordinator stores the result."""
        return self.worker is None and not self.has_copy


class ResultLocations:
    """The workers that store results, by the numbers of the closures."""

    def __init__(self) -> None:
        self._locations: dict[int, _Location] = {}

    def add(self, closure: Closure, worker: WorkerIndex) -> None:
        """Records the worker that stores the result of a closure."""
        has_copy = closure.keeping is Keeping.COPY
        again = closure._replace(expires=None, keeping=Keeping.NOT)
        self._locations[closure.number] = _Location(again, worker, has_copy)

    def place(self, number: int) -> WorkerIndex | None:
        """Returns the worker that stores a result; None if none does."""
        location = self._locations.get(number)
        return None if location is None else location.worker

    def places(self, closure: Closure) -> tuple[tuple[int, WorkerIndex], ...]:
        """Returns the inputs of a closure that workers store, and those workers."""
        places = ((number, self.place(number)) for number in dict.fromkeys(closure.inputs))
        return tuple((number, worker) for number, worker in places if worker is not None)

    def nearest(self, closure: Closure, workers: Collection[WorkerIndex]) -> WorkerIndex | None:
        """The worker, among some, that has the most inputs of a closure; None if none has one."""
        counts = Counter(worker for _, worker in self.places(closure) if worker in workers)
        return counts.most_common(1)[0][0] if counts else None

    def lost_closure(self, number: int) -> Closure | None:
        """The closure that computes a lost result again; None if none can, or it is not lost."""
        location = self._locations.get(number)
        may_run = location is not None and location.is_lost and location.failure is None
        return location.closure if location is not None and may_run else None

    def failure(self, number: int) -> Failure | None:
        """Returns why a lost result cannot be recomputed; None if it can, or is not lost."""
        location = self._locations.get(number)
        return location.failure if location is not None and location.is_lost else None

    def is_lost(self, number: int) -> bool:
        """Returns whether neither a worker nor the coordinator has a result."""
        location = self._locations.get(number)
        return location is not None and location.is_lost

    def fail(self, number: int, failure: Failure) -> None:
        """Records that the closure which was to recompute a lost result failed."""
        location = self._locations.get(number)
        if location is not None:
            location.failure = failure

    def has_copy(self, number: int) -> bool:
        """Returns whether the coordinator has a copy of a result that a worker stores or stored."""
        location = self._locations.get(number)
        return location is not None and location.has_copy

    def mark_lost(self, numbers: Iterable[int]) -> set[int]:
        """Marks results as lost; returns those without a copy."""
        lost = set()
        for number in [*numbers]:
            location = self._locations.get(number)
            if location is None or location.worker is None:
                continue
            if location.has_copy:
                del self._locations[number]
            else:
                location.worker = None
                lost.add(number)
        return lost

    def on(self, worker: WorkerIndex) -> list[int]:
        """Returns the results that a worker stores."""
        return [number for number, location in self._locations.items() if location.worker == worker]

    def copied(self, number: int) -> None:
        """Records that the coordinator has a copy of a result, even if it was lost since."""
        location = self._locations.get(number)
        if location is not None and location.failure is None:
            location.has_copy = True

    def forget(self, number: int) -> WorkerIndex | None:
        """Drops a result that is no longer wanted; returns the worker that stores it."""
        location = self._locations.pop(number, None)
        return None if location is None else location.worker
