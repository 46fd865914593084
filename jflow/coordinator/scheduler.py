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

from jflow.coordinator.durations import SECOND_WITHIN_S
from jflow.coordinator.events import (
    Action,
    CancelAttempt,
    Closure,
    Complete,
    Dispatch,
    Drop,
    Expire,
    FailClosure,
    FailInput,
    Keeping,
    PrepareBurst,
    Reopen,
    WorkerIndex,
)
from jflow.coordinator.kept import Failure
from jflow.coordinator.scheduler_state import SchedulerState
from jflow.coordinator.states import ClosureAttempt, OpenClosure, WorkerState


class ClosureScheduler(SchedulerState):
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

    def finished(self, number: int, now: float) -> list[Action]:
        """An attempt has ended well; in exactly-once mode its writes are committed."""
        attempt = self._taken(number)
        if attempt is None:
            return []
        self._note(attempt, now)
        actions: list[Action] = []
        for opened in self._opened(attempt):
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
        attempt = self._taken(number)
        if attempt is None:
            return []
        opened = self._opened(attempt)
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
        is_there = failure is None or self.kept.fail(number, failure)
        yield action
        for dependent in opened.dependents:
            waiting = self._open.get(dependent)
            if waiting is None:
                continue
            waiting.missing.discard(number)
            if not is_there:
                yield from self._without_input(waiting, number, failure)
            elif not waiting.missing:
                yield from self._queued(waiting)

    def _without_input(
        self, opened: OpenClosure, source: int, failure: Failure | None
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
            if source in self._open and source not in opened.missing:
                opened.missing.add(source)
                self._open[source].dependents.append(opened.closure.number)
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

    # Attempts -----------------------------------------------------------------------------------

    def _taken(self, number: int) -> ClosureAttempt | None:
        """Takes out an attempt that has come back; None if it was taken out before."""
        attempt = self._attempts.pop(number, None)
        if attempt is None:
            return None
        state = self._workers[attempt.worker]
        state.attempts.discard(number)
        state.load = state.load - attempt.expected if state.attempts else 0.0
        if state.is_leaving and not state.attempts:
            del self._workers[attempt.worker]
        for closure in attempt.closures:
            opened = self._open.get(closure)
            if opened is not None:
                opened.attempts.discard(number)
        return attempt

    def _opened(self, attempt: ClosureAttempt) -> list[OpenClosure]:
        """The closures of an attempt that have not ended."""
        return [self._open[number] for number in attempt.closures if number in self._open]

    def _lost(self, number: int) -> list[Action]:
        attempt = self._taken(number)
        if attempt is None:
            return []
        actions: list[Action] = []
        for opened in self._opened(attempt):
            actions += self._put_back(opened)
        return actions

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

    def _note(self, attempt: ClosureAttempt, now: float) -> None:
        """Learns how long closures take from an attempt that ended well."""
        state = self._workers.get(attempt.worker)
        opened = self._opened(attempt)
        if state is None or not opened:
            return
        begun = max(attempt.started, state.last_end)
        state.last_end = now
        n = len(attempt.closures)
        self._durations.note((opened[0].closure.kind, n > 1), now - begun, n)

    # Dispatch -----------------------------------------------------------------------------------

    def _fed(self, now: float) -> Iterator[Action]:
        """Gives closures to workers with room, the least loaded first."""
        while len(self._backlog):
            free = [
                (state.load, worker)
                for worker, state in self._workers.items()
                if state.has_room and self._backlog.size_for(worker)
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
            yield self._dispatched(worker, self._next(worker, first), now)

    def _next(self, worker: WorkerIndex, first: Closure) -> list[Closure]:
        """Takes the closures that the worker runs next: the first one, or a burst."""
        if together := self._open[first.number].together:
            for number in together:
                self._backlog.remove(number)
            return [self._open[number].closure for number in together]
        taken = [first]
        self._backlog.remove(first.number)
        is_short = self._backlog.size_for(worker) < first.burst - 1
        if is_short or not self._bursts.is_ready(first.kind, worker) or not self._may_join(first):
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
        expected = self._durations.expected((closures[0].kind, n > 1))
        load = SECOND_WITHIN_S if expected is None else expected * n
        numbers = tuple(closure.number for closure in closures)
        n_attempts = self._open[numbers[0]].n_attempts + 1
        attempt = ClosureAttempt(self._n_attempts, worker, numbers, n_attempts, now, load)
        self._attempts[attempt.number] = attempt
        state.attempts.add(attempt.number)
        state.load += load
        for number in numbers:
            self._open[number].attempts.add(attempt.number)
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

    def _may_run_again(self, closure: Closure) -> bool:
        """Whether a second attempt anywhere does no harm, and would find its inputs."""
        is_lost = any(n in self._open or self.kept.is_lost(n) for n in closure.inputs)
        return closure.worker is None and closure.is_repeatable and not is_lost

    def _straggles(self, attempt: ClosureAttempt, now: float) -> bool:
        kind, n = self._open[attempt.closures[0]].closure.kind, len(attempt.closures)
        is_late = self._durations.straggles((kind, n > 1), now - attempt.started, n)
        return is_late and not attempt.is_cancelled


def _failure(action: Action) -> Failure | None:
    """Why a closure that has ended has no result; None if it has one."""
    if isinstance(action, Complete):
        return None
    return Failure.DROPPED if isinstance(action, Drop) else Failure.FAILED
