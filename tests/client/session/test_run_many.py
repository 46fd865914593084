"""`Session.run_many`: many steps for one request, with the results of the last one or of all."""

import threading

import numpy as np
import pytest

import jflow as tf
from jflow.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    OutOfRangeError,
)
from jflow.task.execution import repeated
from jflow.task.execution.repeated import RepeatedRun, is_repeatable
from tests.clusters import Backend


def _counter(backend, device=-1):
    with tf.device(backend.devices[device]):
        v = tf.Variable(0.0, name="v")
    return v, v.assign_add(1.0)


@pytest.mark.parametrize("device", [0, -1], ids=["first_task", "last_task"])
def test_every_step_is_applied_and_the_last_result_is_returned(backend: Backend, device):
    v, grow = _counter(backend, device)
    with backend.session() as session:
        session.run(v.initializer)
        assert session.run_many(grow, steps=1) == 1.0
        assert session.run_many({"v": grow, "op": grow.op}, steps=2000) == {"v": 2001.0, "op": None}
        assert session.run(v) == 2001.0


def test_stacked_results_have_an_axis_for_the_steps(backend: Backend):
    v, grow = _counter(backend)
    x = tf.placeholder(tf.float32, [2])
    both = tf.stack([grow, v.read_value()]) + x
    with backend.session() as session:
        session.run(v.initializer)
        values = session.run_many([grow, both], {x: [0.0, 10.0]}, steps=4, stacked=True)
        assert values[0].tolist() == [1.0, 2.0, 3.0, 4.0]
        assert values[1].shape == (4, 2)
        assert session.run_many(grow, steps=1, stacked=True).tolist() == [5.0]


def test_a_step_on_several_devices_is_repeated(backend: Backend):
    first, last = backend.devices[0], backend.devices[-1]
    with tf.device(first):
        v = tf.Variable(1.0, name="v")
    with tf.device(last):
        w = tf.Variable(1.0, name="w")
        total = v + w
    with tf.device(first):
        grow = v.assign(total)
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run_many(grow, steps=30) == 31.0


def test_elements_are_taken_one_by_one(backend: Backend):
    queue = tf.FIFOQueue(100, [tf.float32], [[]], name="q")
    fill = queue.enqueue_many([np.arange(10, dtype=np.float32)])
    element = queue.dequeue()
    with backend.session() as session:
        session.run(fill)
        assert session.run_many(element, steps=4, stacked=True).tolist() == [0.0, 1.0, 2.0, 3.0]
        assert session.run_many(element, steps=6) == 9.0


def test_an_error_names_the_step_and_those_before_it_stay_applied(backend: Backend):
    queue = tf.FIFOQueue(100, [tf.float32], [[]], name="q")
    fill, close = queue.enqueue_many([[1.0, 2.0, 3.0]]), queue.close()
    v = tf.Variable(0.0, name="v")
    add = v.assign_add(queue.dequeue())
    with backend.session() as session:
        session.run([v.initializer, fill])
        session.run(close)
        with pytest.raises(
            OutOfRangeError, match=r"^step 4 of 9 .*those before were applied.*closed"
        ):
            session.run_many(add, steps=9)
        assert session.run(v) == 6.0


def test_one_deadline_holds_for_all_steps(backend: Backend):
    queue = tf.FIFOQueue(3, [tf.float32], [[]], name="q")
    put, size = queue.enqueue(1.0), queue.size()
    with backend.session() as session:
        limit = tf.RunOptions(timeout_in_ms=300)
        with pytest.raises(DeadlineExceededError, match=r"^step 4 of 5 .*'q'"):
            session.run_many(put, steps=5, options=limit)
        assert session.run(size) == 3


def test_the_first_step_can_fail(backend: Backend):
    v, grow = _counter(backend)
    with backend.session() as session:
        with pytest.raises(FailedPreconditionError, match=r"^step 1 of 3 .none was applied"):
            session.run_many(grow, steps=3)
        session.run(v.initializer)
        assert session.run(v) == 0.0


def test_fed_shapes_of_unknown_rank_choose_the_program(backend: Backend):
    x = tf.placeholder(tf.float32)
    v = tf.Variable(0.0, name="v")
    add = v.assign_add(tf.reduce_sum(x))
    with backend.session() as session:
        session.run(v.initializer)
        assert session.run_many(add, {x: [[1.0, 2.0]]}, steps=3) == 9.0


def test_python_functions_are_called_in_each_step(backend: Backend):
    import jax  # noqa: PLC0415 - of this test only

    seen = []
    v, grow = _counter(backend)
    note = grow.graph.apply(lambda x: jax.debug.callback(seen.append, x), (grow,))
    with backend.session() as session:
        session.run(v.initializer)
        session.run_many([grow, note], steps=3)
    assert [float(x) for x in seen] == [1.0, 2.0, 3.0]


