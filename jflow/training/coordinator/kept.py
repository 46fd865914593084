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
    """Why a result that was lost cannot be computed again."""

    FAILED = "failed"
    """Its closure has failed."""
    DROPPED = "dropped"
    """Its closure was cancelled."""


@dataclass
class _Kept:
    """A result.

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
        """Whether neither a worker nor the coordinator has it."""
        return self.worker is None and not self.has_copy


class KeptResults:
    """The results that workers have, by the numbers of their closures."""

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}

    def add(self, closure: Closure, worker: WorkerIndex) -> None:
        """A closure has ended, and its worker has its result."""
        has_copy = closure.keeping is Keeping.COPY
        again = closure._replace(expires=None, keeping=Keeping.NOT)
        self._kept[closure.number] = _Kept(again, worker, has_copy)

    def place(self, number: int) -> WorkerIndex | None:
        """The worker that has a result; None if none has it."""
        kept = self._kept.get(number)
        return None if kept is None else kept.worker

    def places(self, closure: Closure) -> tuple[tuple[int, WorkerIndex], ...]:
        """The inputs of a closure that workers have, and where."""
        found = ((number, self.place(number)) for number in dict.fromkeys(closure.inputs))
        return tuple((number, worker) for number, worker in found if worker is not None)

    def nearest(self, closure: Closure, workers: Collection[WorkerIndex]) -> WorkerIndex | None:
        """The worker, among some, that has the most inputs of a closure; None if none has one."""
        counts = Counter(worker for _, worker in self.places(closure) if worker in workers)
        return counts.most_common(1)[0][0] if counts else None

    def lost_closure(self, number: int) -> Closure | None:
        """The closure that computes a lost result again; None if none can, or it is not lost."""
        kept = self._kept.get(number)
        may_run = kept is not None and kept.is_lost and kept.failure is None
        return kept.closure if kept is not None and may_run else None

    def failure(self, number: int) -> Failure | None:
        """Why a result that was lost cannot be had any more; None if it can, or is not lost."""
        kept = self._kept.get(number)
        return kept.failure if kept is not None and kept.is_lost else None

    def is_lost(self, number: int) -> bool:
        """Whether a result is nowhere, so that a closure that takes it cannot start."""
        kept = self._kept.get(number)
        return kept is not None and kept.is_lost

    def fail(self, number: int, failure: Failure) -> None:
        """A closure has ended without a result, perhaps one that was to compute this one again."""
        kept = self._kept.get(number)
        if kept is not None:
            kept.failure = failure

    def has_copy(self, number: int) -> bool:
        """Whether the coordinator has a result that stayed, or stays, on a worker."""
        kept = self._kept.get(number)
        return kept is not None and kept.has_copy

    def lose(self, numbers: Iterable[int]) -> set[int]:
        """Results are not where they were; returns those of which there is no copy."""
        lost = set()
        for number in [*numbers]:
            kept = self._kept.get(number)
            if kept is None or kept.worker is None:
                continue
            if kept.has_copy:
                del self._kept[number]
            else:
                kept.worker = None
                lost.add(number)
        return lost

    def on(self, worker: WorkerIndex) -> list[int]:
        """The results that a worker has."""
        return [number for number, kept in self._kept.items() if kept.worker == worker]

    def copied(self, number: int) -> None:
        """The coordinator has a copy of a result now, perhaps of one that has been lost since."""
        kept = self._kept.get(number)
        if kept is not None and kept.failure is None:
            kept.has_copy = True

    def forget(self, number: int) -> WorkerIndex | None:
        """A result is not wanted any more; returns the worker that has it."""
        kept = self._kept.pop(number, None)
        return None if kept is None else kept.worker
