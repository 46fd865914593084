"""The scheduler of closures: its rules one by one, and simulated schedules with faults."""

from __future__ import annotations

from collections import Counter

import pytest

from jflow.training.coordinator.events import (
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
    PrepareBatch,
    Reopen,
)
from jflow.training.coordinator.scheduler import ClosureScheduler
from tests.training.coordinator.simulator import World

DISPATCH_S = 0.002
"""The processor time that the coordinator takes to start an attempt."""


def with_workers(n: int) -> ClosureScheduler:
    scheduler = ClosureScheduler(n)
    for worker in range(n):
        scheduler.worker_up(worker, 0.0)
    return scheduler


def running(scheduler: ClosureScheduler) -> list[int]:
    return [attempt.number for attempt in scheduler.attempts]


def of(kind: type, actions: list[Action]) -> list[Action]:
    return [action for action in actions if isinstance(action, kind)]


def test_closures_go_to_free_workers_in_order() -> None:
    scheduler = with_workers(2)
    assert scheduler.add(Closure(0), 0.0) == [Dispatch(1, 0, (0,))]
    assert scheduler.add(Closure(1), 0.0) == [Dispatch(2, 1, (1,))]
    assert scheduler.add(Closure(2), 0.0) == []
    assert scheduler.add(Closure(3), 0.0) == []
    assert scheduler.finished(2, 1.0) == [Complete(1, 2, 0), Dispatch(3, 1, (2,))]


def test_a_higher_priority_goes_first_and_a_bound_closure_waits_for_its_worker() -> None:
    scheduler = with_workers(2)
    scheduler.add(Closure(0), 0.0)
    scheduler.add(Closure(1), 0.0)
    scheduler.add(Closure(2), 0.0)
    scheduler.add(Closure(3, worker=1), 0.0)
    scheduler.add(Closure(4, priority=1), 0.0)
    assert of(Dispatch, scheduler.finished(1, 1.0)) == [Dispatch(3, 0, (4,))]
    assert of(Dispatch, scheduler.finished(3, 2.0)) == [Dispatch(4, 0, (2,))]
    assert of(Dispatch, scheduler.finished(4, 3.0)) == []
    assert of(Dispatch, scheduler.finished(2, 4.0)) == [Dispatch(5, 1, (3,))]


def test_short_closures_are_given_ahead_and_long_ones_are_not() -> None:
    scheduler = with_workers(1)
    for number in range(50):
        scheduler.add(Closure(number, kind="short"), 0.0)
    first = scheduler.finished(1, 0.5)  # it was compiled
    second = scheduler.finished(2, 0.501)
    assert len(of(Dispatch, [*first, *second])) > 5
    scheduler = with_workers(1)
    for number in range(50):
        scheduler.add(Closure(number, kind="long"), 0.0)
    for attempt in range(1, 10):
        assert len(of(Dispatch, scheduler.finished(attempt, attempt))) == 1


def test_a_closure_of_a_lost_worker_runs_on_another_one_at_its_place() -> None:
    scheduler = with_workers(2)
    for number in range(4):
        scheduler.add(Closure(number), 0.0)
    assert scheduler.worker_down(0, 1.0) == []
    assert not scheduler.workers.is_up(0)
    assert scheduler.finished(1, 1.0) == []  # too late: it was lost
    assert scheduler.finished(2, 1.0) == [Complete(1, 2, 0), Dispatch(3, 1, (0,), 2)]


def test_the_first_error_cancels_what_is_open_when_it_is_reported() -> None:
    scheduler = with_workers(2)
    for number in range(4):
        scheduler.add(Closure(number), 0.0)
    error = ValueError()
    assert scheduler.failed(1, error, 1.0) == [FailClosure(0, error), Dispatch(3, 0, (2,))]
    assert scheduler.has_error
    dropped = scheduler.cancel_all()
    assert dropped == [CancelAttempt(2), CancelAttempt(3), Drop(3, by_user=False)]
    assert not scheduler.is_idle
    assert scheduler.finished(2, 2.0) == [Complete(1, 2, 0)]  # it was quicker
    assert scheduler.failed(3, error, 2.0) == [Drop(2, by_user=False)]
    assert scheduler.is_idle
    scheduler.clear()
    assert scheduler.add(Closure(4), 3.0) == [Dispatch(4, 0, (4,))]


