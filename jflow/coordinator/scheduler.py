"""The scheduler of closures: a state machine without clock, thread or socket.

Events go in by method, with the present time where it matters; each returns the actions that follow
from it, which the engine carries out in order. Rules:

- A closure ends exactly once: by `Complete`, `FailClosure`, `Expire`, `FailInput` or `Drop`.
- A worker that is free gets the closure of the highest priority that it may run, the oldest first.
  It is given closures ahead as long as those it has are expected to take less than `AHEAD_S`,
  and a second one if the first takes less than `SECOND_WITHIN_S`.
- Closures of one kind that are next in the order may run as one attempt, a burst.
- An attempt that is lost with its worker puts its closures back at their places in the order. One
  that fails fails its closure; the closures of a burst that fails run again, one by one.
- In exactly-once mode every attempt of a closure has an ordinal. The runtime applies the writes of
  one of them; a later one fences off an earlier one, or is answered with what that has done.
- A burst in exactly-once mode has one effect, whose outcome may be unknown. So its closures stay
  together: they run again as the same burst, and fail with it. It is taken apart only if its latest
  attempt fails and is known to have applied nothing.
- After the first failure the caller calls `cancel_all`, which cancels all that is open; then
  `is_idle` says when nothing is running. A closure that is put back in between is dropped.
- A closure or burst that takes much longer than others of its kind gets one more attempt on an
  idle worker, if that is harmless; the first attempt to end counts.
- A closure that takes results which workers have runs where most of them are, if there is room.
  Results that are lost and wanted are computed again first (`kept.py`).
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator

from jflow.coordinator.attempts import AttemptScheduler
from jflow.coordinator.events import (
    Action,
    Closure,
    Complete,
    Drop,
    Expire,
    FailClosure,
    FailInput,
    Keeping,
    Reopen,
    WorkerIndex,
)
from jflow.coordinator.kept import Failure
from jflow.coordinator.states import ClosureAttempt, OpenClosure, WorkerState


class ClosureScheduler(AttemptScheduler):
    """Decides which closure runs where, and how each of them ends."""

    # Events: closures ---------------------------------------------------------------------------

    def add(self, closure: Closure, now: float) -> list[Action]:
        """Takes a closure. Inputs that are not open have succeeded."""
        opened = self._open[closure.number] = OpenClosure(closure)
        self._n_added = closure.number + 1
        if closure.expires is not None:
            heapq.heappush(self._expiries, (closure.expires, closure.number))
        return [*self._queued(opened), *self._fed(now)]

    def cancel(self, number: int, now: float) -> list[Action]:
        """Cancels a closure for its user; what is running is stopped where it can be."""
        opened = self._open.get(number)
        if opened is None:
            return []
        return [*self._dropped(opened, by_user=True), *self._fed(now)]

    def tick(self, now: float) -> list[Action]:
        """Takes the present time: closures expire, and stragglers are run a second time."""
        actions: list[Action] = []
        while self._expiries and self._expiries[0][0] <= now:
            _, number = heapq.heappop(self._expiries)
            opened = self._open.get(number)
            if opened is not None:
                self.has_error = True
                actions += self._cancelled_attempts(opened)
                actions += self._ended(opened, Expire(number))
        actions += self._fed(now)
        return [*actions, *self._reissued(now)]

    # Events: attempts ---------------------------------------------------------------------------

    def finished(self, number: int, now: float, dispatch_s: float | None = None) -> list[Action]:
        """An attempt has ended well; in exactly-once mode its writes are committed.

        Args:
          number: the attempt.
          now: the time.
          dispatch_s: the processor time that it took to start it, in seconds, if that is known.
        """
        taken = self._taken(number)
        if taken is None:
            return []
        attempt, closures = taken
        self._note(attempt, closures, now, dispatch_s)
        actions: list[Action] = []
        for opened in closures:
            actions += self._completed(opened, attempt)
        return [*actions, *self._fed(now)]

    def failed(
        self, number: int, error: BaseException, now: float, *, is_rolled_back: bool = False
    ) -> list[Action]:
        """An attempt has failed by itself.

        Args:
          number: the attempt.
          error: what it failed with.
          now: the time.
          is_rolled_back: in exactly-once mode, whether neither this attempt nor an earlier one has
            applied anything, or will.
        """
        taken = self._taken(number)
        if taken is None:
            return []
        attempt, opened = taken
        actions: list[Action] = []
        for o in opened:
            if o.together and (o.attempts or attempt.ordinal < o.n_attempts):
                actions += self._put_back(o)  # another attempt decides, which may have applied it
                continue
            is_apart = len(attempt.closures) > 1 and (is_rolled_back or not o.together)
            if is_apart:
                o.is_alone, o.together = True, ()
            if o.together and o.is_dropped:
                actions += self._ended(o, Drop(o.closure.number, o.by_user))
            elif o.is_dropped or is_apart:
                actions += self._put_back(o)
            else:
                self.has_error = True
                actions += self._cancelled_attempts(o)
                actions += self._ended(o, FailClosure(o.closure.number, error))
        return [*actions, *self._fed(now)]

    def lost(self, number: int, now: float) -> list[Action]:
        """An attempt was lost with its worker, or was cancelled: its closures run again."""
        return [*self._lost(number), *self._fed(now)]

    # Events: results that workers have -----------------------------------------------------------

    def want(self, number: int, now: float) -> list[Action]:
        """A result is wanted at the coordinator; if it was lost, it is computed again."""
        again = self.kept.lost(number)
        if again is None or number in self._open:
            return []
        opened = self._open[number] = OpenClosure(again)
        return [Reopen(number), *self._queued(opened), *self._fed(now)]

    def result_read(self, number: int, now: float) -> list[Action]:
        """The coordinator has a copy of a result now, perhaps of one that was lost meanwhile."""
        self.kept.copied(number)
        runs_again = self._open.get(number)
        return [] if runs_again is None else [*self._supplied(runs_again), *self._fed(now)]

    def results_lost(self, numbers: Iterable[int], now: float) -> list[Action]:
        """Results cannot be read where they were."""
        return [*self._without(numbers), *self._fed(now)]

    # Events: workers ----------------------------------------------------------------------------

    def add_worker(self, worker: WorkerIndex) -> None:
        """A worker joins; it is down until `worker_up`."""
        self._gone.pop(worker, None)
        self._workers[worker] = WorkerState()

    def worker_up(self, worker: WorkerIndex, now: float) -> list[Action]:
        """A worker can be reached, and what closures need is there."""
        state = self._workers.get(worker)
        if state is None or state.is_leaving:
            return []
        state.is_up = True
        return [*self._fed(now)]

    def worker_down(self, worker: WorkerIndex, now: float) -> list[Action]:
        """A worker cannot be reached: its attempts are lost."""
        state = self._workers.get(worker)
        if state is None:
            return []
        state.is_up = False
        self._bursts.lose(worker)
        self._durations.forget(worker)
        actions = self._without(self.kept.on(worker))
        for number in sorted(state.attempts):
            actions += self._lost(number)
        return [*actions, *self._fed(now)]

    def worker_leaves(self, worker: WorkerIndex, error: BaseException, now: float) -> list[Action]:
        """A worker is to get no more closures; those that only it may run fail with the error."""
        state = self._workers.get(worker)
        if state is None:
            return []  # it was told before, and has left
        state.is_up, state.is_leaving = False, True
        self._gone[worker] = error
        actions = self._without(self.kept.on(worker))
        for number in self._backlog.numbers():
            opened = self._open[number]
            if opened.closure.worker == worker and number in self._backlog:
                self._backlog.remove(number)
                actions += self._queued(opened)
        if not state.attempts:
            del self._workers[worker]
        return [*actions, *self._fed(now)]

    def burst_ready(self, worker: WorkerIndex, kind: Hashable, now: float) -> list[Action]:
        """Bursts of a kind are compiled for a worker."""
        self._bursts.made(kind, worker)
        return [*self._fed(now)]

    # Events: errors -----------------------------------------------------------------------------

    def cancel_all(self) -> list[Action]:
        """Cancels all that is open, because an error is about to be reported."""
        actions: list[Action] = []
        for number in list(self._open):
            opened = self._open.get(number)
            if opened is not None:
                actions += self._dropped(opened, by_user=False)
        return actions

    def clear(self) -> None:
        """Forgets the error: it was reported."""
        self.has_error = False

    # How closures end ---------------------------------------------------------------------------

    def _ended(self, opened: OpenClosure, action: Action) -> Iterator[Action]:
        """Ends a closure; those that wait for its result run now, or end with it."""
        number = opened.closure.number
        del self._open[number]
        if number in self._backlog:
            self._backlog.remove(number)
        failure = _failure(action)
        if failure is not None:
            self.kept.fail(number, failure)
        yield action
        if failure is None:
            yield from self._supplied(opened)
            return
        for dependent in opened.dependents:
            waiting = self._open.get(dependent)
            if waiting is not None:
                yield from self._without_input(waiting, number, failure)

    def _supplied(self, opened: OpenClosure) -> Iterator[Action]:
        """The result of a closure is there; those that wait for it run, if for nothing else."""
        dependents, opened.dependents = opened.dependents, ()
        for dependent in dependents:
            waiting = self._open.get(dependent)
            if waiting is None:
                continue
            waiting.missing -= {opened.closure.number}
            if not waiting.missing:
                yield from self._queued(waiting)

    def _without_input(
        self, opened: OpenClosure, source: int, failure: Failure
    ) -> Iterator[Action]:
        """Ends a closure of which an input has failed, or was cancelled."""
        number = opened.closure.number
        if failure is Failure.DROPPED:
            yield from self._ended(opened, Drop(number, by_user=False))
        else:
            self.has_error = True
            yield from self._ended(opened, FailInput(number, source))

    def _completed(self, opened: OpenClosure, attempt: ClosureAttempt) -> list[Action]:
        number = opened.closure.number
        actions = self._cancelled_attempts(opened)
        if opened.closure.keeping is Keeping.NOT:
            self.kept.forget(number)
        else:
            self.kept.add(opened.closure, attempt.worker)
            if not self.is_up(attempt.worker):  # it leaves
                self.kept.lose([number])
        position = attempt.closures.index(number)
        return [*actions, *self._ended(opened, Complete(number, attempt.number, position))]

    def _dropped(self, opened: OpenClosure, *, by_user: bool) -> list[Action]:
        """Cancels a closure; while an attempt of it is running, that may still succeed."""
        if not opened.is_dropped:
            opened.is_dropped, opened.by_user = True, by_user
        if opened.attempts:
            return self._cancelled_attempts(opened)
        if self._is_wanted(opened):
            return []
        actions: list[Action] = []
        for one in self._together(opened):
            actions += self._ended(one, Drop(one.closure.number, one.by_user))
        return actions

    def _together(self, opened: OpenClosure) -> list[OpenClosure]:
        """A closure, or all of its burst if they have one effect."""
        return [self._open[n] for n in opened.together if n in self._open] or [opened]

    def _is_wanted(self, opened: OpenClosure) -> bool:
        """Whether a closure has to run, for itself or for others of its burst."""
        return not all(one.is_dropped for one in self._together(opened))

    def _put_back(self, opened: OpenClosure) -> list[Action]:
        """Queues a closure again at its place, unless it is not wanted any more."""
        if opened.attempts:
            return []  # the other attempt goes on
        if self.has_error or not self._is_wanted(opened):
            return [*self._ended(opened, Drop(opened.closure.number, opened.by_user))]
        return self._queued(opened)

    def _queued(self, opened: OpenClosure) -> list[Action]:
        """Queues a closure that has its inputs, unless the only worker that may run it has left."""
        for source in opened.closure.inputs:
            # It may have failed while this closure ran, or waited for something else.
            if (failure := self.kept.failure(source)) is not None:
                return [*self._without_input(opened, source, failure)]
        actions = self._awaited(opened)
        if actions or opened.missing:
            return actions
        worker = opened.closure.worker
        error = None if worker is None else self._gone.get(worker)
        if error is None:
            self._backlog.add(opened.closure)
            return []
        self.has_error = True
        return [*self._ended(opened, FailClosure(opened.closure.number, error))]

    def _awaited(self, opened: OpenClosure) -> list[Action]:
        """Makes a closure wait for inputs that have not ended, or have to be computed again."""
        actions: list[Action] = []
        for source in opened.closure.inputs:
            again = None if source in self._open else self.kept.lost(source)
            if again is not None:
                self._open[source] = OpenClosure(again)
                actions.append(Reopen(source))
            if self._is_awaited(source) and source not in opened.missing:
                opened.missing |= {source}
                self._open[source].dependents += (opened.closure.number,)
            if again is not None:
                actions += self._queued(self._open[source])
            if opened.closure.number not in self._open:
                break  # the input has failed at once
        return actions

    def _without(self, numbers: Iterable[int]) -> list[Action]:
        """Results were lost: closures that wait for a worker now wait for those inputs again."""
        lost = self.kept.lose(numbers)
        actions: list[Action] = []
        for number in self._backlog.numbers() if lost else ():
            opened = self._open.get(number)
            if opened is None or number not in self._backlog:
                continue
            if not lost.isdisjoint(opened.closure.inputs):
                self._backlog.remove(number)
                actions += self._queued(opened)
        return actions

    def _lost(self, number: int) -> list[Action]:
        taken = self._taken(number)
        actions: list[Action] = []
        for opened in taken[1] if taken else ():
            actions += self._put_back(opened)
        return actions


def _failure(action: Action) -> Failure | None:
    """Why a closure that has ended has no result; None if it has one."""
    if isinstance(action, Complete):
        return None
    return Failure.DROPPED if isinstance(action, Drop) else Failure.FAILED
