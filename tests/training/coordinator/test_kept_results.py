"""Large results of closures: they stay on workers, are read there, computed again and freed."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.client.functions import Concrete
from jflow.client.session import Session
from jflow.launch.testing.backends import start_servers
from jflow.launch.testing.waiting import wait_until
from jflow.task.server import Server
from jflow.training.coordinator import ClusterCoordinator, RemoteValueStatus
from jflow.training.parameter_servers import ParameterServerStrategy

LARGE = 100_000


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Server]]:
    with ExitStack() as stack:
        yield start_servers(stack.enter_context, {"ps": 1, "worker": 2})


@pytest.fixture
def coordinator(servers: list[Server]) -> Iterator[ClusterCoordinator]:
    strategy = ParameterServerStrategy(servers[0].cluster_spec)
    with ClusterCoordinator(strategy) as coordinator:
        yield coordinator
    strategy.close()
    Session.reset(strategy.target_of(strategy.ps_tasks[0]), [])


class Traffic:
    """Bytes of arguments and results that pass the coordinator."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent = self.received = 0
        start = Concrete.start

        def counted(concrete: Concrete, feeds: Any, *rest: Any) -> Any:
            self.sent += sum(feed.nbytes for feed in feeds)
            future = start(concrete, feeds, *rest)
            future.add_done_callback(self._ended)
            return future

        monkeypatch.setattr(Concrete, "start", counted)

    def _ended(self, future: Any) -> None:
        if not future.exception():
            self.received += sum(value.nbytes for value in future.result())


@tf.function
def filled(x: Any) -> Any:
    return {"values": jnp.full(LARGE, x), "scale": x}


@tf.function
def scaled(result: Any, by: Any) -> Any:
    return {"values": by * result["values"], "scale": result["scale"]}


@tf.function
def total(first: Any, second: Any) -> Any:
    return first["values"].sum() + second["values"].sum() + first["scale"]


def n_kept(servers: list[Server]) -> int:
    """How many results all workers have."""
    cells = [cell for s in servers for cell in s.worker.containers.resources.cells().items()]
    tables = [cell for resource_id, cell in cells if resource_id.kind == "value_table"]
    return sum(cell.query(lambda table: len(table.values)) for cell in tables)


def lose(coordinator: ClusterCoordinator, servers: list[Server], *values: Any) -> None:
    """Takes from worker 0 all results that there are, without the knowledge of the coordinator."""
    assert n_kept(servers) == len(values)
    coordinator._engine._links[0].free([value.number for value in values])
    wait_until(lambda: n_kept(servers) == 0, "the results to be freed")