def test_a_closure_put_back_after_an_error_is_dropped() -> None:
    scheduler = with_workers(2)
    scheduler.add(Closure(0), 0.0)
    scheduler.add(Closure(1), 0.0)
    scheduler.failed(1, ValueError(), 1.0)
    assert scheduler.worker_down(1, 1.0) == [Drop(1, by_user=False)]


def test_a_closure_waits_for_its_inputs_and_fails_with_them() -> None:
    scheduler = with_workers(3)
    scheduler.add(Closure(0), 0.0)
    assert scheduler.add(Closure(1, inputs=(0,)), 0.0) == []
    assert scheduler.add(Closure(2, inputs=(1,)), 0.0) == []
    assert of(Dispatch, scheduler.finished(1, 1.0)) == [Dispatch(2, 0, (1,))]
    error = ValueError()
    assert scheduler.failed(2, error, 2.0) == [FailClosure(1, error), FailInput(2, 1)]
    assert scheduler.is_idle


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_chain_of_any_length_ends_with_its_first_closure(is_cancelled: bool) -> None:
    scheduler, n = with_workers(1), 3000
    actions = scheduler.add(Closure(0), 0.0)
    for number in range(1, n):
        actions += scheduler.add(Closure(number, inputs=(number - 1,)), 0.0)
    if is_cancelled:
        scheduler.cancel(0, 1.0)
    actions = scheduler.failed(1, ValueError(), 2.0)
    assert [action.closure for action in actions] == [*range(n)]
    assert len(of(Drop if is_cancelled else FailInput, actions)) == n - (not is_cancelled)
    assert scheduler.is_idle


def test_a_closure_expires_where_it_waits_and_where_it_runs() -> None:
    scheduler = with_workers(1)
    scheduler.add(Closure(0, expires=5.0), 0.0)
    scheduler.add(Closure(1, expires=5.0), 0.0)
    assert scheduler.tick(4.9) == []
    assert scheduler.tick(5.0) == [CancelAttempt(1), Expire(0), Expire(1)]
    assert scheduler.has_error
    assert not scheduler.is_idle
    scheduler.failed(1, ValueError(), 6.0)
    assert scheduler.is_idle


def test_the_first_of_two_attempts_to_end_counts_and_later_ones_have_higher_ordinals() -> None:
    scheduler = with_workers(2)
    scheduler.add(Closure(0, is_exactly_once=True, is_repeatable=True), 0.0)
    scheduler.finished(1, 0.1)
    scheduler.add(Closure(1, is_exactly_once=True, is_repeatable=True), 0.2)
    assert scheduler.tick(10.0) == [Dispatch(3, 1, (1,), 2)]
    assert scheduler.lost(3, 10.0) == []
    assert scheduler.lost(2, 10.0) == [Dispatch(4, 0, (1,), 3)]
    assert scheduler.closures.n_ended == 1
    assert scheduler.finished(4, 10.1) == [Complete(1, 4, 0)]
    assert scheduler.is_idle
    assert scheduler.closures.n_ended == 2


def test_a_straggler_is_run_once_more_only_if_that_is_harmless() -> None:
    for is_repeatable in (False, True):
        scheduler = with_workers(2)
        scheduler.add(Closure(0, is_repeatable=is_repeatable), 0.0)
        scheduler.finished(1, 0.1)
        scheduler.add(Closure(1, is_repeatable=is_repeatable), 0.2)
        assert bool(scheduler.tick(10.0)) == is_repeatable
        assert scheduler.tick(20.0) == []


