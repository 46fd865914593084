"""`Assigner`: which worker is given which closures next. Pure.

Part of the scheduler, whose rules are in `scheduler.py`. How closures end is not decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jflow.training.coordinator.attempts import Attempts, ClosureAttempt
from jflow.training.coordinator.batches import Batches
from jflow.training.coordinator.durations import SECOND_WITHIN_S, Durations
from jflow.training.coordinator.events import Action, Closure, Dispatch, PrepareBatch, WorkerIndex
from jflow.training.coordinator.open_closures import Backlog, OpenClosure
from jflow.training.coordinator.result_locations import ResultLocations
from jflow.training.coordinator.workers import Workers


class Assigner:
    """Gives closures of the backlog to workers with room, and stragglers to idle ones.

    After `assign`, no worker with room may run a closure of the backlog, except closures that wait
    until they make a batch.

    Args:
      backlog: the closures that are ready.
      attempts: takes what is given to workers.
      workers: the workers.
      locations: where inputs are.
      emit: takes an action.

    Attributes:
      durations: how long closures have taken.
      batches: which closures run in batches.
    """

    def __init__(
        self,
        backlog: Backlog,
        attempts: Attempts,
        workers: Workers,
        locations: ResultLocations,
        emit: Callable[[Action], None],
    ) -> None:
        self._backlog, self._attempts, self._workers = backlog, attempts, workers
        self._locations, self._emit = locations, emit
        self.durations = Durations()
        self.batches = Batches(self.durations)

    # What is learned from workers ---------------------------------------------------------------

    def note(self, attempt: ClosureAttempt, now: float, dispatch_s: float | None) -> None:
        """Records the times of closures and of the dispatch of an attempt that succeeded."""
        state = self._workers.get(attempt.worker)
        if state is None:
            return
        start = max(attempt.started, state.last_end)
        state.last_end = now
        kind, n = attempt.kind, len(attempt.closures)
        self.durations.note_queued(kind, now - attempt.started, attempt.n_queued)
        if dispatch_s is not None and n == 1:
            self.durations.note_dispatch(dispatch_s)
        for one in (kind, (kind, n > 1)):
            self.durations.note(one, attempt.worker, now - start, n)
        if n > 1:
            others = [worker for worker, _ in self._workers.items() if worker != attempt.worker]
            self.batches.ended(kind, attempt.worker, others, n, start, now)

    def forget_worker(self, worker: WorkerIndex) -> None:
        """Drops what is known of a worker that was lost."""
        self.batches.forget_worker(worker)
        self.durations.forget_worker(worker)

    # Ready closures -----------------------------------------------------------------------------

    def assign(self, now: float) -> None:
        """Gives closures to workers with room, the least loaded first."""
        while len(self._backlog):
            free = [
                (state.load, worker)
                for worker, state in self._workers.items()
                if state.has_room and self._is_wanted_by(worker, len(state.attempts), now)
            ]
            if not free:
                return
            _, worker = min(free)
            first = self._backlog.first(worker)
            assert first is not None
            closure = first.closure
            if closure.inputs and closure.worker is None:
                near = self._locations.nearest(closure, [worker for _, worker in free])
                worker = worker if near is None else near
            if self.batches.wanted(closure, worker, self._backlog.size_for(worker)):
                self._emit(PrepareBatch(worker, closure.number))
            self._start(worker, self._next(worker, first, now), now)

    def _is_wanted_by(self, worker: WorkerIndex, n_ahead: int, now: float) -> bool:
        """Returns whether to assign a closure to a worker that has room and so many attempts."""
        n_waiting = self._backlog.size_for(worker)
        first = self._backlog.first(worker) if n_waiting else None
        if first is None or n_waiting >= first.closure.batch_size or not _may_join(first):
            return first is not None
        return not self.batches.holds_back(first.closure, worker, n_ahead, len(self._workers), now)

    def _next(self, worker: WorkerIndex, first: OpenClosure, now: float) -> list[OpenClosure]:
        """Takes the next closures for a worker from the backlog: one, or a batch."""
        if first.together:
            return [self._backlog.remove(number) for number in first.together]
        closure = first.closure
        closures = [self._backlog.remove(closure.number)]
        least = self.batches.least(closure, len(self._workers))
        is_short = self._backlog.size_for(worker) < least - 1
        is_ready = self.batches.is_ready(closure.kind, worker, now)
        if is_short or not is_ready or not _may_join(first):
            return closures
        while len(closures) < closure.batch_size:
            following = self._backlog.first(worker)
            is_alike = following is not None and following.closure.kind == closure.kind
            if following is None or not is_alike or not _may_join(following):
                break
            closures.append(self._backlog.remove(following.closure.number))
        if len(closures) < closure.batch_size:
            for opened in closures[1:]:
                self._backlog.add(opened)
            return closures[:1]
        return closures

    def _start(self, worker: WorkerIndex, closures: Sequence[OpenClosure], now: float) -> None:
        """Starts closures on a worker as one attempt."""
        first, n = closures[0].closure, len(closures)
        expected = self.durations.expected((first.kind, n > 1), worker)
        load = SECOND_WITHIN_S if expected is None else expected * n
        if first.needs_latest:
            load = max(load, SECOND_WITHIN_S)
        attempt = self._attempts.add(worker, closures, load, now)
        numbers = tuple([opened.closure.number for opened in closures])
        places = self._locations.places(first)
        self._emit(Dispatch(attempt.number, worker, numbers, attempt.ordinal, places))

    # Stragglers ---------------------------------------------------------------------------------

    def reissue(self, now: float) -> None:
        """Gives stragglers a second attempt, on workers that have nothing to do."""
        if len(self._backlog):
            return
        idle = [w for w, state in self._workers.items() if state.is_up and not state.attempts]
        for attempt in [*self._attempts] if idle else ():
            closures = attempt.decides
            is_whole = len(closures) == len(attempt.closures)
            if not is_whole or not self._straggles(attempt, now):
                continue
            is_reissued = any(opened.is_reissued for opened in closures)
            is_wanted = not all(opened.is_dropped for opened in closures)
            is_free = all(self._may_run_again(opened.closure) for opened in closures)
            if is_reissued or not is_wanted or not is_free:
                continue
            for opened in closures:
                opened.is_reissued = True
            self._start(idle.pop(), closures, now)
            if not idle:
                return

    def _may_run_again(self, closure: Closure) -> bool:
        """Whether a second attempt does no harm on any worker and its inputs are available."""
        is_lost = any(self._locations.is_lost(number) for number in closure.inputs)
        return closure.worker is None and closure.is_repeatable and not is_lost

    def _straggles(self, attempt: ClosureAttempt, now: float) -> bool:
        n = len(attempt.closures)
        is_late = self.durations.straggles((attempt.kind, n > 1), now - attempt.started, n)
        return is_late and not attempt.is_cancelled


def _may_join(opened: OpenClosure) -> bool:
    """Returns whether a closure may be batched with others."""
    closure = opened.closure
    if closure.batch_size == 1 or opened.is_alone:
        return False
    # An earlier attempt by itself has an effect of its own, and may have been applied. What
    # stays together must be able to run on any worker, and for as long as it takes.
    is_free = closure.worker is None and closure.expires is None and not opened.n_attempts
    return is_free or not closure.is_exactly_once
