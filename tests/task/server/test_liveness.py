"""Tasks that are killed or stopped are noticed and named, and used again when they go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

import jflow as tf
import jflow.numpy as jnp
from jflow.testing import PATIENCE_S, Pause, ProcessCluster, cpu_time, wait_until

TASKS = [("worker", 1), ("ps", 0), ("worker", 0)]
"""The last one is the master of the sessions."""

Step = tuple[tf.Tensor, dict[tf.Tensor, np.ndarray]]

BYTES = 32 << 20
"""More than the buffers on the way to a process take that does not read."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    """Processes with timers for tests; this process has them too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JFLOW_LIVENESS_S", "5")
        with ProcessCluster(ps=1, workers=2) as processes:
            yield processes


def waiting_on(job: str, index: int) -> tuple[tf.Graph, tf.Tensor, tf.Tensor]:
    """A graph with a step that waits on a task for ever, and the number of steps that do."""
    graph = tf.Graph()
    with graph.as_default(), tf.device(f"/job:{job}/task:{index}"):
        queue = tf.FIFOQueue(1, [tf.float32], [()], shared_name=f"of {job} {index}")
        begun = tf.Variable(0, name=f"begun_{job}_{index}")
        with tf.control_dependencies([begun.assign_add(1)]):
            return graph, queue.dequeue(), begun


@pytest.mark.parametrize("end", ["kill", "pause"])
@pytest.mark.parametrize(("job", "index"), TASKS)
def test_a_lost_task_is_named_in_the_error_of_the_step_that_waits_for_it(
    cluster: ProcessCluster, job: str, index: int, end: str
) -> None:
    graph, never, begun = waiting_on(job, index)
    with tf.Session(cluster.target(), graph) as session, ThreadPoolExecutor() as threads:
        session.run(begun.initializer)
        step = threads.submit(session.run, never)
        wait_until(lambda: session.run(begun) == 1, "the step to wait")
        getattr(cluster, end)(job, index)
        lost = time.monotonic()
        try:
            with pytest.raises(tf.errors.UnavailableError) as raised:
                step.result(PATIENCE_S)
        finally:
            noticed = time.monotonic() - lost
            cluster.resume(job, index) if end == "pause" else cluster.restart(job, index)
    assert raised.value.task == f"/job:{job}/task:{index}"
    assert noticed < 14, "sooner than with the timers of everyday, which are 15 s"


def test_a_session_goes_on_with_a_task_that_was_stopped_for_longer_than_the_liveness(
    cluster: ProcessCluster,
) -> None:
    with tf.device("/job:ps/task:0"):
        count = tf.Variable(0, name="count")
        counted = count.assign_add(1)
    with tf.Session(cluster.target()) as session:
        session.run(count.initializer)
        assert session.run(counted) == 1
        cluster.pause("ps", 0)
        try:
            with pytest.raises(tf.errors.UnavailableError) as raised:
                session.run(counted)
        finally:
            cluster.resume("ps", 0)
        assert raised.value.task == "/job:ps/task:0"
        begun = time.monotonic()
        # The step that failed may have been counted once it went on, or not.
        assert session.run(counted) in (2, 3)
        assert time.monotonic() - begun < 14, "2 s on a machine that is not busy"


def fed() -> Step:
    """A step that sends a large value from its client to the parameter server."""
    with tf.device("/job:ps/task:0"):
        given = tf.placeholder(tf.float32, [None])
        return given[0] * 1.0, {given: np.zeros(BYTES // 4, np.float32)}


def sent() -> Step:
    """A step that sends a large value from a worker to the parameter server."""
    with tf.device("/job:worker/task:0"):
        given = tf.placeholder(tf.float32, [])
        large = jnp.zeros([BYTES // 4]) + given
    with tf.device("/job:ps/task:0"):
        return large[0] * 1.0, {given: np.float32(1)}


def rests(pid: int) -> Callable[[], bool]:
    """Whether a process has worked since now, and has not for a while."""
    seen, since, has_worked = cpu_time(pid), time.monotonic(), False

    def check() -> bool:
        nonlocal seen, since, has_worked
        now = cpu_time(pid)
        if now - seen > 0.015:  # more than an answer to a sign of life
            seen, since, has_worked = now, time.monotonic(), True
        return has_worked and time.monotonic() - since > 0.5

    return check


@pytest.mark.parametrize("make", [fed, pytest.param(sent, marks=pytest.mark.long)])
def test_a_task_that_is_killed_in_the_middle_of_a_transfer_is_named(
    cluster: ProcessCluster, make: Callable[[], Step]
) -> None:
    step, feeds = make()
    with tf.Session(cluster.target()) as session, ThreadPoolExecutor(1) as threads:
        session.run(step, feeds)
        cluster.pause("ps", 0)  # or it would take all of it
        has_sent = rests(cluster.pid("worker", 0))
        running = threads.submit(session.run, step, feeds)
        wait_until(has_sent, "the master to send all that it can")
        assert seconds_to_tell_of_a_kill(cluster, running) < 14


def test_a_task_that_is_killed_while_plans_are_registered_on_it_is_named(
    cluster: ProcessCluster,
) -> None:
    cluster.restart("ps", 0, {"worker.before_compile": Pause()})
    with tf.device("/job:ps/task:0"):
        step = tf.constant(1.0) * 2
    with tf.Session(cluster.target()) as session, ThreadPoolExecutor(1) as threads:
        running = threads.submit(session.run, step)
        cluster.points("ps").wait_until_reached("worker.before_compile")
        assert seconds_to_tell_of_a_kill(cluster, running) < 14


def seconds_to_tell_of_a_kill(cluster: ProcessCluster, step: Future[object]) -> float:
    """Kills the parameter server; how long it takes until a step fails that needs it."""
    killed = time.monotonic()
    cluster.kill("ps", 0)
    try:
        with pytest.raises(tf.errors.UnavailableError) as raised:
            step.result(PATIENCE_S)
    finally:
        noticed = time.monotonic() - killed
        cluster.restart("ps", 0)
    assert raised.value.task == "/job:ps/task:0"
    return noticed