def test_a_straggler_whose_input_is_lost_is_not_run_once_more() -> None:
    scheduler = with_workers(3)
    scheduler.add(Closure(0, worker=1, keeping=Keeping.ALONE), 0.0)
    scheduler.add(Closure(1), 0.0)
    scheduler.finished(2, 0.1)
    scheduler.finished(1, 0.1)
    (first,) = scheduler.add(Closure(2, inputs=(0,), is_repeatable=True), 0.2)
    assert isinstance(first, Dispatch)
    assert first.places == ((0, 1),)
    scheduler.results_lost([0], 0.3)
    assert scheduler.tick(10.0) == []


def with_a_result_on_worker_0() -> ClosureScheduler:
    """A scheduler of three workers, the first of which has the result of closure 0, bound to it."""
    scheduler = with_workers(3)
    scheduler.add(Closure(0, worker=0, keeping=Keeping.ALONE), 0.0)
    assert scheduler.finished(1, 0.1) == [Complete(0, 1, 0)]
    return scheduler


def test_a_closure_fails_with_an_input_that_was_lost_while_it_waited_for_another_one() -> None:
    scheduler = with_a_result_on_worker_0()
    scheduler.add(Closure(1, worker=1), 0.2)
    assert scheduler.add(Closure(2, inputs=(0, 1)), 0.2) == []
    error = ValueError()
    assert scheduler.worker_leaves(0, error, 0.3) == []
    assert scheduler.want(0, 0.4) == [Reopen(0), FailClosure(0, error)]
    assert scheduler.finished(2, 0.5) == [Complete(1, 2, 0), FailInput(2, 0)]
    assert scheduler.is_idle


def test_a_closure_that_has_to_run_again_ends_with_an_input_that_was_cancelled_meanwhile() -> None:
    scheduler = with_a_result_on_worker_0()
    (running,) = scheduler.add(Closure(1, worker=1, inputs=(0,)), 0.2)
    assert isinstance(running, Dispatch)
    scheduler.worker_down(0, 0.3)
    assert scheduler.want(0, 0.3) == [Reopen(0)]  # it waits for its worker
    assert scheduler.cancel(0, 0.4) == [Drop(0, by_user=True)]
    assert scheduler.lost(running.attempt, 0.5) == [Drop(1, by_user=False)]
    assert scheduler.is_idle
    assert not scheduler.has_error


def test_a_result_cannot_be_computed_again_after_its_input_has_failed() -> None:
    scheduler = with_a_result_on_worker_0()
    scheduler.add(Closure(1, inputs=(0,), keeping=Keeping.ALONE), 0.2)
    assert scheduler.finished(2, 0.3) == [Complete(1, 2, 0)]
    error = ValueError()
    scheduler.worker_leaves(0, error, 0.4)
    assert scheduler.want(0, 0.5) == [Reopen(0), FailClosure(0, error)]
    assert scheduler.cancel_all() == []
    scheduler.clear()
    assert scheduler.want(1, 0.6) == [Reopen(1), FailInput(1, 0)]
    assert scheduler.has_error
    assert scheduler.is_idle


def test_an_attempt_from_before_its_closure_runs_again_does_not_end_it() -> None:
    scheduler = with_a_result_on_worker_0()
    (first,) = scheduler.add(Closure(1, keeping=Keeping.ALONE, is_repeatable=True), 0.2)
    (second,) = of(Dispatch, scheduler.tick(10.0))
    assert of(Complete, scheduler.finished(first.attempt, 10.1)) == [Complete(1, first.attempt, 0)]
    actions = scheduler.worker_down(first.worker, 10.2)
    actions += scheduler.want(1, 10.2)
    (again,) = of(Dispatch, actions)
    # The second attempt keeps its result on its worker, where it is not wanted any more.
    assert scheduler.finished(second.attempt, 10.3) == []
    assert scheduler.finished(again.attempt, 10.4) == [Complete(1, again.attempt, 0)]
    assert scheduler.is_idle


