"""Batches of closures: when they run, and how they end, are cancelled and are taken apart."""

from __future__ import annotations

from jflow.training.coordinator.events import (
    Action,
    Closure,
    Complete,
    Dispatch,
    Drop,
    FailClosure,
    PrepareBatch,
)
from jflow.training.coordinator.scheduler import ClosureScheduler
from tests.training.coordinator.test_scheduler import of, running, with_workers

DISPATCH_S = 0.002
"""The processor time that the coordinator takes to start an attempt."""


def test_short_closures_of_one_kind_run_in_batches_that_are_taken_apart_when_one_fails() -> None:
    scheduler = with_workers(1)
    actions = []
    for number in range(600):
        actions += scheduler.add(Closure(number, kind="k", batch_size=4), 0.0)
    actions += scheduler.finished(1, 0.001, DISPATCH_S)
    actions += scheduler.finished(2, 0.002, DISPATCH_S)
    assert of(PrepareBatch, actions) == [PrepareBatch(0, of(PrepareBatch, actions)[0].closure)]
    running = [action.attempt for action in of(Dispatch, actions)][2:]
    actions = scheduler.batch_ready(0, "k", 0.6)
    for attempt in running:
        actions += scheduler.finished(attempt, 0.6)
    batch = of(Dispatch, actions)[0]
    assert len(batch.closures) == 4
    again = of(Dispatch, scheduler.failed(batch.attempt, ValueError(), 0.7))
    assert all(len(one.closures) == 1 for one in again[:4])
    assert not scheduler.has_error


def with_batches(
    n_workers: int, each_s: float, dispatch_s: float, n_waiting: int
) -> tuple[ClosureScheduler, list[Action]]:
    """A scheduler whose workers have batches of 4 closures of kind "k", of which some wait.

    Returns:
      The scheduler, and what followed when all that was given to workers before had come back.
    """
    scheduler, now = with_workers(n_workers), 0.0
    actions = [a for n in range(40) for a in scheduler.add(Closure(n, "k", batch_size=4), now)]
    while not scheduler.is_idle:  # one attempt after the other
        now += each_s
        actions += scheduler.finished(min(running(scheduler)), now, dispatch_s)
    for prepare in of(PrepareBatch, actions):
        scheduler.batch_ready(prepare.worker, "k", now)
    actions = []
    for number in range(40, 40 + n_waiting):
        actions += scheduler.add(Closure(number, "k", batch_size=4), now)
    return scheduler, actions


def test_closures_shorter_than_dispatches_wait_for_a_batch_while_their_worker_has_work() -> None:
    scheduler, actions = with_batches(1, each_s=0.001, dispatch_s=0.002, n_waiting=5)
    assert [one.closures for one in of(Dispatch, actions)] == [(40,), (41,)]
    (batch,) = of(Dispatch, scheduler.add(Closure(45, "k", batch_size=4), 1.0))
    assert batch.closures == (42, 43, 44, 45)
    assert of(Dispatch, scheduler.add(Closure(46, "k", batch_size=4), 1.0)) == []
    for attempt in running(scheduler):  # nothing waits for more once there is room
        actions = scheduler.finished(attempt, 1.1)
    assert scheduler.closures.n_queued == 0


def test_closures_longer_than_dispatches_are_given_ahead_one_by_one() -> None:
    _, actions = with_batches(1, each_s=0.001, dispatch_s=0.0001, n_waiting=3)
    assert [one.closures for one in of(Dispatch, actions)] == [(40,), (41,), (42,)]


def test_longer_closures_run_in_batches_only_if_there_is_one_for_each_worker() -> None:
    few, _ = with_batches(2, each_s=0.008, dispatch_s=0.001, n_waiting=11)
    many, _ = with_batches(2, each_s=0.008, dispatch_s=0.001, n_waiting=30)

    def sizes(scheduler: ClosureScheduler) -> list[int]:
        actions = scheduler.finished(min(running(scheduler)), 9.0)
        return [len(one.closures) for one in of(Dispatch, actions)]

    assert 4 not in sizes(few)
    assert 4 in sizes(many)


def test_batches_are_compiled_for_closures_that_take_few_dispatches_only() -> None:
    for each_s, is_worth in ((0.003, True), (0.005, False)):
        scheduler, actions = with_workers(1), []
        for number in range(40):
            actions += scheduler.add(Closure(number, "k", batch_size=4), 0.0)
        for n in range(1, 10):
            actions += scheduler.finished(n, n * each_s, 0.0001)
        assert bool(of(PrepareBatch, actions)) is is_worth


def test_a_machine_that_becomes_slow_goes_on_with_batches_of_short_closures() -> None:
    scheduler, _ = with_batches(1, each_s=0.001, dispatch_s=0.002, n_waiting=40)
    for n in range(1, 8):  # each comes back a hundred times later than on an idle machine
        actions = scheduler.finished(min(running(scheduler)), 1.0 + n * 0.1, 0.002)
    assert of(Dispatch, actions) == [] or len(of(Dispatch, actions)[0].closures) == 4
    assert all(len(a.closures) == 4 for a in scheduler.attempts)


def test_the_shortest_time_of_a_kind_rises_slowly_and_falls_at_once() -> None:
    scheduler, _ = with_batches(1, each_s=0.001, dispatch_s=0.002, n_waiting=0)

    def is_bound_after(seconds: float, times: int) -> bool:
        """Whether the third of three closures waits for a batch after some ran for so long."""
        for number in range(scheduler.closures.n_added, scheduler.closures.n_added + times):
            (one,) = of(Dispatch, scheduler.add(Closure(number, "k", batch_size=4), 1.0))
            scheduler.finished(one.attempt, 1.0 + seconds, 0.002)
        for number in range(scheduler.closures.n_added, scheduler.closures.n_added + 3):
            scheduler.add(Closure(number, "k", batch_size=4), 1.0)
        is_bound = bool(scheduler.closures.n_queued)
        scheduler.cancel_all()
        for attempt in running(scheduler):
            scheduler.lost(attempt, 1.0)
        scheduler.clear()
        return is_bound

    assert is_bound_after(0.007, times=1)
    assert not is_bound_after(0.007, times=30)
    assert is_bound_after(0.001, times=1)


