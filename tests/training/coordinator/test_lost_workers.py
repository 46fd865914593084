"""Workers that are killed while closures run: what moves, what begins anew, what is counted."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any
from unittest.mock import Mock

import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.base.cluster import Task
from jflow.client.session import Session
from jflow.launch.testing.waiting import wait_until
from jflow.testing import PATIENCE_S, Kill, ProcessCluster
from jflow.training.coordinator import ClusterCoordinator, RemoteValueStatus
from jflow.training.coordinator.link import WorkerLink
from jflow.training.parameter_servers import ParameterServerStrategy


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    with ProcessCluster(ps=1, workers=2) as cluster:
        yield cluster


@pytest.fixture
def coordinator(cluster: ProcessCluster) -> Iterator[ClusterCoordinator]:
    strategy = ParameterServerStrategy(cluster.cluster_spec)
    with ClusterCoordinator(strategy) as coordinator:
        yield coordinator
    strategy.close()
    Session.reset(cluster.target("ps", 0), [])


def is_up(coordinator: ClusterCoordinator, worker: int) -> bool:
    return coordinator._engine._scheduler.workers.is_up(worker)


def n_running(coordinator: ClusterCoordinator, worker: int) -> int:
    return len(coordinator._engine._scheduler.attempts.of(worker))


def a_queue(coordinator: ClusterCoordinator, name: str) -> tf.FIFOQueue:
    with coordinator.strategy.scope(), tf.device("/job:ps/task:0"):
        return tf.FIFOQueue(100, [tf.float32], [[]], shared_name=name)


def test_closures_of_a_killed_worker_run_elsewhere_and_results_stay_readable(
    coordinator: ClusterCoordinator, cluster: ProcessCluster
) -> None:
    gate = a_queue(coordinator, "gate")

    @tf.function
    def takes(x: Any) -> Any:
        return gate.dequeue() + x

    before = coordinator.schedule(takes, args=(1.0,), worker=1)
    gate.enqueue(0.0)
    before.fetch()
    values = [coordinator.schedule(takes, args=(float(n),)) for n in range(4)]
    wait_until(lambda: all(n_running(coordinator, n) for n in (0, 1)), "both workers to be busy")
    n_lost = n_running(coordinator, 1)
    cluster.kill("worker", 1)
    wait_until(lambda: not is_up(coordinator, 1), "the loss to be noticed")
    # The queue may give some to steps of the lost worker, until its task has noticed the loss too.
    for _ in range(len(values) + n_lost):
        gate.enqueue(10.0)
    assert coordinator.fetch(values) == [10.0, 11.0, 12.0, 13.0]
    assert before.fetch() == 1.0
    coordinator.join()
    assert coordinator.metrics().worker_failures == 1
    assert coordinator.metrics().put_back == n_lost
    cluster.restart("worker", 1)


def test_closures_of_a_worker_that_dies_while_it_compiles_run_elsewhere(
    coordinator: ClusterCoordinator, cluster: ProcessCluster
) -> None:
    gate = a_queue(coordinator, "gate_of_a_compiler")

    @tf.function
    def takes(x: Any) -> Any:
        return gate.dequeue() * 3 + x

    cluster.restart("worker", 1, {"worker.before_compile": Kill()})
    values = [coordinator.schedule(takes, args=(float(n),)) for n in range(8)]
    # The other worker waits at the gate, so this one is given closures too.
    assert cluster.wait_until_ended("worker", 1) == -9
    for _ in values:
        gate.enqueue(10.0)
    assert coordinator.fetch(values) == [30.0 + n for n in range(8)]
    assert coordinator.metrics().put_back > 0
    assert cluster.exit_code("ps", 0) is cluster.exit_code("worker", 0) is None
    cluster.restart("worker", 1)


def test_a_large_result_of_a_killed_worker_is_computed_again(
    coordinator: ClusterCoordinator, cluster: ProcessCluster
) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(np.arange(1.0, 100.0, dtype=np.float32))
    iterator = iter(coordinator.create_per_worker_dataset(dataset))

    @tf.function
    def filled(iterator: Any) -> Any:
        return jnp.full(100_000, next(iterator))

    @tf.function
    def total(x: Any) -> Any:
        return x.sum()

    values = [coordinator.schedule(filled, (iterator,), worker=0) for _ in range(2)]
    coordinator.join()
    cluster.kill("worker", 0)
    wait_until(lambda: not is_up(coordinator, 0), "the loss to be noticed")
    assert values[0].status is RemoteValueStatus.ABORTED
    totals = [coordinator.schedule(total, (value,), worker=1) for value in values]
    cluster.restart("worker", 0)
    assert coordinator.fetch(totals) == [100_000.0, 200_000.0]
    assert values[1].fetch()[0] == 2.0
    assert values[1].status is RemoteValueStatus.READY


def test_a_worker_that_returns_begins_its_dataset_at_the_beginning(
    coordinator: ClusterCoordinator, cluster: ProcessCluster
) -> None:
    dataset = coordinator.create_per_worker_dataset(
        tf.data.Dataset.from_tensor_slices(np.arange(100.0, dtype=np.float32))
    )
    iterator = iter(dataset)

    @tf.function
    def element(iterator: Any) -> Any:
        return next(iterator)

    def elements(worker: int) -> list[float]:
        values = [coordinator.schedule(element, (iterator,), worker=worker) for _ in range(3)]
        return [float(x) for x in coordinator.fetch(values)]

    assert elements(0) == elements(1) == [0.0, 1.0, 2.0]
    handle = iterator.for_worker(0)
    assert handle.status is RemoteValueStatus.READY
    cluster.kill("worker", 0)
    wait_until(lambda: not is_up(coordinator, 0), "the loss to be noticed")
    assert handle.status is RemoteValueStatus.ABORTED
    with pytest.raises(tf.errors.CancelledError, match="was aborted"):
        handle.fetch()
    assert elements(1) == [3.0, 4.0, 5.0]
    cluster.restart("worker", 0)
    assert elements(0) == [0.0, 1.0, 2.0]
    assert handle.status is RemoteValueStatus.READY


def test_join_waits_while_all_workers_are_down_and_variables_can_be_used_meanwhile(
    coordinator: ClusterCoordinator, cluster: ProcessCluster
) -> None:
    with coordinator.strategy.scope():
        counter = tf.Variable(0.0, name="counter")

    @tf.function
    def count() -> None:
        counter.assign_add(1.0)

    coordinator.schedule(count)
    coordinator.join()
    for worker in (0, 1):
        cluster.kill("worker", worker)
    for worker in (0, 1):
        wait_until(lambda worker=worker: not is_up(coordinator, worker), "the loss to be noticed")
    values = [coordinator.schedule(count) for _ in range(5)]
    with pytest.raises(tf.errors.DeadlineExceededError, match="5 closures"):
        coordinator.join(timeout=0.1)
    counter.assign(100.0)
    assert counter.value() == 100.0
    cluster.restart("worker", 0)
    coordinator.join()
    assert counter.value() == 105.0
    assert coordinator.fetch(values) == [None] * 5
    cluster.restart("worker", 1)


def test_exactly_once_counts_every_closure_once_while_workers_are_killed(
    coordinator: ClusterCoordinator, cluster: ProcessCluster
) -> None:
    with coordinator.strategy.scope():
        counter = tf.Variable(0, name="exact")

    @tf.function
    def count() -> Any:
        return counter.assign_add(1)

    values = []
    for worker in (0, 1, 0):
        values += [coordinator.schedule(count, effects="exactly_once") for _ in range(60)]
        wait_until(values[-50].done, "some closures to end")
        cluster.kill("worker", worker)
        cluster.restart("worker", worker)
    coordinator.join()
    assert counter.value() == len(values)
    # Each closure has seen a state of its own, so no result is that of an attempt without effect.
    assert sorted(int(n) for n in coordinator.fetch(values)) == list(range(1, len(values) + 1))


def test_batches_in_exactly_once_mode_are_applied_once_although_a_worker_is_killed(
    coordinator: ClusterCoordinator, cluster: ProcessCluster
) -> None:
    with coordinator.strategy.scope():
        counter = tf.Variable(0, name="batches")

    @tf.function
    def count() -> Any:
        return counter.assign_add(1)

    values = [coordinator.schedule(count, effects="exactly_once") for _ in range(2000)]
    wait_until(values[1000].done, "batches to run")
    cluster.kill("worker", 0)
    cluster.restart("worker", 0)
    coordinator.join()
    assert counter.value() == len(values)
    assert sorted(int(n) for n in coordinator.fetch(values)) == list(range(1, len(values) + 1))
    assert coordinator.metrics().closure_execution.count < len(values)


def test_exactly_once_counts_every_closure_once_although_a_stopped_worker_goes_on_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the worker still wants to commit when it goes on is refused."""
    monkeypatch.setenv("JFLOW_LIVENESS_S", "1.5")
    with ProcessCluster(ps=1, workers=2) as cluster:
        strategy = ParameterServerStrategy(cluster.cluster_spec)
        with ClusterCoordinator(strategy) as coordinator:
            with strategy.scope():
                counter = tf.Variable(0, name="exact")

            @tf.function
            def count() -> Any:
                return counter.assign_add(1)

            coordinator.fetch([coordinator.schedule(count, worker=n) for n in (0, 1)])
            cluster.pause("worker", 0)
            values, n_stopped = [], 0
            for _ in range(100):
                values.append(coordinator.schedule(count, effects="exactly_once"))
                n_stopped = max(n_stopped, n_running(coordinator, 0))
            assert n_stopped > 0, "the stopped worker has some"
            coordinator.join(PATIENCE_S)
            cluster.resume("worker", 0)
            wait_until(lambda: is_up(coordinator, 0), "the worker to be used again")
            coordinator.schedule(count, worker=0, effects="exactly_once").fetch(PATIENCE_S)
            assert counter.value() == 2 + len(values) + 1
            found = sorted(int(n) for n in coordinator.fetch(values))
            assert found == list(range(3, len(values) + 3))
        strategy.close()