def test_a_closure_takes_a_copy_that_comes_while_its_input_is_computed_again() -> None:
    scheduler = with_a_result_on_worker_0()
    scheduler.worker_down(0, 0.2)
    assert scheduler.add(Closure(1, inputs=(0,)), 0.2) == [Reopen(0)]
    assert scheduler.result_read(0, 0.3) == [Dispatch(2, 1, (1,))]
    assert scheduler.add(Closure(2, inputs=(0,)), 0.3) == [Dispatch(3, 2, (2,))]
    assert scheduler.cancel(0, 0.4) == [Drop(0, by_user=True)]
    assert scheduler.lost(3, 0.5) == [Dispatch(4, 2, (2,), 2)]


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


def test_a_slow_worker_is_given_less_ahead_than_a_fast_one_until_it_was_lost() -> None:
    scheduler = with_workers(2)
    for number in range(100):
        scheduler.add(Closure(number, "k"), 0.0)
    for n in range(1, 6):
        for worker, each in ((0, 0.001), (1, 0.5)):
            (number, *_) = scheduler.attempts.of(worker)
            scheduler.finished(number, n * each)
    assert len(scheduler.attempts.of(0)) > 10
    assert len(scheduler.attempts.of(1)) == 1
    for n in range(30):  # as the mean of all workers comes down
        scheduler.finished(min(scheduler.attempts.of(0)), 3.0 + n * 0.001)
    scheduler.worker_down(1, 4.0)
    scheduler.worker_up(1, 4.0)
    assert len(scheduler.attempts.of(1)) > 1


def with_a_slow_batch() -> tuple[ClosureScheduler, Dispatch]:
    """A scheduler of two workers, of which the first one has a batch in exactly-once mode."""
    scheduler, batch = with_a_batch_that_is_applied_once()
    scheduler._assigner.durations.note(("k", True), 0, 0.01, 4)
    scheduler.add_worker(1)
    assert scheduler.worker_up(1, 1.3) == []
    return scheduler, batch


def test_a_worker_that_leaves_ends_what_it_has_and_fails_what_is_bound_to_it() -> None:
    scheduler = with_workers(2)
    scheduler.add(Closure(0), 0.0)
    scheduler.add(Closure(1), 0.0)
    scheduler.add(Closure(2, worker=0), 0.0)
    error = ValueError()
    assert scheduler.worker_leaves(0, error, 1.0) == [FailClosure(2, error)]
    assert [w for w, state in scheduler.workers.items() if not state.is_leaving] == [1]
    assert scheduler.finished(1, 2.0) == [Complete(0, 1, 0)]
    assert scheduler.worker_leaves(0, error, 2.0) == []  # such as after a timeout
    scheduler.add_worker(0)
    assert scheduler.worker_up(0, 3.0) == []


@pytest.mark.parametrize("block", range(4))
def test_simulated_schedules_are_safe_and_end(block: int) -> None:
    worlds = [simulate(seed) for seed in range(block * 100, block * 100 + 50)]
    seen = sum((world.seen for world in worlds), Counter())
    for what in (
        "results computed again",
        "results that fail when computed again",
        "batches",
        "lost batches",
        "batches run twice",
        "rolled back batches",
    ):
        assert seen[what], f"no world has {what}"


@pytest.mark.long
@pytest.mark.parametrize("block", range(10))
def test_ten_thousand_simulated_schedules_are_safe_and_end(block: int) -> None:
    for seed in range(block * 1000, block * 1000 + 1000):
        simulate(seed)


def simulate(seed: int) -> World:
    world = World(seed)
    try:
        world.run()
    except AssertionError as error:
        raise AssertionError(f"World({seed}).run(): {error}") from error
    return world
