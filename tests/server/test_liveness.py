"""Tasks that are killed or stopped are noticed by those that wait for them, and named."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import jflow as tf
from jflow.testing import PATIENCE_S, ProcessCluster, wait_until

TASKS = [("worker", 1), ("ps", 0), ("worker", 0)]
"""The last one is the master of the sessions."""


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