def with_a_batch_that_is_applied_once() -> tuple[ClosureScheduler, Dispatch]:
    """A scheduler whose only worker has a batch in exactly-once mode."""
    scheduler = with_workers(1)
    for number in range(8):
        scheduler.add(
            Closure(number, "k", is_exactly_once=True, is_repeatable=True, batch_size=4), 0.0
        )
    scheduler.finished(1, 1.0, DISPATCH_S)
    actions = scheduler.finished(2, 1.01, DISPATCH_S)
    assert of(PrepareBatch, actions)
    actions = scheduler.batch_ready(0, "k", 1.1)
    for attempt in running(scheduler):
        actions += scheduler.finished(attempt, 1.2)
    (batch,) = [one for one in of(Dispatch, actions) if len(one.closures) == 4]
    return scheduler, batch


def test_a_batch_in_exactly_once_mode_stays_together_until_it_has_ended() -> None:
    scheduler, batch = with_a_batch_that_is_applied_once()
    assert scheduler.cancel(batch.closures[1], 1.3) == []  # others of its effect are wanted
    scheduler.worker_down(0, 1.3)
    scheduler.cancel(batch.closures[2], 1.3)
    scheduler.add_worker(1)
    (again,) = of(Dispatch, scheduler.worker_up(1, 1.4))
    assert (again.closures, again.ordinal) == (batch.closures, 2)
    ended = of(Complete, scheduler.finished(again.attempt, 1.5))
    assert [one.closure for one in ended] == [*batch.closures]
    assert scheduler.is_idle


def test_a_batch_in_exactly_once_mode_fails_and_is_cancelled_as_a_whole() -> None:
    scheduler, batch = with_a_batch_that_is_applied_once()
    error = ValueError()
    ended = scheduler.failed(batch.attempt, error, 1.3)
    assert ended == [FailClosure(number, error) for number in batch.closures]
    scheduler, batch = with_a_batch_that_is_applied_once()
    scheduler.worker_down(0, 1.3)
    dropped = [action for one in batch.closures for action in scheduler.cancel(one, 1.3)]
    assert dropped == [Drop(number, by_user=True) for number in batch.closures]
    assert scheduler.is_idle


def test_a_batch_that_is_known_to_have_applied_nothing_is_taken_apart() -> None:
    scheduler, batch = with_a_batch_that_is_applied_once()
    scheduler.cancel(batch.closures[1], 1.3)
    actions = scheduler.failed(batch.attempt, ValueError(), 1.3, is_rolled_back=True)
    assert of(Drop, actions) == [Drop(batch.closures[1], by_user=True)]
    again = of(Dispatch, actions)
    for one in again:  # which grows
        again += of(Dispatch, scheduler.finished(one.attempt, 1.4))
    first, _, *others = batch.closures
    assert [(one.closures, one.ordinal) for one in again] == [((n,), 2) for n in (first, *others)]
    assert scheduler.is_idle
    assert not scheduler.has_error


def test_a_slow_batch_is_run_once_more_as_a_whole_and_the_last_attempt_decides() -> None:
    scheduler, batch = with_a_slow_batch()
    (second,) = of(Dispatch, scheduler.tick(10.0))
    assert (second.worker, second.closures, second.ordinal) == (1, batch.closures, 2)
    assert scheduler.tick(20.0) == []
    # The second attempt is lost, but may still be applied: the first one cannot be taken apart.
    assert scheduler.lost(second.attempt, 20.1) == []
    (third,) = scheduler.failed(batch.attempt, ValueError(), 20.2, is_rolled_back=True)
    assert isinstance(third, Dispatch)
    assert (third.closures, third.ordinal) == (batch.closures, 3)
    ended = of(Complete, scheduler.finished(third.attempt, 20.3))
    assert [one.closure for one in ended] == [*batch.closures]
    assert scheduler.is_idle


def test_one_attempt_of_a_batch_that_fails_leaves_the_other_one_to_end() -> None:
    scheduler, batch = with_a_slow_batch()
    (second,) = of(Dispatch, scheduler.tick(10.0))
    assert scheduler.failed(second.attempt, ValueError(), 10.1) == []
    assert len(of(Complete, scheduler.finished(batch.attempt, 10.2))) == 4
    assert scheduler.is_idle
    assert not scheduler.has_error


def with_a_slow_batch() -> tuple[ClosureScheduler, Dispatch]:
    """A scheduler of two workers, of which the first one has a batch in exactly-once mode."""
    scheduler, batch = with_a_batch_that_is_applied_once()
    scheduler._assigner.durations.note(("k", True), 0, 0.01, 4)
    scheduler.add_worker(1)
    assert scheduler.worker_up(1, 1.3) == []
    return scheduler, batch


def test_a_worker_has_one_closure_at_a_time_that_needs_the_latest_values() -> None:
    scheduler = with_workers(2)
    for number in range(40):
        scheduler.add(Closure(number, "k", needs_latest=True), 0.0)
    now = 0.0
    while scheduler.closures.n_queued:
        now += 0.001  # so short that a worker would have twenty of them
        scheduler.finished(min(running(scheduler)), now, 0.0001)
        assert len(running(scheduler)) <= 2
    assert len(running(scheduler)) == 2
