"""A coordinator while tasks of its cluster join and leave."""

from __future__ import annotations

import numpy as np
import pytest

import jflow as tf
from jflow.testing import PATIENCE_S, wait_until
from tests.task.server.members import PS1, WORKER_1, ChangingCluster, changing_cluster

cluster = pytest.fixture(changing_cluster)


class Counting:
    """A coordinator that counts, each time once, in a variable of a parameter server."""

    def __init__(self, cluster: ChangingCluster) -> None:
        spec = cluster.servers[PS1].cluster_spec
        self.strategy = tf.distribute.ParameterServerStrategy(spec)
        self.coordinator = tf.ClusterCoordinator(self.strategy)
        with self.strategy.scope():
            self.first = tf.Variable(np.float32(0.0), name="first")
            self.second = tf.Variable(np.float32(0.0), name="second")
        self.n_scheduled = 0

        @tf.function
        def add() -> None:
            self.second.assign_add(1.0)

        self._add = add

    def count(self, n: int) -> None:
        for _ in range(n):
            self.coordinator.schedule(self._add, effects="exactly_once")
        self.n_scheduled += n

    def check(self) -> None:
        self.coordinator.join(PATIENCE_S)
        assert self.second.numpy() == self.n_scheduled

    def workers(self) -> set[str]:
        """The tasks of the workers that take closures."""
        return {
            str(link.task)
            for index, link in self.coordinator._engine._links.items()
            if self.coordinator._engine._scheduler.workers.is_up(index)
        }


def test_workers_that_join_and_leave_take_part_and_no_closure_is_lost_or_doubled(
    cluster: ChangingCluster,
) -> None:
    counting = Counting(cluster)
    with counting.coordinator:
        counting.count(100)
        joined = cluster.join("worker")
        counting.count(100)
        wait_until(lambda: str(joined._task) in counting.workers())
        counting.count(200)
        cluster.drain(WORKER_1)
        counting.count(200)
        counting.check()
        wait_until(lambda: counting.coordinator._engine.workers() == [0, 2])
    counting.strategy.close()


def test_a_parameter_server_leaves_and_its_variables_are_found_and_counted_once(
    cluster: ChangingCluster,
) -> None:
    counting = Counting(cluster)
    with counting.coordinator:
        counting.count(200)
        joined = cluster.join("ps")
        cluster.drain(PS1, str(joined._task))
        counting.count(200)
        counting.check()
        wait_until(lambda: counting.strategy.present_ps_tasks[1] == joined._task)
        cluster.drain(str(joined._task), "/job:ps/task:0")
        counting.count(200)
        counting.check()
    counting.strategy.close()


def test_a_worker_that_joins_at_the_address_of_one_that_has_left_takes_part(
    cluster: ChangingCluster,
) -> None:
    counting, address = Counting(cluster), cluster.target(WORKER_1).partition("://")[2]
    with counting.coordinator:
        counting.count(50)
        cluster.drain(WORKER_1)
        wait_until(lambda: counting.coordinator._engine.workers() == [0])
        joined = cluster.join("worker", address=address)
        wait_until(lambda: str(joined._task) in counting.workers())
        counting.count(50)
        counting.check()
    counting.strategy.close()