def test_exactly_once_refuses_queues_at_the_caller(coordinator: ClusterCoordinator) -> None:
    queue = a_queue(coordinator, "refused")

    @tf.function
    def takes() -> Any:
        return queue.dequeue()

    with pytest.raises(tf.errors.UnimplementedError, match="for functions that write variables"):
        coordinator.schedule(takes, effects="exactly_once")
    assert coordinator.done()


class _Pauses(threading.Event):
    """The pauses of a link, which take no time; the first of each time that it connects."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.seconds.append(timeout)
        return self.is_set()


def test_a_worker_over_which_nothing_succeeds_is_connected_to_less_and_less_often() -> None:
    """As one that refuses all closures, because its device is stuck."""
    connected: queue.Queue[int] = queue.Queue()
    events = Mock(connected=lambda worker, _: connected.put(worker))
    link = WorkerLink(Task("worker", 0), Mock, events)
    pauses = link._closing = _Pauses()
    link.start()
    try:
        for _ in range(4):
            connected.get(timeout=PATIENCE_S)
            link.disconnect()
        connected.get(timeout=PATIENCE_S)
        assert pauses.seconds == [0.02, 0.04, 0.08, 0.16], "but not before the first connection"
        future: Future[list[Any]] = Future()
        future.set_result([])
        link._ended(Mock(), future)
        link.disconnect()
        connected.get(timeout=PATIENCE_S)
        assert len(pauses.seconds) == 4, "something has succeeded"
    finally:
        link.close()
        link._thread.join(PATIENCE_S)
