"""Steps that are applied once, on every backend and when masters and clients are lost."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import jflow as tf
from jflow.client.runtime.backend import stop_step
from jflow.state.effects import Effect, SupersededError
from jflow.testing import (
    PATIENCE_S,
    BackendUnderTest,
    Pass,
    Pause,
    Raise,
    failpoints,
    wait_until,
)
from tests.state.effects.attempts import PS0, PS1, Counters, attempt, servers, started
from tests.state.moves.placing import all_on

STEP = Effect("client", 0, 0)
LOST = tf.errors.UnavailableError("the test lost it")


HERE = pytest.mark.parametrize("opened_backend", ["local", "in_process"], indirect=True)
"""A test on the backends of this process only: other processes make no difference for it."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[tf.train.Server]]:
    """Two parameter servers and two workers in this process."""
    with servers(2, 2) as running:
        yield running


@pytest.fixture
def sessions(cluster: list[tf.train.Server]) -> Iterator[list[tf.Session]]:
    """A session on each worker, for the default graph."""
    tf.Session.reset(cluster[-1].target)
    with tf.Session(cluster[-2].target) as first, tf.Session(cluster[-1].target) as second:
        yield [first, second]


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The name of a client that no other test has: ledgers outlive sessions."""
    return request.node.name


@pytest.fixture
def step(name: str) -> Effect:
    return Effect(name, 0, 0)


def counters(session: tf.Session, *devices: str) -> Counters:
    made = Counters(*devices)
    session.run(tf.global_variables_initializer())
    return made


def on(backend: BackendUnderTest) -> list[str]:
    """Where counters and their worker are on a backend: on the last device, and on the first."""
    return [backend.devices[-1], backend.devices[-1], backend.devices[0]]


# Everywhere -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fetched", ["one", "both"])
def test_a_repeated_step_is_answered_with_what_it_gave_and_applied_once(
    backend: BackendUnderTest, step: Effect, fetched: str
) -> None:
    with backend.session() as session:
        made = counters(session, *on(backend))
        fetch = getattr(made, fetched)
        first = attempt(session, fetch, step)
        assert attempt(session, fetch, step.again()) == first
        assert session.run(made.a) == 1.0


@HERE
def test_steps_of_a_client_are_applied_in_any_order(
    backend: BackendUnderTest, step: Effect
) -> None:
    with backend.session() as session:
        made = counters(session, *on(backend))
        for sequence in (2, 0, 1):
            attempt(session, made.both, replace(step, sequence=sequence))
        assert session.run(made.values) == [3.0, 3.0]


@HERE
def test_nothing_of_a_step_that_fails_is_applied(backend: BackendUnderTest, step: Effect) -> None:
    with backend.session() as session:
        made = counters(session, *on(backend))
        with tf.device(on(backend)[0]):
            missing = tf.Variable(0.0, name="missing")
        with tf.control_dependencies([made.both]):
            fails = tf.identity(missing.assign_add(1.0))
        with pytest.raises(tf.errors.FailedPreconditionError, match="missing"):
            attempt(session, fails, step)
        assert session.run(made.values) == [0.0, 0.0]
        session.run(missing.initializer)
        assert attempt(session, fails, step.again()) == 1.0
        assert session.run(made.values) == [1.0, 1.0]


@HERE
def test_a_step_sees_what_it_has_written_itself(backend: BackendUnderTest, step: Effect) -> None:
    with backend.session() as session:
        made = counters(session, *on(backend))
        with tf.control_dependencies([made.both]):
            twice = made.a.assign(made.a.read_value() * 10.0)
        assert attempt(session, twice, step) == 10.0
        assert session.run(made.values) == [10.0, 1.0]


@HERE
def test_a_variable_is_initialized_once(backend: BackendUnderTest, step: Effect) -> None:
    with backend.session() as session, tf.device(on(backend)[0]):
        counter = tf.Variable(np.float32(5.0), name="counter")
        attempt(session, counter.initializer, step)
        session.run(counter.assign_add(1.0))
        attempt(session, counter.initializer, step.again())
        assert session.run(counter) == 6.0


@HERE
def test_an_earlier_attempt_is_refused(backend: BackendUnderTest, step: Effect) -> None:
    with backend.session() as session:
        made = counters(session, *on(backend))
        attempt(session, made.both, step.again())
        with pytest.raises(tf.errors.AbortedError, match="superseded by attempt 2"):
            attempt(session, made.both, step)
        assert session.run(made.a) == 1.0


@HERE
def test_an_earlier_epoch_is_refused(backend: BackendUnderTest, step: Effect) -> None:
    with backend.session() as session:
        made = counters(session, *on(backend))
        attempt(session, made.both, replace(step, epoch=2))
        with pytest.raises(tf.errors.AbortedError, match=r"epoch 2 of .* has begun"):
            attempt(session, made.both, replace(step, epoch=1))
        attempt(session, made.both, replace(step, epoch=2, sequence=1))
        assert session.run(made.a) == 2.0


@HERE
def test_a_step_that_uses_a_queue_is_refused_with_its_operation(
    backend: BackendUnderTest, step: Effect
) -> None:
    with backend.session() as session:
        made = counters(session, *on(backend))
        queue = tf.FIFOQueue(9, tf.float32, [()])
        enqueue = queue.enqueue(made.one, name="add_to_queue")
        with pytest.raises(tf.errors.UnimplementedError, match="'add_to_queue' uses"):
            attempt(session, enqueue, step)
        assert session.run([made.a, queue.size()]) == [0.0, 0]


@HERE
def test_a_step_that_writes_nothing_is_run_again(backend: BackendUnderTest, step: Effect) -> None:
    with backend.session() as session:
        made = counters(session, *on(backend))
        assert attempt(session, made.a, step) == 0.0
        session.run(made.one)
        assert attempt(session, made.a, step.again()) == 1.0


@HERE
def test_results_that_were_too_large_to_keep_are_an_error_and_not_applied_again(
    backend: BackendUnderTest, step: Effect
) -> None:
    with backend.session() as session:
        with tf.device(on(backend)[0]):
            large = tf.Variable(np.zeros(1 << 19, np.float32), name="large")
        session.run(large.initializer)
        grown = large.assign_add(np.ones(1 << 19, np.float32))
        attempt(session, grown, step)
        with pytest.raises(tf.errors.DataLossError, match="applied by attempt 1, but its results"):
            attempt(session, grown, step.again())
        assert session.run(large)[0] == 1.0


@HERE
def test_what_is_committed_does_not_change_the_value_that_was_read_before(
    backend: BackendUnderTest, step: Effect
) -> None:
    with backend.session() as session:
        with tf.device(on(backend)[0]):
            large = tf.Variable(np.zeros(5000, np.float32), name="large")
        session.run(large.initializer)
        before = session.run(large)
        attempt(session, large.assign_add(np.ones(5000, np.float32)).op, step)
        assert before.sum() == 0
        assert session.run(large).sum() == 5000


# Two tasks ------------------------------------------------------------------------------------


def test_a_step_on_two_tasks_is_committed_on_both(sessions: list[Any], step: Effect) -> None:
    made = counters(sessions[0])
    assert attempt(sessions[0], made.both, step) == 1.0
    assert sessions[1].run(made.values) == [1.0, 1.0]
    assert attempt(sessions[1], made.both, step.again()) == 1.0
    assert sessions[1].run(made.values) == [1.0, 1.0]


@pytest.mark.parametrize(
    ("where", "n_applied"),
    [
        ("worker.before_effect", 0),
        ("worker.after_stage", 0),
        ("master.before_commit", 0),
        ("worker.before_decision", 0),
        ("worker.after_decision", 1),
        ("master.after_commit", 1),
    ],
)
def test_the_next_attempt_finds_out_what_became_of_one_that_failed_anywhere(
    sessions: list[Any], step: Effect, where: str, n_applied: int
) -> None:
    first, second = sessions
    made = counters(first)
    with failpoints({where: Raise(LOST, times=1)}), pytest.raises(type(LOST), match="lost it"):
        attempt(first, made.both, step)
    with failpoints({"worker.before_effect": Pass()}) as points:
        assert attempt(second, made.both, step.again()) == 1.0
        n_run = points.reached("worker.before_effect")
    assert second.run(made.values) == [1.0, 1.0]
    if where != "worker.before_decision":  # there the other task has committed, or not
        assert n_run == (0 if n_applied else 2)


def test_a_master_that_stopped_before_its_commit_is_superseded(
    sessions: list[Any], step: Effect
) -> None:
    first, second = sessions
    made = counters(first)
    with failpoints({"master.before_commit": Pause(times=1)}) as points:
        late = started(first, made.both, step)
        points.wait_until_reached("master.before_commit")
        assert attempt(second, made.both, step.again()) == 1.0
        points.release("master.before_commit")
        with pytest.raises(tf.errors.AbortedError, match="cannot be committed"):
            late.result(PATIENCE_S)
    assert second.run(made.values) == [1.0, 1.0]


def test_others_wait_for_the_decision_and_read_what_is_committed(
    sessions: list[Any], step: Effect
) -> None:
    first, second = sessions
    made = counters(first)
    with ThreadPoolExecutor(1) as threads:
        with failpoints({"master.before_commit": Pause(times=1)}) as points:
            late = started(first, made.both, step)
            points.wait_until_reached("master.before_commit")
            read = threads.submit(second.run, made.values)
            with pytest.raises(TimeoutError):
                read.result(0.1)
            points.release("master.before_commit")
            assert late.result(PATIENCE_S) == [1.0]
        assert read.result(PATIENCE_S) == [1.0, 1.0]


def test_a_client_that_is_gone_before_the_commit_leaves_nothing_locked(
    cluster: list[tf.train.Server], sessions: list[Any], step: Effect
) -> None:
    made = counters(sessions[0])
    points, third = (
        failpoints({"master.before_commit": Pause(times=1)}),
        tf.Session(cluster[-1].target),
    )
    with points:
        with third:
            started(third, made.both, step)
            points.wait_until_reached("master.before_commit")
        # Inside the block, so that the master does not commit before it notices the loss.
        assert sessions[0].run(made.values) == [0.0, 0.0]
    assert attempt(sessions[0], made.both, step.again()) == 1.0
    assert sessions[0].run(made.values) == [1.0, 1.0]


def test_tasks_end_a_step_themselves_that_is_not_decided(
    sessions: list[Any], step: Effect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jflow.state.core.effects.STAGED_S", 0.1)
    first, second = sessions
    made = counters(first)
    with failpoints({"master.before_commit": Pause(times=1)}) as points:
        late = started(first, made.both, step)
        points.wait_until_reached("master.before_commit")
        assert second.run(made.values) == [0.0, 0.0]
        points.release("master.before_commit")
        with pytest.raises(tf.errors.AbortedError):
            late.result(PATIENCE_S)
    assert second.run(made.values) == [0.0, 0.0]


def test_tasks_commit_what_another_one_has_committed_without_being_told(
    sessions: list[Any], step: Effect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jflow.state.core.effects.STAGED_S", 0.1)
    first, second = sessions
    made = counters(first)
    # One task commits; the message to the other one is lost.
    with failpoints({"worker.before_decision": Raise(LOST, times=1)}):
        with pytest.raises(tf.errors.UnavailableError, match="the test lost it"):
            attempt(first, made.both, step)
        assert second.run(made.values) == [1.0, 1.0]


def test_steps_that_write_in_opposite_orders_do_not_wait_for_each_other_for_ever(
    sessions: list[Any], name: str
) -> None:
    made = counters(sessions[0])
    with tf.control_dependencies([made.b.assign_add(1.0)]), tf.device(PS0):
        backward = made.a.assign_add(1.0)
    with tf.control_dependencies([made.a.assign_add(1.0)]), tf.device(PS1):
        forward = made.b.assign_add(1.0)
    n_steps = 20

    def run(number: int) -> None:
        for sequence in range(number, n_steps, 2):
            step = Effect(name, 0, sequence)
            attempt(sessions[number], (backward, forward)[number].op, step)

    with ThreadPoolExecutor(2) as threads:
        for _ in threads.map(run, (0, 1), timeout=PATIENCE_S):
            pass
    assert sessions[0].run(made.values) == [n_steps, n_steps]


def test_all_attempts_of_many_clients_at_once_are_applied_once(
    sessions: list[Any], name: str
) -> None:
    made = counters(sessions[0])

    def run(number: int) -> None:
        for sequence in range(10):
            effect = Effect(f"{name} {number % 4}", 0, 10 * (number // 4) + sequence)
            for one in (effect, effect.again()):
                assert attempt(sessions[number % 2], made.both, one) == 1.0

    with ThreadPoolExecutor(8) as threads:
        for _ in threads.map(run, range(8), timeout=PATIENCE_S):
            pass
    assert sessions[0].run(made.values) == [80.0, 80.0]


def test_a_step_whose_task_is_alone_and_whose_answer_is_lost_is_answered_again(
    sessions: list[Any], step: Effect
) -> None:
    first, second = sessions
    made = counters(first)
    points = failpoints({"worker.after_effect": Raise(LOST, times=1)})
    with points, pytest.raises(type(LOST), match="lost it"):
        attempt(first, made.one, step)
    assert attempt(second, made.one, step.again()) == 1.0
    assert second.run(made.a) == 1.0


def test_a_step_whose_answer_is_lost_is_answered_again_where_its_state_has_moved(
    sessions: list[Any], step: Effect
) -> None:
    first, second = sessions
    made = counters(first, "/job:ps", "/job:ps")
    attempt(second, made.one, replace(step, client="another"))
    points = failpoints({"worker.after_effect": Raise(LOST, times=1)})
    with points, pytest.raises(type(LOST), match="lost it"):
        attempt(first, made.one, step)
    assert second.replace(all_on(PS1), min_gain=None).moved
    assert attempt(second, made.one, step.again()) == 2.0
    assert second.run(made.a) == 2.0


def test_an_attempt_that_is_taken_over_while_it_is_waiting_writes_nothing(
    sessions: list[Any], step: Effect
) -> None:
    first, second = sessions
    made = counters(first)
    with failpoints({"worker.before_run": Pause(times=1)}) as points:
        late = started(first, made.one, step)
        points.wait_until_reached("worker.before_run")
        with failpoints({"worker.after_take_over": Pass()}) as seen:
            assert attempt(second, made.one, step.again()) == 1.0
            assert seen.reached("worker.after_take_over") == 1
        points.release("worker.before_run")
        with pytest.raises(tf.errors.AbortedError, match="superseded"):
            late.result(PATIENCE_S)
    assert second.run(made.a) == 1.0


def test_an_attempt_that_is_taken_over_while_it_waits_for_a_variable_is_superseded(
    sessions: list[Any], step: Effect
) -> None:
    first, second = sessions
    made = counters(first)
    points = failpoints({"master.before_commit": Pause(times=1), "worker.before_effect": Pass()})
    with points:
        younger = started(first, made.both, replace(step, sequence=1))
        points.wait_until_reached("master.before_commit")
        late = started(first, made.both, step)
        points.wait_until_reached("worker.before_effect", times=4)
        again = started(second, made.both, step.again())
        # Else a straggler of a coordinator would be the failure of its function.
        with pytest.raises(SupersededError):
            late.result(PATIENCE_S)
        points.release("master.before_commit")
        assert younger.result(PATIENCE_S) == again.result(PATIENCE_S) == [1.0]
    assert second.run(made.values) == [2.0, 2.0]


def test_a_cancelled_attempt_is_not_applied(sessions: list[Any], step: Effect) -> None:
    first, second = sessions
    made = counters(first)
    with failpoints({"worker.before_run": Pause(times=1)}) as points:
        late = started(first, made.both, step)
        points.wait_until_reached("worker.before_run")
        assert late.cancel()
        points.release("worker.before_run")
    wait_until(late.cancelled, "the end of the attempt")
    assert attempt(second, made.both, step.again()) == 1.0
    assert second.run(made.values) == [1.0, 1.0]


def test_a_write_that_is_applied_is_not_cancelled_any_more(
    sessions: list[Any], step: Effect
) -> None:
    first, second = sessions
    made = counters(first)
    for point, sequence in (("worker.before_run", 0), ("worker.after_run", 1)):
        effect = replace(step, sequence=sequence)
        with failpoints({point: Pause(times=1)}) as points:
            late = started(first, made.one, effect)
            points.wait_until_reached(point)
            stop_step(late)
            if sequence:
                first.list_devices()  # answered after the cancellation, which comes before it
                points.release(point)
                assert late.result(PATIENCE_S) == [2.0]
            else:
                with pytest.raises(tf.errors.CancelledError):
                    late.result(PATIENCE_S)
                points.release(point)
        assert attempt(second, made.one, effect.again()) == 1.0 + sequence
    assert second.run(made.values) == [2.0, 0.0]
