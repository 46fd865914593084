"""`LocalCluster`: tasks that are started again, keep logs, and end when they cannot start."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

import jflow as tf
from jflow.testing import Pause, failpoints, wait_until


def descendants() -> set[int]:
    """The processes that this one has started, and those have."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


def test_a_killed_task_is_another_life_at_the_same_address(tmp_path: Path) -> None:
    ready: dict[str, str] = {}
    before = descendants()
    with tf.LocalCluster(0, 1, logs=tmp_path, on_ready=ready.__setitem__) as cluster:
        address = cluster.cluster_spec.task_address("worker", 0)
        assert ready == {"/job:worker/task:0": f"grpc://{address}"}
        x = tf.Variable(1.0, name="x")
        with tf.Session(cluster.target()) as session:
            session.run(x.initializer)
        former = cluster.pid("worker")
        assert cluster.exit_code("worker") is None
        cluster.kill("worker")
        assert cluster.exit_code("worker") == -9
        cluster.restart("worker")
        assert cluster.pid("worker") != former
        assert cluster.exit_code("worker") is None
        assert cluster.cluster_spec.task_address("worker", 0) == address
        with (
            tf.Session(cluster.target()) as session,
            pytest.raises(tf.errors.FailedPreconditionError),
        ):
            session.run(x)
        assert len(descendants() - before) == 3, "the task, its validator, and their zygote"
    assert descendants() <= before
    assert (tmp_path / "worker-0.log").exists()


def test_tasks_that_take_too_long_to_start_are_ended() -> None:
    before = descendants()
    points = failpoints({"server.before_listen": Pause()}, here=False)
    with points, pytest.MonkeyPatch.context() as patch:
        for name, text in points.environment.items():
            patch.setenv(name, text)
        with pytest.raises(tf.errors.DeadlineExceededError, match=r"not started within 1\.5 s"):
            tf.LocalCluster(0, 1, timeout=1.5)
    wait_until(lambda: descendants() <= before, "all processes to end")