def test_a_large_result_passes_the_coordinator_only_if_it_is_fetched(
    coordinator: ClusterCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic = Traffic(monkeypatch)
    one = coordinator.schedule(filled, (np.float32(1),), worker=0)
    two = coordinator.schedule(scaled, (one, np.float32(2)))
    there = coordinator.schedule(total, (one, two), worker=1)
    twice = coordinator.schedule(total, (two, two), worker=0)
    assert (there.fetch(), twice.fetch()) == (3 * LARGE + 1, 4 * LARGE + 1)
    assert traffic.sent + traffic.received < 200
    assert (one.is_here, one.status, one.done()) == (False, RemoteValueStatus.READY, True)
    np.testing.assert_array_equal(two.fetch()["values"], np.full(LARGE, 2.0))
    assert 4 * LARGE < traffic.received < 5 * LARGE
    two.fetch()
    assert traffic.received < 5 * LARGE, "it is brought once"


def test_a_closure_runs_where_the_large_result_is_that_it_takes(
    coordinator: ClusterCoordinator,
) -> None:
    for worker in (1, 0, 1):
        value = coordinator.schedule(filled, (np.float32(1),), worker=worker)
        after = coordinator.schedule(scaled, (value, np.float32(2)))
        coordinator.join()
        assert coordinator._engine.results.locations.place(after.number) == worker


def test_a_small_result_is_at_the_coordinator_at_once(
    coordinator: ClusterCoordinator, servers: list[Server]
) -> None:
    value = coordinator.schedule(tf.function(lambda x: 2 * x), (np.ones(3, np.float32),))
    coordinator.join()
    assert value.is_here
    assert n_kept(servers) == 0


def test_a_result_that_depends_on_variables_is_copied_and_not_sent_back(
    coordinator: ClusterCoordinator, servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic = Traffic(monkeypatch)
    with coordinator.strategy.scope():
        weight = tf.Variable(3.0, name="weight")

    @tf.function
    def weighted(x: Any) -> Any:
        return {"values": weight.value() * jnp.full(LARGE, x), "scale": x}

    value = coordinator.schedule(weighted, (np.float32(1),), worker=0)
    coordinator.join()
    weight.assign(100.0)
    assert value.is_here
    assert coordinator.schedule(total, (value, value), worker=1).fetch() == 6 * LARGE + 1
    assert traffic.sent < 200
    lose(coordinator, servers, value)
    assert coordinator.schedule(total, (value, value), worker=1).fetch() == 6 * LARGE + 1
    assert traffic.sent > 4 * LARGE, "what the worker had was gone, so the copy was sent"


def test_results_are_freed_when_their_remote_values_are_dropped(
    coordinator: ClusterCoordinator, servers: list[Server]
) -> None:
    values = [coordinator.schedule(filled, (np.float32(n),)) for n in range(20)]
    coordinator.join()
    assert n_kept(servers) == 20
    del values[:15]
    gc.collect()
    wait_until(lambda: n_kept(servers) == 5, "the results to be freed")
    assert coordinator.fetch(values)[0]["scale"] == 15.0
    del values
    gc.collect()
    wait_until(lambda: n_kept(servers) == 0, "the other results to be freed")


def test_the_end_of_a_coordinator_frees_its_results_and_says_so(
    coordinator: ClusterCoordinator, servers: list[Server]
) -> None:
    value = coordinator.schedule(filled, (np.float32(1),), worker=0)
    coordinator.schedule(total, (value, value), worker=1)  # which has a plan that reads it
    coordinator.join()
    coordinator.close()
    with pytest.raises(tf.errors.CancelledError, match="when the coordinator was closed"):
        value.fetch()
    wait_until(lambda: n_kept(servers) == 0, "the results to be freed")


def test_a_result_that_is_gone_is_computed_again_with_what_its_closure_had_taken(
    coordinator: ClusterCoordinator, servers: list[Server]
) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(np.arange(1, 100, dtype=np.float32))
    iterator = iter(coordinator.create_per_worker_dataset(dataset))
    argument = np.float32([10, 20])

    @tf.function
    def element(iterator: Any, weights: Any) -> Any:
        x = next(iterator) * weights.sum()
        return {"values": jnp.full(LARGE, x), "scale": x}

    first = coordinator.schedule(element, (iterator, argument), worker=0)
    argument[:] = 0
    second = coordinator.schedule(scaled, (first, np.float32(2)), worker=0)
    coordinator.join()
    lose(coordinator, servers, first, second)
    assert coordinator.schedule(total, (second, second), worker=1).fetch() == 120 * LARGE + 30
    assert first.fetch()["scale"] == 30.0
    assert first.is_here
    assert second.is_here, "what was computed again is kept by the coordinator"
    assert coordinator.metrics().scheduled == 3


def test_no_result_hangs_on_more_than_eight_closures(coordinator: ClusterCoordinator) -> None:
    values = [coordinator.schedule(filled, (np.float32(1),))]
    for _ in range(9):
        values.append(coordinator.schedule(scaled, (values[-1], np.float32(2))))
    coordinator.join()
    assert [value.depth for value in values] == [*range(1, 9), 0, 1]
    assert [value.is_here for value in values] == [*[False] * 8, True, False]
    assert values[-1].fetch()["values"][0] == 2.0**9
