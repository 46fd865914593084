"""Coordinators whose workers and parameter servers are lost, and that are replaced themselves."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jflow as tf
from jflow.errors import FencedError, UnavailableError
from jflow.testing import PATIENCE_S, start_servers
from jflow.train import Server
from jflow.training.coordinator import ClusterCoordinator, RemoteValue
from jflow.training.parameter_servers import ParameterServerStrategy


class Cluster:
    """Two parameter servers and two workers in this process, which can be stopped and started."""

    def __init__(self, stack: ExitStack, path: Path) -> None:
        self.stack = stack
        jobs = {"ps": 2, "worker": 2}
        servers = start_servers(stack.enter_context, jobs)
        names = [(job, index) for job, n in jobs.items() for index in range(n)]
        self.servers = dict(zip(names, servers, strict=True))
        self.spec = servers[0].cluster_spec
        self.path = path / "model"

    def stop(self, job: str, index: int) -> None:
        self.servers[job, index].stop()

    def start(self, job: str, index: int) -> None:
        server = Server(self.spec, job, index)
        self.servers[job, index] = self.stack.enter_context(server)

    def program(self, **options: Any) -> Program:
        return Program(self, options)


class Program:
    """A program whose closures count on both parameter servers."""

    def __init__(self, cluster: Cluster, options: dict[str, Any]) -> None:
        self.strategy = ParameterServerStrategy(cluster.spec)
        cluster.stack.callback(self.strategy.close)
        self.coordinator = ClusterCoordinator(
            self.strategy, **{"checkpoint": cluster.path, **options}
        )
        cluster.stack.enter_context(self.coordinator)
        with self.strategy.scope():
            self.counts = [tf.Variable(np.int32(0), name=f"count_{i}") for i in range(2)]

        @tf.function
        def count() -> Any:
            for one in self.counts:
                one.assign_add(1)
            return self.counts[0].read_value()

        self._count = count

    def schedule(self, n: int = 1) -> list[RemoteValue]:
        return [self.coordinator.schedule(self._count) for _ in range(n)]

    def values(self) -> list[int]:
        return [int(count.value()) for count in self.counts]

    def count(self, n: int = 1) -> list[int]:
        """Counts, and returns the values then."""
        self.schedule(n)
        self.coordinator.join(PATIENCE_S)
        return self.values()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(stack, tmp_path)


@pytest.mark.parametrize("index", [0, 1])
def test_a_lost_parameter_server_is_a_pause(cluster: Cluster, index: int) -> None:
    program = cluster.program(on_ps_failure="restore")
    assert program.count(5) == [5, 5]
    program.coordinator.save()
    assert program.count(5) == [10, 10]
    cluster.stop("ps", index)
    values = program.schedule(5)
    cluster.start("ps", index)
    program.coordinator.join(PATIENCE_S)
    assert program.coordinator.n_restored == 1
    assert all(value.fetch() for value in values)
    back, there = (program.values()[i] for i in (index, 1 - index))
    assert back >= 5 + 1, "it goes on from the checkpoint; some may have counted here before"
    assert there >= 15, "the other one has lost nothing"
    before = program.values()
    assert program.count(3) == [value + 3 for value in before]


def test_by_default_it_is_unavailable_and_named_and_a_new_program_goes_on(
    cluster: Cluster,
) -> None:
    program = cluster.program()
    assert program.count(5) == [5, 5]
    program.coordinator.save({"step": "5"})
    cluster.stop("ps", 1)
    (value,) = program.schedule()
    for report in (program.coordinator.join, value.fetch):
        with pytest.raises(UnavailableError) as raised:
            report(PATIENCE_S)
        assert raised.value.task == "/job:ps/task:1"
    cluster.start("ps", 1)
    again = cluster.program()
    assert again.coordinator.restore() == {"step": "5"}
    assert again.count(2) == [7, 7]


def test_a_server_that_restarts_at_once_is_unavailable_too(cluster: Cluster) -> None:
    program = cluster.program()
    program.count()
    cluster.stop("ps", 1)
    cluster.start("ps", 1)
    program.schedule()
    with pytest.raises(UnavailableError, match="/job:ps/task:1"):
        program.coordinator.join(PATIENCE_S)


def test_without_a_checkpoint_it_cannot_be_restored(cluster: Cluster) -> None:
    program = cluster.program(on_ps_failure="restore")
    program.count()
    assert program.coordinator.restore() is None
    cluster.stop("ps", 1)
    cluster.start("ps", 1)
    program.schedule()
    with pytest.raises(UnavailableError, match=r"ClusterCoordinator\.save"):
        program.coordinator.join(PATIENCE_S)
    program.schedule()
    with pytest.raises(UnavailableError, match=r"ClusterCoordinator\.save") as raised:
        program.coordinator.join(PATIENCE_S)
    assert raised.value.task == "/job:ps/task:1", "its variables have no values, but had them"


def test_a_new_connection_to_a_worker_finds_that_a_server_has_lost_its_variables(
    cluster: Cluster,
) -> None:
    program = cluster.program()
    program.coordinator.save()
    cluster.stop("ps", 1)
    cluster.start("ps", 1)
    program.schedule()
    with pytest.raises(UnavailableError) as raised:
        program.coordinator.join(PATIENCE_S)
    assert raised.value.task == "/job:ps/task:1"


def test_a_variable_that_never_had_a_value_is_the_error_of_the_closure(cluster: Cluster) -> None:
    program = cluster.program(on_ps_failure="restore")
    program.count()
    tf.Session.reset(cluster.servers["ps", 1].target)
    program.schedule()
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"uninitialized value count_\d"):
        program.coordinator.join(PATIENCE_S)
    assert program.coordinator.n_restored == 0


def test_a_worker_that_was_lost_is_used_again(cluster: Cluster) -> None:
    program = cluster.program()
    program.count()
    for _ in range(2):
        cluster.stop("worker", 0)
        before = program.values()
        after = program.count(5)
        assert all(later >= first + 5 for first, later in zip(before, after, strict=True))
        cluster.start("worker", 0)
        program.coordinator.schedule(program._count, worker=0).fetch(PATIENCE_S)


def test_a_coordinator_that_was_replaced_is_refused_for_ever(cluster: Cluster) -> None:
    old = cluster.program()
    assert old.count(2) == [2, 2]
    new = cluster.program()
    assert new.count(2) == [4, 4]
    for _ in range(2):
        with pytest.raises(FencedError):
            old.count()
    with pytest.raises(FencedError):
        old.counts[0].assign(100)
    with pytest.raises(FencedError):
        old.coordinator.save()
    assert new.count() == [5, 5]


def test_coordinators_of_other_names_work_beside_each_other(cluster: Cluster) -> None:
    programs = [cluster.program(name=name) for name in ("one", "other", None)]
    for number, program in enumerate(programs, start=1):
        assert program.count() == [number] * 2


def test_a_failure_mode_that_there_is_not_is_refused(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="on_ps_failure='raise' or 'restore', got 'ignore'"):
        cluster.program(on_ps_failure="ignore")


def test_a_parameter_server_that_answers_is_not_lost(cluster: Cluster) -> None:
    """The way from a worker to it breaks, and heals; nothing was lost with it."""
    program = cluster.program()
    program.count()
    peers = cluster.servers["worker", 0]._started().tasks
    for peer in list(peers._peers.values()):
        peer._link and peer._link._lose("a test")
    before = program.values()
    after = program.count(10)
    assert all(later >= first + 10 for first, later in zip(before, after, strict=True))


def test_a_save_waits_for_a_lost_parameter_server(cluster: Cluster) -> None:
    program = cluster.program(on_ps_failure="restore")
    program.count()
    program.coordinator.save({"number": "1"})
    cluster.stop("ps", 1)
    with ThreadPoolExecutor() as threads:
        saved = threads.submit(program.coordinator.save, {"number": "2"})
        cluster.start("ps", 1)
        assert saved.result(PATIENCE_S).n_bytes > 0
    assert program.coordinator.n_restored == 1
    assert program.coordinator.restore() == {"number": "2"}
    assert program.values() == [1, 1]


def test_a_save_does_not_wait_for_a_worker_that_is_lost(cluster: Cluster) -> None:
    program = cluster.program()
    program.count()
    cluster.stop("worker", 0)
    assert program.coordinator.save({"number": "1"}).n_bytes > 0
    before = program.values()
    assert program.count() == [value + 1 for value in before]
    assert program.coordinator.restore() == {"number": "1"}
    assert program.values() == [1, 1]


def test_without_restoring_a_save_fails_with_the_server(cluster: Cluster) -> None:
    program = cluster.program()
    program.count()
    cluster.stop("ps", 1)
    with pytest.raises(UnavailableError) as raised:
        program.coordinator.save()
    assert raised.value.task == "/job:ps/task:1"
