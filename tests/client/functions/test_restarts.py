"""What a connection does when tasks of its cluster restart."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.testing import ProcessCluster, wait_until


@pytest.fixture(scope="module")
def running() -> Iterator[ProcessCluster]:
    with ProcessCluster(ps=1, workers=2) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: ProcessCluster) -> ProcessCluster:
    """Three tasks without state."""
    tf.Session.reset(running.target("worker", 0))
    return running


def restarted(cluster: ProcessCluster, index: int, call: Callable[[], object]) -> None:
    """Kills a worker, waits until calls notice, and starts it again."""
    cluster.kill("worker", index)

    def is_noticed() -> bool:
        try:
            call()
        except tf.errors.UnavailableError:
            return True
        return False

    wait_until(is_noticed)
    cluster.restart("worker", index)


@pytest.mark.parametrize("index", [0, 1])
def test_a_worker_without_state_that_restarts_is_used_again(
    cluster: ProcessCluster, index: int
) -> None:
    with tf.connect(cluster.target("worker", 0)):
        with tf.device("/job:ps"):
            count = tf.Variable(0, name="count")

        @tf.function
        def computed(x: tf.Tensor) -> tf.Tensor:
            with tf.device(f"/job:worker/task:{index}"):
                return jnp.sin(x) + 1

        @tf.function
        def counted(x: tf.Tensor) -> tf.Tensor:
            with tf.device(f"/job:worker/task:{index}"):
                y = jnp.cos(x).astype(int)
            return count.assign_add(y)

        assert computed(0.0) == 1
        assert counted(0.0) == 1
        restarted(cluster, index, lambda: computed(0.0))
        assert counted(0.0) == 2, "what is kept elsewhere is there"
        assert computed(0.0) == 1
        assert tf.function(jnp.negative)(1.0) == -1
        restarted(cluster, index, lambda: computed(0.0))
        assert computed(0.0) == 1
        assert counted(0.0) == 3
        assert count.numpy() == 3


@pytest.mark.parametrize("index", [0, 1])
def test_what_a_restart_has_lost_is_said_once(cluster: ProcessCluster, index: int) -> None:
    with tf.connect(cluster.target("worker", 0)):
        with tf.device(f"/job:worker/task:{index}"):
            lost = tf.Variable(np.ones(2, np.float32), name="lost")
        with tf.device("/job:ps"):
            kept = tf.Variable(5, name="kept")

        @tf.function
        def total() -> tf.Tensor:
            return lost.value().sum()

        assert total() == 2
        restarted(cluster, index, total)
        with pytest.raises(tf.errors.RestartedError) as caught:
            total()
        said = str(caught.value)
        assert caught.value.task == f"/job:worker/task:{index}"
        assert f"/job:worker/task:{index}" in said
        assert "'lost'" in said
        assert "this connection" in said
        assert "kept" not in said
        assert "session" not in said
        with pytest.raises(tf.errors.FailedPreconditionError, match="lost"):
            total()
        lost.assign([1.0, 2.0])
        assert total() == 3
        assert kept.numpy() == 5
        restarted(cluster, index, total)
        with pytest.raises(tf.errors.RestartedError, match="'lost'"):
            lost.numpy()


def test_queues_of_a_connection_that_end_with_its_server_are_said_once(
    cluster: ProcessCluster,
) -> None:
    with tf.connect(cluster.target("worker", 0)):
        with tf.device("/job:ps"):
            queue = tf.FIFOQueue(3, tf.int32, ())
            shared = tf.FIFOQueue(3, tf.int32, (), shared_name="shared")
        queue.enqueue(1)
        shared.enqueue(2)
        restarted(cluster, 0, queue.size)
        with pytest.raises(tf.errors.RestartedError, match="this connection"):
            queue.size()
        assert shared.dequeue() == 2
        assert queue.size() == 0


@pytest.mark.parametrize("index", [0, 1])
def test_a_session_ends_with_a_worker_that_restarts(cluster: ProcessCluster, index: int) -> None:
    with tf.device(f"/job:worker/task:{index}"):
        result = tf.identity(tf.constant(1.0))
    with tf.Session(cluster.target("worker", 0)) as session:
        session.run(result)
        restarted(cluster, index, lambda: session.run(result))
        for _ in range(2):
            with pytest.raises(tf.errors.RestartedError, match="open a new session"):
                session.run(result)
