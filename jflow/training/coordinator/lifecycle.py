"""`Lifecycle`: how closures wait, become ready and end. Pure.

Part of the scheduler, whose rules are in `scheduler.py`. Where closures run is not decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jflow.training.coordinator.attempts import Attempts, ClosureAttempt
from jflow.training.coordinator.events import (
    Action,
    Closure,
    Complete,
    Drop,
    Expire,
    FailClosure,
    FailInput,
    Keeping,
    Reopen,
)
from jflow.training.coordinator.open_closures import Backlog, OpenClosure, OpenClosures
from jflow.training.coordinator.result_locations import Failure, ResultLocations
from jflow.training.coordinator.workers import Workers

_NoResult = FailClosure | Expire | FailInput | Drop
"""How a closure ends without a result."""


class Lifecycle:
    """Moves closures from one state to the next, and ends each of them once.

    Between events an open closure is in one of three states: it *waits* for inputs that are
    missing, is *ready* in the backlog, or *runs* in its attempts.

    Args:
      closures: those that are open.
      backlog: those that are ready.
      attempts: those that run.
      workers: the workers.
      locations: the results that workers have.
      emit: takes an action.

    Attributes:
      has_error: whether a closure has failed since this was last set to False.
    """

    def __init__(
        self,
        closures: OpenClosures,
        backlog: Backlog,
        attempts: Attempts,
        workers: Workers,
        locations: ResultLocations,
        emit: Callable[[Action], None],
    ) -> None:
        self.has_error = False
        self._closures, self._backlog, self._attempts = closures, backlog, attempts
        self._workers, self._locations, self._emit = workers, locations, emit

    # Closures that wait, and become ready -------------------------------------------------------

    def queue(self, opened: OpenClosure) -> None:
        """Makes a closure ready, unless it waits for inputs or can never run."""
        closure = opened.closure
        if closure.inputs and not self._has_inputs(opened):
            return
        error = self._workers.departure(closure.worker)
        if error is None:
            self._backlog.add(opened)
        else:
            self._end(opened, FailClosure(closure.number, error))

    def put_back(self, opened: OpenClosure) -> None:
        """Queues a closure again at its former place, unless it is no longer wanted."""
        if opened.attempts:
            return  # the other attempt goes on
        if self.has_error or not self._closures.is_wanted(opened):
            self._end(opened, Drop(opened.closure.number, opened.by_user))
        else:
            self.queue(opened)

    def requeue(self, is_affected: Callable[[Closure], bool]) -> None:
        """Queues ready closures again after a loss: some wait now, others can never run."""
        for number in self._backlog.numbers():
            opened = self._backlog.get(number)  # None if it has ended with one before it
            if opened is not None and is_affected(opened.closure):
                self._backlog.remove(number)
                self.queue(opened)

    def mark_results_lost(self, numbers: Iterable[int]) -> None:
        """Marks results as lost; ready closures that take them wait for them again."""
        lost = self._locations.mark_lost(numbers)
        if lost:
            self.requeue(lambda closure: not lost.isdisjoint(closure.inputs))

    def reopen(self, number: int) -> bool:
        """Runs a closure again if its result was lost; returns whether it was."""
        again = None if number in self._closures else self._locations.lost_closure(number)
        if again is None:
            return False
        self._emit(Reopen(number))
        self.queue(self._closures.add(again))
        return True

    def supply(self, opened: OpenClosure) -> None:
        """Records that a result is available; closures that wait for nothing else become ready."""
        dependents, opened.dependents = opened.dependents, ()
        for dependent in dependents:
            waiting = self._closures.get(dependent)
            if waiting is None:
                continue
            waiting.missing -= {opened.closure.number}
            if not waiting.missing:
                self.queue(waiting)

    def _has_inputs(self, opened: OpenClosure) -> bool:
        """Whether the inputs of a closure are there; if not, it now waits for them or has ended."""
        inputs = opened.closure.inputs
        # One may have failed while this closure ran, or waited for something else.
        if any(self._ends_with(opened, source) for source in inputs):
            return False
        for source in inputs:
            if self.reopen(source) and self._ends_with(opened, source):
                return False
            awaited = self._closures.get(source)
            if awaited is None or self._locations.has_copy(source) or source in opened.missing:
                continue
            opened.wait_for(awaited)
        return not opened.missing

    # Closures that end --------------------------------------------------------------------------

    def complete(self, opened: OpenClosure, attempt: ClosureAttempt) -> None:
        """Ends a closure of which an attempt succeeded."""
        closure = opened.closure
        self._attempts.cancel(opened)
        if closure.keeping is Keeping.NOT:
            self._locations.forget(closure.number)
        else:
            self._locations.add(closure, attempt.worker)
            if not self._workers.is_up(attempt.worker):  # it leaves
                self._locations.mark_lost([closure.number])
        position = attempt.closures.index(opened)
        self._close(opened, Complete(closure.number, attempt.number, position))
        self.supply(opened)

    def attempt_failed(
        self,
        opened: OpenClosure,
        attempt: ClosureAttempt,
        error: BaseException,
        *,
        is_rolled_back: bool,
    ) -> None:
        """Handles an attempt that failed by itself; see `ClosureScheduler.failed`."""
        number = opened.closure.number
        is_latest = not opened.attempts and attempt.ordinal >= opened.n_attempts
        if opened.together and not is_latest:
            self.put_back(opened)  # another attempt decides, which may have applied it
        elif len(attempt.closures) > 1 and (is_rolled_back or not opened.together):
            opened.is_alone, opened.together = True, ()
            self.put_back(opened)
        elif opened.is_dropped and opened.together:
            self._end(opened, Drop(number, opened.by_user))
        elif opened.is_dropped:
            self.put_back(opened)
        else:
            self._attempts.cancel(opened)
            self._end(opened, FailClosure(number, error))

    def expire(self, opened: OpenClosure) -> None:
        """Ends a closure whose deadline has passed."""
        self._attempts.cancel(opened)
        self._end(opened, Expire(opened.closure.number))

    def drop(self, opened: OpenClosure, *, by_user: bool) -> None:
        """Cancels a closure; an attempt that is running may still succeed."""
        if not opened.is_dropped:
            opened.is_dropped, opened.by_user = True, by_user
        if opened.attempts:
            self._attempts.cancel(opened)
        elif not self._closures.is_wanted(opened):
            for one in self._closures.together(opened):
                self._end(one, Drop(one.closure.number, one.by_user))

    def _ends_with(self, opened: OpenClosure, source: int) -> bool:
        """Ends a closure whose input can never be computed; returns whether it did."""
        failure = self._locations.failure(source)
        if failure is not None:
            self._end(opened, _without_input(opened, source, failure))
        return failure is not None

    def _end(self, opened: OpenClosure, action: _NoResult) -> None:
        """Ends a closure without a result, and the closures that wait for it."""
        ending = [(opened, action)]
        while ending:  # a loop, because chains of closures have any length
            opened, action = ending.pop()
            number = opened.closure.number
            if number not in self._closures:
                continue  # two of its inputs have ended so
            self._close(opened, action)
            failure = Failure.DROPPED if isinstance(action, Drop) else Failure.FAILED
            self.has_error |= failure is Failure.FAILED
            self._locations.fail(number, failure)
            waiting = map(self._closures.get, reversed(opened.dependents))
            ending += [(one, _without_input(one, number, failure)) for one in waiting if one]

    def _close(self, opened: OpenClosure, action: Complete | _NoResult) -> None:
        self._closures.remove(opened)
        if opened.closure.number in self._backlog:
            self._backlog.remove(opened.closure.number)
        self._emit(action)


def _without_input(opened: OpenClosure, source: int, failure: Failure) -> _NoResult:
    """Returns how a closure ends whose input failed or was cancelled."""
    if failure is Failure.DROPPED:
        return Drop(opened.closure.number, by_user=False)
    return FailInput(opened.closure.number, source)
