"""A parameter server that is killed in the middle of something, or stopped for a while."""

from __future__ import annotations

import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

import jflow as tf
import jflow.numpy as jnp
from bench.timing import tell
from jflow.testing import Pause, ProcessCluster

N_FED, N_SENT = 100_000_000, 60_000_000
"""Numbers of 4 bytes."""
PAUSED_S = 5.0
SOON_S = 0.3
"""Until a transfer is in its middle to a process that is stopped, and takes a few MB only."""


class Bench:
    """A cluster, and steps that its parameter server takes part in.

    Args:
      cluster: has two workers, of which the first one is the master.
    """

    def __init__(self, cluster: ProcessCluster) -> None:
        self._cluster = cluster

    def killed_in_a_feed(self) -> float:
        with tf.device("/job:ps/task:0"):
            given = tf.placeholder(tf.float32, [None])
            step = given[0] * 1.0
        small, large = np.zeros(10, np.float32), np.zeros(N_FED, np.float32)
        with tf.Session(self._cluster.target()) as session, ThreadPoolExecutor(1) as threads:
            session.run(step, {given: small})
            begun = time.perf_counter()
            session.run(step, {given: large})
            taken = time.perf_counter() - begun
            self._cluster.pause("ps", 0)
            running = threads.submit(session.run, step, {given: large})
            time.sleep(taken)  # the master has all of it then
            return self._told(running)

    def killed_in_a_value(self, worker: int) -> float:
        with tf.device(f"/job:worker/task:{worker}"):
            given = tf.placeholder(tf.float32, [])
            large = jnp.zeros([N_SENT]) + given
        with tf.device("/job:ps/task:0"):
            step = large[0] * 1.0
        with tf.Session(self._cluster.target()) as session, ThreadPoolExecutor(1) as threads:
            session.run(step, {given: 1.0})
            self._cluster.pause("ps", 0)
            running = threads.submit(session.run, step, {given: 1.0})
            time.sleep(SOON_S)
            return self._told(running)

    def killed_in_a_registration(self) -> float:
        self._cluster.restart("ps", 0, {"worker.before_compile": Pause()})
        with tf.device("/job:ps/task:0"):
            step = tf.constant(1.0) * 2
        with tf.Session(self._cluster.target()) as session, ThreadPoolExecutor(1) as threads:
            running = threads.submit(session.run, step)
            self._cluster.points("ps").wait_until_reached("worker.before_compile")
            return self._told(running)

    def _told(self, running: Future[Any]) -> float:
        """Kills the parameter server; seconds until the step fails, which needs it."""
        ended: list[float] = []
        running.add_done_callback(lambda _: ended.append(time.perf_counter()))
        assert not ended, "it does not end before the kill"
        killed = time.perf_counter()
        self._cluster.kill("ps", 0)  # returns when the process has ended
        error = running.exception()
        assert isinstance(error, tf.errors.UnavailableError)
        self._cluster.restart("ps", 0)
        return ended[0] - killed

    def stopped(self) -> float:
        """Seconds of a step after a pause in which the connections have ended."""
        with tf.device("/job:ps/task:0"):
            count = tf.Variable(0, name="count")
            step = count.assign_add(1)
        with tf.Session(self._cluster.target()) as session, ThreadPoolExecutor(1) as threads:
            session.run(count.initializer)
            session.run(step)
            self._cluster.pause("ps", 0)
            lost = threads.submit(session.run, step)
            time.sleep(PAUSED_S)
            assert isinstance(lost.exception(), tf.errors.UnavailableError)
            self._cluster.resume("ps", 0)
            begun = time.perf_counter()
            session.run(step)
            return time.perf_counter() - begun


def main() -> None:
    with ProcessCluster(ps=1, workers=2) as cluster:
        bench = Bench(cluster)
        tell({"told of a kill in a feed of 400 MB": bench.killed_in_a_feed()})
        for worker, sender in enumerate(("the master", "another task")):
            told = bench.killed_in_a_value(worker)
            tell({f"told of a kill in a value of 240 MB from {sender}": told})
        tell({"told of a kill in a registration": bench.killed_in_a_registration()})
    os.environ["JFLOW_LIVENESS_S"] = "3"
    with ProcessCluster(ps=1, workers=1) as cluster:
        tell({"step after a stop of 5 s, 3 s timers": Bench(cluster).stopped()})


if __name__ == "__main__":
    main()