def test_results_that_differ_in_shape_are_not_stacked(backend: Backend):
    queue = tf.FIFOQueue(9, [tf.float32], name="q")
    x = tf.placeholder(tf.float32, [None])
    put, element = queue.enqueue(x), queue.dequeue()
    with backend.session() as session:
        for n in (1, 2, 1, 2):
            session.run(put, {x: np.zeros(n)})
        with pytest.raises(InvalidArgumentError, match=r"cannot be stacked: \[\(1,\), \(2,\)\]"):
            session.run_many(element, steps=2, stacked=True)
        assert session.run_many(element, steps=2).shape == (2,)


def test_other_threads_run_in_between_and_no_update_is_lost(backend: Backend):
    v, grow = _counter(backend)
    with backend.session() as session:
        session.run(v.initializer)

        def run() -> None:
            for _ in range(20):
                session.run(grow.op)

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        session.run_many(grow.op, steps=3000)
        for thread in threads:
            thread.join()
        assert session.run(v) == 3080.0


def test_arguments_are_checked(backend: Backend):
    v, grow = _counter(backend)
    with backend.session() as session:
        session.run(v.initializer)
        with pytest.raises(ValueError, match="at least one step, got 0"):
            session.run_many(grow, steps=0)
        with pytest.raises(TypeError):
            session.run_many(grow, steps=2.5)
        assert session.run(v) == 0.0


class _Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


def test_time_slices_grow_to_a_millisecond_and_not_beyond_the_last_step(monkeypatch):
    clock = _Clock()
    monkeypatch.setattr("jflow.task.execution.repeated.now", clock)
    monkeypatch.setattr("jflow.task.execution.repeated.is_repeatable", lambda _: True)
    runs, slices, is_over = RepeatedRun(1000, False), [], []
    while not runs.is_done:
        n_steps = runs.begin_slice()
        clock.time += n_steps / 2**16
        slices.append(n_steps)
        is_over.append(runs.end_slice([], n_steps))
    assert slices[:5] == [1, 4, 16, 64, 65]
    assert sum(slices) == 1000
    assert is_over[:5] == [False, False, False, True, False]


def test_a_step_is_repeatable_if_it_is_one_update():
    v = tf.Variable(0.0, name="v")
    session = tf.Session()
    session.run(v.initializer)

    def of(fetch):
        session.run(fetch)
        steps = session._steps._executables
        return is_repeatable(next(reversed(steps.values())).plans)

    assert of(v.assign_add(1.0))
    assert of(v.assign_sub(2.0).op)
    assert not of(v.read_value())
    assert not of([v.assign_add(1.0), tf.FIFOQueue(2, [tf.float32], name="q").size()])


def test_a_fed_value_that_is_fetched_is_stacked(backend: Backend):
    x = tf.placeholder(tf.float32, [])
    with backend.session() as session:
        same, more = session.run_many([x, x + 1.0], {x: 1.0}, steps=3, stacked=True)
        assert same.tolist() == [1.0, 1.0, 1.0]
        assert more.tolist() == [2.0, 2.0, 2.0]
        assert session.run_many(x, {x: 1.0}, steps=3) == 1.0


def test_stacked_results_of_any_size_are_limited_by_request(backend: Backend, monkeypatch):
    monkeypatch.setattr(repeated, "_MAX_BYTES", 500)
    _, grow = _counter(backend)
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run_many(grow, steps=20, stacked=True).tolist() == [*np.arange(1.0, 21.0)]


def test_the_time_limit_is_that_of_all_steps(backend: Backend):
    v, grow = _counter(backend)
    with backend.session() as session:
        session.run(v.initializer)
        session.run_many(grow, steps=2)
        options = tf.RunOptions(timeout_in_ms=200)
        with pytest.raises(DeadlineExceededError):
            session.run_many(grow, steps=500_000_000, options=options)


def test_steps_of_one_call_own_what_they_are_fed(backend: Backend):
    ones = np.ones(1_000_000, np.float32)
    x = tf.placeholder(tf.float32, ones.shape)
    v = tf.Variable(tf.zeros(ones.shape), name="v")
    y = x
    for _ in range(20):
        y = tf.sin(y) + x
    grow = v.assign_add(y)
    with backend.session() as session:
        session.run(v.initializer)
        for _ in range(5):
            fed = ones.copy()
            session.run_many(grow.op, {x: fed}, steps=1)
            fed[:] = 1000.0
        assert np.max(session.run(v)) <= 10.0
