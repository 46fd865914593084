"""`Session.run_async`: a future of a step, which cancels it."""

import concurrent.futures

import numpy as np
import pytest

import jflow as tf
from jflow.errors import InvalidArgumentError, OutOfRangeError
from tests.clusters import Backend


def test_a_future_has_what_run_returns(backend: Backend):
    x = tf.placeholder(tf.float32, [])
    fetches = {"twice": x * 2.0, "both": [x, tf.no_op()]}
    with backend.session() as session:
        started = [session.run_async(fetches, {x: float(i)}) for i in range(5)]
        results = [one.result(30) for one in started]
    assert results == [{"twice": 2.0 * i, "both": [i, None]} for i in range(5)]


def test_steps_that_were_started_wait_for_each_other(backend: Backend):
    queue = tf.FIFOQueue(3, [tf.float32], [[]], name="q")
    x = tf.placeholder(tf.float32, [])
    put, element = queue.enqueue(x), queue.dequeue()
    with backend.session() as session:
        waiting = [session.run_async(element) for _ in range(2)]
        assert not any(one.done() for one in waiting)
        for value in (1.0, 2.0):
            session.run_async(put, {x: value}).result(30)
        assert sorted(float(one.result(30)) for one in waiting) == [1.0, 2.0]


def test_cancelling_the_future_cancels_the_step(backend: Backend):
    queue = tf.FIFOQueue(3, [tf.float32], [[]], name="q")
    put, element, size = queue.enqueue(1.0), queue.dequeue(), queue.size()
    with backend.session() as session:
        waiting = session.run_async(element)
        assert waiting.cancel()
        assert waiting.cancelled()
        with pytest.raises(concurrent.futures.CancelledError):
            waiting.result(30)
        session.run(put)
        assert session.run(size) == 1, "the cancelled step takes nothing"
        ended = session.run_async(element)
        assert ended.result(30) == 1.0
        assert not ended.cancel()


def test_an_error_is_that_of_run(backend: Backend):
    queue = tf.FIFOQueue(3, [tf.float32], [[]], name="q")
    close, element = queue.close(), queue.dequeue()
    x = tf.placeholder(tf.float32, [])
    with backend.session() as session:
        session.run(close)
        with pytest.raises(OutOfRangeError, match=r"test_run_async\.py:\d+"):
            session.run_async(element).result(30)
        with pytest.raises(InvalidArgumentError, match="must feed"):
            session.run_async(x + 1.0).result(30)
    with pytest.raises(RuntimeError, match="closed Session"):
        session.run_async(x)


def test_many_are_waited_for_by_the_tools_of_futures(backend: Backend):
    v = tf.Variable(0.0, name="v")
    grow = v.assign_add(1.0)
    with backend.session() as session:
        session.run(v.initializer)
        started = [session.run_async(grow.op) for _ in range(50)]
        done, rest = concurrent.futures.wait(started, 60)
        assert len(done) == 50
        assert not rest
        assert session.run(v) == 50.0


def test_fed_arrays_may_change_while_the_step_runs(backend: Backend):
    x = tf.placeholder(tf.float32, [None])
    twice = 2.0 * x
    with backend.session() as session:
        for _ in range(10):
            fed = np.ones(300_000, np.float32)
            started = session.run_async(twice, {x: fed})
            fed[:] = 7.0
            assert started.result(30).max() == 2.0
