"""`AttemptScheduler`: the attempts of closures, and what workers are given next. Pure.

Part of the scheduler, whose rules are in `scheduler.py`. How closures end is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterator

from jflow.coordinator.durations import SECOND_WITHIN_S
from jflow.coordinator.events import (
    Action,
    CancelAttempt,
    Closure,
    Dispatch,
    PrepareBurst,
    WorkerIndex,
)
from jflow.coordinator.scheduler_state import SchedulerState
from jflow.coordinator.states import ClosureAttempt, OpenClosure


class AttemptScheduler(SchedulerState):
    """Gives closures that wait to workers, and keeps what it has given."""

    # Attempts -----------------------------------------------------------------------------------

    def _taken(self, number: int) -> tuple[ClosureAttempt, list[OpenClosure]] | None:
        """Takes out an attempt that has come back, and what it was of; None if it came before."""
        attempt = self._attempts.pop(number, None)
        if attempt is None:
            return None
        state = self._workers[attempt.worker]
        state.attempts.discard(number)
        state.load = state.load - attempt.expected if state.attempts else 0.0
        state.n_closures -= len(attempt.closures)
        if state.is_leaving and not state.attempts:
            del self._workers[attempt.worker]
        closures = self._opened(attempt)
        for opened in closures:
            opened.attempts -= {number}
        return attempt, closures

    def _opened(self, attempt: ClosureAttempt) -> list[OpenClosure]:
        """The closures of an attempt that have not ended.

        One that has ended, and runs again for its result, has nothing to do with attempts that it
        had before.
        """
        found = (self._open.get(number) for number in attempt.closures)
        return [one for one in found if one is not None and attempt.number in one.attempts]

    def _cancelled_attempts(self, opened: OpenClosure) -> list[Action]:
        """Cancels the attempts of a closure, except bursts that others are waiting for."""
        actions: list[Action] = []
        for number in sorted(opened.attempts):
            attempt = self._attempts[number]
            wanted = [o for o in self._opened(attempt) if not o.is_dropped and o is not opened]
            if not attempt.is_cancelled and not wanted:
                attempt.is_cancelled = True
                actions.append(CancelAttempt(number))
        return actions

    def _note(
        self,
        attempt: ClosureAttempt,
        opened: list[OpenClosure],
        now: float,
        dispatch_s: float | None,
    ) -> None:
        """Learns how long closures take, and their dispatches, from an attempt that ended well."""
        state = self._workers.get(attempt.worker)
        if state is None or not opened:
            return
        begun = max(attempt.started, state.last_end)
        state.last_end = now
        kind, n = opened[0].closure.kind, len(attempt.closures)
        self._durations.note_queued(kind, now - attempt.started, attempt.n_queued)
        if dispatch_s is not None and n == 1:
            self._durations.note_dispatch(dispatch_s)
        for one in (kind, (kind, n > 1)):
            self._durations.note(one, attempt.worker, now - begun, n)
        if n > 1:
            others = [worker for worker in self._workers if worker != attempt.worker]
            self._bursts.ended(kind, attempt.worker, others, n, begun, now)

    # Dispatch -----------------------------------------------------------------------------------

    def _fed(self, now: float) -> Iterator[Action]:
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
            if first.inputs and first.worker is None:
                near = self.kept.nearest(first, [worker for _, worker in free])
                worker = worker if near is None else near
            if self._bursts.wanted(first, worker, self._backlog.size_for(worker)):
                yield PrepareBurst(worker, first.number)
            yield self._dispatched(worker, self._next(worker, first, now), now)

    def _is_wanted_by(self, worker: WorkerIndex, n_ahead: int, now: float) -> bool:
        """Whether a worker with room and so many attempts is to be given a closure now."""
        n_waiting = self._backlog.size_for(worker)
        first = self._backlog.first(worker) if n_waiting else None
        if first is None or n_waiting >= first.burst or not self._may_join(first):
            return first is not None
        return not self._bursts.holds_back(first, worker, n_ahead, len(self._workers), now)

    def _next(self, worker: WorkerIndex, first: Closure, now: float) -> list[Closure]:
        """Takes the closures that the worker runs next: the first one, or a burst."""
        if together := self._open[first.number].together:
            for number in together:
                self._backlog.remove(number)
            return [self._open[number].closure for number in together]
        taken = [first]
        self._backlog.remove(first.number)
        least = self._bursts.least(first, len(self._workers))
        is_short = self._backlog.size_for(worker) < least - 1
        is_ready = self._bursts.is_ready(first.kind, worker, now)
        if is_short or not is_ready or not self._may_join(first):
            return taken
        while len(taken) < first.burst:
            following = self._backlog.first(worker)
            if following is None or following.kind != first.kind or not self._may_join(following):
                break
            self._backlog.remove(following.number)
            taken.append(following)
        if len(taken) < first.burst:
            for closure in taken[1:]:
                self._backlog.add(closure)
            return taken[:1]
        return taken

    def _may_join(self, closure: Closure) -> bool:
        opened = self._open[closure.number]
        if closure.burst == 1 or opened.is_alone:
            return False
        # An earlier attempt by itself has an effect of its own, and may have been applied. What
        # stays together must be able to run on any worker, and for as long as it takes.
        is_free = closure.worker is None and closure.expires is None and not opened.n_attempts
        return is_free or not closure.is_exactly_once

    def _dispatched(self, worker: WorkerIndex, closures: list[Closure], now: float) -> Dispatch:
        self._n_attempts += 1
        state = self._workers[worker]
        n = len(closures)
        expected = self._durations.expected((closures[0].kind, n > 1), worker)
        load = SECOND_WITHIN_S if expected is None else expected * n
        numbers = tuple(closure.number for closure in closures)
        n_attempts = self._open[numbers[0]].n_attempts + 1
        state.n_closures += n
        n_queued = state.n_closures
        attempt = ClosureAttempt(self._n_attempts, worker, numbers, n_attempts, now, load, n_queued)
        self._attempts[attempt.number] = attempt
        state.attempts.add(attempt.number)
        state.load += load
        for number in numbers:
            self._open[number].attempts |= {attempt.number}
            self._open[number].n_attempts += 1
            if n > 1 and closures[0].is_exactly_once:
                self._open[number].together = numbers
        places = self.kept.places(closures[0])
        return Dispatch(attempt.number, worker, numbers, n_attempts, places)

    def _reissued(self, now: float) -> Iterator[Action]:
        """Second attempts of stragglers, on workers that have nothing to do."""
        if len(self._backlog) or self.has_error:
            return
        idle = [w for w, state in self._workers.items() if state.is_up and not state.attempts]
        for attempt in list(self._attempts.values()) if idle else ():
            opened = self._opened(attempt)
            if len(opened) < len(attempt.closures) or not self._straggles(attempt, now):
                continue
            closures = [o.closure for o in opened]
            is_free = all(self._may_run_again(one) for one in closures)
            is_reissued = any(o.is_reissued for o in opened)
            if not is_free or is_reissued or all(o.is_dropped for o in opened):
                continue
            for o in opened:
                o.is_reissued = True
            yield self._dispatched(idle.pop(), closures, now)
            if not idle:
                return

    def _is_awaited(self, number: int) -> bool:
        """Whether a closure runs or waits, and there is no copy of an earlier result of it."""
        return number in self._open and not self.kept.has_copy(number)

    def _may_run_again(self, closure: Closure) -> bool:
        """Whether a second attempt anywhere does no harm, and would find its inputs."""
        is_lost = any(self._is_awaited(n) or self.kept.is_lost(n) for n in closure.inputs)
        return closure.worker is None and closure.is_repeatable and not is_lost

    def _straggles(self, attempt: ClosureAttempt, now: float) -> bool:
        kind, n = self._open[attempt.closures[0]].closure.kind, len(attempt.closures)
        is_late = self._durations.straggles((kind, n > 1), now - attempt.started, n)
        return is_late and not attempt.is_cancelled
