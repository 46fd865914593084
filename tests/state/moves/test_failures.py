"""Tasks that die while state moves: it is at the old place or the new one, never at both."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import jflow as tf
from jflow.testing import Pause, ProcessCluster
from tests.state.moves.placing import all_on

PS = "/job:ps/task:0"
PATIENT = tf.ConfigProto(operation_timeout_in_ms=100_000)
HASTY = tf.ConfigProto(operation_timeout_in_ms=100_000, connect_timeout_in_ms=1000)


def test_the_state_is_where_the_source_says_whichever_task_dies() -> None:
    v = tf.Variable(0, name="v")
    add = v.assign_add(1)
    pauses = {"worker.before_save": Pause(), "worker.after_move": Pause()}
    with (
        ProcessCluster(workers=2, points={PS: pauses}) as cluster,
        ThreadPoolExecutor() as threads,
        tf.Session(cluster.target("worker", 1), config=PATIENT) as other,
    ):
        points = cluster.points("ps")
        other.run(v.initializer)
        assert other.run(add) == 1

        # The mover dies before the source has saved anything: nothing has moved.
        with tf.Session(cluster.target(), config=PATIENT) as session:
            assert session.run(add) == 2
            moving = threads.submit(session.replace, all_on("worker/task:1"), min_gain=None)
            points.wait_until_reached("worker.before_save")
            cluster.kill("worker", 0)
            with pytest.raises(tf.errors.UnavailableError):
                moving.result()
        assert other.run(add) == 3
        assert str(other.placement(add)[add.op]).startswith(PS)
        points.release("worker.before_save")
        cluster.restart("worker", 0)

        # It dies after the source has moved it, before it has told any other task.
        with tf.Session(cluster.target(), config=PATIENT) as session:
            assert session.run(add) == 4
            moving = threads.submit(session.replace, all_on("worker/task:1"), min_gain=None)
            points.wait_until_reached("worker.after_move")
            cluster.kill("worker", 0)
            with pytest.raises(tf.errors.UnavailableError):
                moving.result()
        assert other.run(add) == 5
        assert str(other.placement(add)[add.op]).startswith("/job:worker/task:1")
        points.release("worker.after_move")
        cluster.restart("worker", 0)

        # A task that has just started knows of no move; the first task that had the state does.
        with tf.Session(cluster.target(), config=HASTY) as session:
            assert session.run(add) == 6
            # The task that it is to move to dies: it is still where it was.
            session.replace(all_on("worker/task:0"), min_gain=None)
            cluster.kill("worker", 1)
            with pytest.raises(tf.errors.UnavailableError):
                session.replace(all_on("worker/task:1"), fetches=add, min_gain=None)
            assert session.run(add) == 7
