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
    Reopen,
)
from jflow.training.coordinator.scheduler import ClosureScheduler
from tests.training.coordinator.simulator import World


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
