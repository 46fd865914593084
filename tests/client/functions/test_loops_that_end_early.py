"""Loops over devices that fail, run out of time or lose a task, in the middle of an iteration."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jflow as tf
from jflow.testing import PATIENCE_S, ProcessCluster, wait_until
from tests.clusters import Backend

ENDLESS = 1_000_000
"""So many iterations take minutes."""


def there_and_back(devices: list[str], x: Any, n: int) -> Any:
    """Adds up on one device what another one computes."""

    def body(total: Any, _: Any) -> Any:
        with tf.device(devices[-1]):
            y = total + 1.0
        with tf.device(devices[0]):
            return y * 1.0, None

    return lax.scan(body, x, None, length=n)[0]


def test_an_error_names_the_iteration_and_the_line(
    connection: tf.function.Connection, backend: Backend
) -> None:
    @tf.function
    def failing(xs: Any) -> Any:
        def body(total: Any, x: Any) -> Any:
            with tf.device(backend.devices[-1]):
                y = jnp.log(x)
            with tf.device(backend.devices[0]):
                return total + y, None

        return lax.scan(body, 0.0, xs, reverse=True)[0]

    xs = np.arange(1, 9, dtype=np.float32)
    wrong = np.where(xs == 4, -1, xs)
    with jax.debug_nans(True):
        np.testing.assert_allclose(failing(xs), np.log(xs).sum(), 1e-5)
        with pytest.raises((FloatingPointError, tf.errors.InvalidArgumentError)) as caught:
            failing(wrong)
    assert "iteration 3 of the loop" in str(caught.value)
    assert "log" in str(caught.value)
    np.testing.assert_allclose(failing(xs), np.log(xs).sum(), 1e-5)


def test_a_loop_ends_between_iterations_when_there_is_no_time_left(backend: Backend) -> None:
    backend.reset()
    graph = tf.Graph()
    with graph.as_default():
        x = tf.placeholder("float32", ())
        endless = graph.apply(lambda x: there_and_back(backend.devices, x, ENDLESS), (x,))
        short = graph.apply(lambda x: there_and_back(backend.devices, x, 3), (x,))
    config = tf.ConfigProto(operation_timeout_in_ms=4_000)
    with tf.Session(backend.targets[0], graph, config) as session:
        assert session.run(short, {x: 1.0}) == 4.0
        with pytest.raises(tf.errors.DeadlineExceededError, match="iteration"):
            session.run(endless, {x: 1.0})
        assert session.run(short, {x: 2.0}) == 5.0


def test_a_loop_whose_task_is_killed_fails_with_its_name_and_runs_again() -> None:
    with ProcessCluster(ps=0, workers=2) as cluster:
        devices = ["/job:worker/task:0", "/job:worker/task:1"]
        with tf.connect(cluster.target()), ThreadPoolExecutor() as threads:
            begun = tf.Variable(0.0, name="begun")
            loop = tf.function(lambda x, n: there_and_back(devices, x, n), static_argnums=1)

            @tf.function
            def endless(x: Any) -> Any:
                begun.assign(x)
                return there_and_back(devices, x, ENDLESS)

            assert float(loop(1.0, 3)) == 4.0

            def kill_it() -> None:
                wait_until(lambda: float(begun.numpy()) == 1.0, "the loop to begin")
                cluster.kill("worker", 1)

            killed = threads.submit(kill_it)
            with pytest.raises(tf.errors.UnavailableError, match="/job:worker/task:1"):
                endless(1.0)
            killed.result(PATIENCE_S)
            cluster.restart("worker", 1)
            assert float(loop(2.0, 3)) == 5.0
