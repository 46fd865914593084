"""Workers that are slower than others, in simulated time: what they are given, and what waits."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable

from jflow.training.coordinator.batches import Batches
from jflow.training.coordinator.durations import Durations
from jflow.training.coordinator.events import Action, Closure, Complete, Dispatch, PrepareBatch
from jflow.training.coordinator.scheduler import ClosureScheduler

EACH_S, ATTEMPT_S, MESSAGE_S, DISPATCH_S, COMPILE_S = 1.4e-3, 4e-4, 5e-4, 4e-4, 0.5
WINDOW, BATCH_SIZE = 400, 32


class Workers:
    """A scheduler, workers that run what it gives them, and a program that wants all in order.

    The program has `WINDOW` closures open, and schedules one when the oldest of them has ended.

    Args:
      slowness: how many times as long as `EACH_S` a closure takes on each worker.
    """

    def __init__(self, *slowness: float) -> None:
        self.slowness = [*slowness]
        self.now, self.n_ended = 0.0, 0
        self.sizes: list[list[int]] = [[] for _ in slowness]
        self._free_at = [0.0 for _ in slowness]
        self._completed: set[int] = set()
        self._n_scheduled = 0
        self._events: list[tuple[float, int, Dispatch | PrepareBatch]] = []
        self._order = itertools.count()
        self._scheduler = ClosureScheduler(len(slowness))
        for worker in range(len(slowness)):
            self._take(self._scheduler.worker_up(worker, 0.0))

    def run(self, seconds: float) -> float:
        """Lets time pass; how many closures the program had in a second."""
        until, before = self.now + seconds, self.n_ended
        while self.now < until:
            self._schedule()
            self.now, _, action = heapq.heappop(self._events)
            if isinstance(action, Dispatch):
                self._take(self._scheduler.finished(action.attempt, self.now, DISPATCH_S))
            else:
                self._take(self._scheduler.batch_ready(action.worker, "k", self.now))
        return (self.n_ended - before) / seconds

    def _schedule(self) -> None:
        while True:
            while self.n_ended in self._completed:
                self.n_ended += 1
            if self._n_scheduled == self.n_ended + WINDOW:
                return
            closure = Closure(self._n_scheduled, kind="k", batch_size=BATCH_SIZE)
            self._n_scheduled += 1
            self._take(self._scheduler.add(closure, self.now))

    def _take(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Dispatch(_, worker, closures):
                    self.sizes[worker].append(len(closures))
                    seconds = ATTEMPT_S + len(closures) * EACH_S * self.slowness[worker]
                    begun = max(self.now + MESSAGE_S, self._free_at[worker])
                    self._free_at[worker] = begun + seconds
                    self._at(begun + seconds + MESSAGE_S, action)
                case PrepareBatch():
                    self._at(self.now + COMPILE_S, action)
                case Complete(number):
                    self._completed.add(number)

    def _at(self, when: float, action: Dispatch | PrepareBatch) -> None:
        heapq.heappush(self._events, (when, next(self._order), action))


def test_a_worker_ten_times_slower_does_not_hold_up_results_that_are_wanted_in_order() -> None:
    two, slow = Workers(1, 1), Workers(10, 1, 1)
    for workers in (two, slow):
        workers.run(3.0)
    assert slow.run(5.0) > 0.9 * two.run(5.0)


def test_a_worker_that_is_fast_again_has_batches_again() -> None:
    workers = Workers(10, 1, 1)
    workers.run(4.0)
    workers.slowness[0] = 1
    workers.run(6.0)
    workers.sizes[0].clear()
    workers.run(2.0)
    assert sum(workers.sizes[0]) > 500
    assert workers.sizes[0].count(BATCH_SIZE) > 15


def test_a_worker_rests_after_two_late_batches_in_a_row_until_one_is_in_time() -> None:
    durations, closure = Durations(), Closure(0, kind="k", batch_size=BATCH_SIZE)
    for worker in range(2):
        durations.note("k", worker, EACH_S)
        durations.note(("k", True), worker, BATCH_SIZE * EACH_S, BATCH_SIZE)
    durations.note_queued("k", EACH_S, 1)
    durations.note_dispatch(DISPATCH_S)
    batches = Batches(durations)
    assert batches.wanted(closure, 0, BATCH_SIZE)
    batches.compiled("k", 0)

    late, in_time = 5 * BATCH_SIZE * EACH_S, 3 * BATCH_SIZE * EACH_S
    for begun, seconds, is_ready in (
        (0.0, late, True),
        (1.0, in_time, True),
        (2.0, late, True),
        (3.0, late, False),
        (4.0, in_time, True),
    ):
        batches.ended("k", 0, [1], BATCH_SIZE, begun, begun + seconds)
        assert batches.is_ready("k", 0, begun + seconds) is is_ready
    for begun in (5.0, 6.0):
        batches.ended("k", 0, [1], BATCH_SIZE, begun, begun + late)
    assert not batches.is_ready("k", 0, 6.0 + 8 * late)
    assert batches.is_ready("k", 0, 6.0 + 10 * late)
