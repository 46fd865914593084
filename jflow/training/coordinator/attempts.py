"""`Attempts`: the attempts of closures that have not come back. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from jflow.training.coordinator.events import Action, CancelAttempt, WorkerIndex
from jflow.training.coordinator.open_closures import OpenClosure, OpenClosures
from jflow.training.coordinator.workers import Workers


@dataclass(slots=True, eq=False)
class ClosureAttempt:
    """An attempt to run closures on a worker."""

    number: int
    worker: WorkerIndex
    closures: tuple[OpenClosure, ...]
    ordinal: int
    """That of `Dispatch`."""
    started: float
    expected: float
    n_queued: int
    """How many closures its worker had when it was given these, with these."""
    is_cancelled: bool = False

    @property
    def kind(self) -> Hashable:
        """The kind of the attempt's closures."""
        return self.closures[0].closure.kind

    @property
    def decides(self) -> list[OpenClosure]:
        """The closures whose outcome this attempt can still decide."""
        return [opened for opened in self.closures if self.number in opened.attempts]


class Attempts:
    """The attempts that have not come back, by number.

    An attempt is here, among those of its worker and among those of each of its closures that is
    still open from `add` to `remove`: everywhere or nowhere.

    Args:
      closures: the open closures.
      workers: the workers.
      emit: takes an action.
    """

    def __init__(
        self, closures: OpenClosures, workers: Workers, emit: Callable[[Action], None]
    ) -> None:
        self._closures, self._workers, self._emit = closures, workers, emit
        self._running: dict[int, ClosureAttempt] = {}
        self._n_started = 0

    def __len__(self) -> int:
        return len(self._running)

    def __contains__(self, number: object) -> bool:
        return number in self._running

    def n_by_worker(self) -> Counter[WorkerIndex]:
        """Returns how many attempts each worker has."""
        return Counter(attempt.worker for attempt in self)

    def __iter__(self) -> Iterator[ClosureAttempt]:
        return iter(self._running.values())

    def add(
        self, worker: WorkerIndex, closures: Sequence[OpenClosure], expected: float, now: float
    ) -> ClosureAttempt:
        """Records an attempt to run closures on a worker.

        Args:
          worker: the worker.
          closures: the closures.
          expected: how long they are expected to take, in seconds.
          now: the time.
        """
        self._n_started += 1
        first, number = closures[0], self._n_started
        n_queued = self._workers.add_attempt(worker, number, expected, len(closures))
        attempt = self._running[number] = ClosureAttempt(
            number, worker, tuple(closures), first.n_attempts + 1, now, expected, n_queued
        )
        for opened in closures:
            opened.attempts |= {number}
            opened.n_attempts += 1
        if len(closures) > 1 and first.closure.is_exactly_once:
            numbers = tuple(opened.closure.number for opened in closures)
            for opened in closures:
                opened.together = numbers
        return attempt

    def remove(self, number: int) -> tuple[ClosureAttempt, list[OpenClosure]] | None:
        """Removes an attempt that has ended.

        Returns:
          The attempt, and the closures that it decides; None if it has come back before, or was
          lost.
        """
        attempt = self._running.pop(number, None)
        if attempt is None:
            return None
        n_closures = len(attempt.closures)
        self._workers.remove_attempt(attempt.worker, number, attempt.expected, n_closures)
        decided = attempt.decides
        for opened in decided:
            opened.attempts -= {number}
        return attempt, decided

    def cancel(self, opened: OpenClosure) -> None:
        """Cancels the attempts of a closure, except batches that others are waiting for."""
        for number in sorted(opened.attempts):
            attempt = self._running[number]
            is_wanted = any(not o.is_dropped and o is not opened for o in attempt.decides)
            if not attempt.is_cancelled and not is_wanted:
                attempt.is_cancelled = True
                self._emit(CancelAttempt(number))

    def of(self, worker: WorkerIndex) -> list[int]:
        """Returns the attempts on a worker, in the order in which they were assigned."""
        state = self._workers.get(worker)
        return [] if state is None else sorted(state.attempts)

    def n_only_on(self, worker: WorkerIndex) -> int:
        """Returns the number of closures that run on this worker and on no other."""
        own = {*self.of(worker)}
        return sum(bool(opened.attempts) and opened.attempts <= own for opened in self._closures)
