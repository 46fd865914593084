"""Variables of parameter servers that are lost and come back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import jflow as tf
from jflow.errors import FencedError, NotFoundError, UnavailableError
from jflow.testing import PATIENCE_S, Pause, failpoints, start_servers
from jflow.train import Server
from jflow.training.coordinator.restoring import N_IN_VAIN, StateRestorer
from jflow.training.parameter_servers import ParameterServerStrategy


class Cluster:
    """Two parameter servers, of which the first is the strategy's own, and a worker."""

    def __init__(self, stack: ExitStack, path: Path) -> None:
        self.stack = stack
        servers = start_servers(stack.enter_context, {"ps": 2, "worker": 1})
        self.servers = servers[:2]
        self.strategy = ParameterServerStrategy(servers[0].cluster_spec)
        stack.callback(self.strategy.close)
        with self.strategy.scope():
            self.counts = [tf.Variable(np.int32(0), name=f"count_{i}") for i in range(2)]
            self.unnamed = tf.Variable(np.zeros(3))
        self.restorer = StateRestorer(self.strategy, path / "model", patience=5)
        self.restorer.note_lives()

    def add(self, n: int = 1) -> None:
        with self.strategy.scope():
            for count in self.counts:
                count.assign_add(n)

    def values(self) -> list[int]:
        return [int(count.value()) for count in self.counts]

    def stop(self, index: int) -> None:
        self.servers[index].stop()

    def start(self, index: int) -> None:
        spec = self.servers[index].cluster_spec
        self.servers[index] = self.stack.enter_context(Server(spec, "ps", index))

    def bring_back(self) -> None:
        self.restorer.bring_back(threading.Event())


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(stack, tmp_path)


@pytest.mark.parametrize("index", [0, 1])
def test_only_the_variables_of_the_lost_server_go_back_to_the_checkpoint(
    cluster: Cluster, index: int
) -> None:
    cluster.add()
    cluster.restorer.save()
    cluster.add()
    cluster.stop(index)
    assert not cluster.restorer.is_there(cluster.strategy.ps_tasks[index])
    cluster.start(index)
    assert not cluster.restorer.is_there(cluster.strategy.ps_tasks[index]), "it has another life"
    cluster.bring_back()
    assert cluster.restorer.is_there(cluster.strategy.ps_tasks[index])
    assert cluster.values() == [1 if i == index else 2 for i in range(2)]
    cluster.add()
    assert cluster.values() == [2 if i == index else 3 for i in range(2)]


@pytest.mark.parametrize("second", [0, 1])
def test_a_server_that_is_lost_while_another_one_is_restored_is_restored_too(
    cluster: Cluster, second: int
) -> None:
    cluster.add()
    cluster.restorer.save()
    cluster.add()
    cluster.stop(1)
    cluster.start(1)
    with (
        failpoints({"worker.before_restore": Pause(times=1)}) as points,
        ThreadPoolExecutor(1) as threads,
    ):
        done = threads.submit(cluster.bring_back)
        points.wait_until_reached("worker.before_restore")
        cluster.stop(second)
        cluster.start(second)
        points.release("worker.before_restore")
        done.result(PATIENCE_S)
    assert cluster.values() == [1 if second == 0 else 2, 1]
    for task in cluster.strategy.ps_tasks:
        assert cluster.restorer.is_there(task), "it is known in its last life"


def test_an_error_of_restoring_that_lasts_is_raised(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        tried.append(1)
        raise UnavailableError("the way is cut")

    tried: list[int] = []
    cluster.restorer.save()
    cluster.stop(1)
    cluster.start(1)
    monkeypatch.setattr(cluster.restorer, "_restore", fail)
    with pytest.raises(UnavailableError, match="the way is cut"):
        cluster.bring_back()
    assert len(tried) == N_IN_VAIN


def test_a_server_that_was_only_cut_off_keeps_its_variables(cluster: Cluster) -> None:
    cluster.add()
    cluster.bring_back()
    assert cluster.values() == [1, 1]


def test_a_server_that_does_not_come_back_is_unavailable(cluster: Cluster) -> None:
    cluster.stop(1)
    closing = threading.Event()
    closing.set()
    with pytest.raises(UnavailableError, match="did not come back within 5 s") as raised:
        cluster.restorer.bring_back(closing)
    assert raised.value.task == "/job:ps/task:1"


def test_without_a_checkpoint_a_lost_server_is_unavailable(cluster: Cluster) -> None:
    cluster.stop(1)
    cluster.start(1)
    with pytest.raises(UnavailableError, match=r"cannot be restored.*ClusterCoordinator\.save"):
        cluster.bring_back()
    with pytest.raises(NotFoundError, match="there is no checkpoint: give"):
        StateRestorer(cluster.strategy).save()


def test_another_program_finds_all_variables_by_the_order_in_which_they_were_made(
    cluster: Cluster,
) -> None:
    cluster.add(7)
    with cluster.strategy.scope():
        cluster.unnamed.assign(np.ones(3))
    cluster.restorer.save({"step": "7"})
    path = Path(str(cluster.restorer.path))
    with ExitStack() as stack:
        other = Cluster(stack, path.parent)
        other.restorer.restore()
        assert other.values() == [7, 7]
        np.testing.assert_array_equal(other.unnamed.value(), np.ones(3))


def test_a_strategy_that_was_replaced_restores_nothing(cluster: Cluster) -> None:
    cluster.strategy.connection.claim("run")
    cluster.restorer.save()
    with tf.Connection(cluster.servers[1].target) as other:
        other.claim("run")
    cluster.stop(0)
    cluster.start(0)
    with pytest.raises(FencedError):
        cluster.bring_back()
