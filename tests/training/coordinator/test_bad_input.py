"""Bad input of schedules and fetches: a clear error at the caller's line, and nothing is harmed."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

import jflow as tf
from jflow.base.cluster import ClusterSpec
from jflow.training.coordinator import ClosureInputError, ClusterCoordinator, PerWorkerValues


@pytest.fixture(autouse=True)
def as_users_see_them() -> Iterator[None]:
    """Tracebacks without the frames of jflow and JAX, which end where public names are used."""
    assert tf.distribute.coordinator.ClusterCoordinator is ClusterCoordinator
    jax.config.update("jax_traceback_filtering", "remove_frames")
    yield
    jax.config.update("jax_traceback_filtering", "off")


@tf.function
def double(x: Any) -> Any:
    return 2 * x


def captures_a_dataset(coordinator: ClusterCoordinator) -> None:
    dataset = tf.data.Dataset.range(3)

    @tf.function
    def captures() -> Any:
        return len(list(dataset))

    coordinator.schedule(captures)


def writes_a_variable_of_another_cluster(coordinator: ClusterCoordinator) -> None:
    with tf.connect():
        local = tf.Variable(1.0, name="local")

    @tf.function
    def writes() -> Any:
        return local.assign_add(1.0)

    coordinator.schedule(writes)


def returns_what_is_no_array(coordinator: ClusterCoordinator) -> None:
    coordinator.schedule(tf.function(lambda: "text"))


def takes_unequal_inputs(coordinator: ClusterCoordinator) -> None:
    coordinator.schedule(double, (PerWorkerValues([np.ones(2), np.ones(3)]),))


def names_no_worker(coordinator: ClusterCoordinator) -> None:
    coordinator.schedule(double, (1.0,), worker=7)


def fetches_a_foreign_value(coordinator: ClusterCoordinator) -> None:
    strategy = tf.distribute.ParameterServerStrategy(coordinator.strategy.cluster_spec)
    with tf.ClusterCoordinator(strategy, name=None) as other:
        value = other.schedule(double, (1.0,))
        other.join()
    strategy.close()
    coordinator.fetch(value)


def takes_a_foreign_value(coordinator: ClusterCoordinator) -> None:
    strategy = tf.distribute.ParameterServerStrategy(coordinator.strategy.cluster_spec)
    with tf.ClusterCoordinator(strategy, name=None) as other:
        value = other.schedule(double, (1.0,))
        other.join()
    strategy.close()
    coordinator.schedule(double, (value,))


def has_no_parameter_server(_: ClusterCoordinator) -> None:
    tf.distribute.ParameterServerStrategy(ClusterSpec({"worker": ["127.0.0.1:1"]}))


@pytest.mark.parametrize(
    ("use", "kind", "words"),
    [
        (captures_a_dataset, TypeError, "captures 'dataset'.* pass it as an argument"),
        (writes_a_variable_of_another_cluster, ValueError, "belongs to"),
        (returns_what_is_no_array, TypeError, "must return arrays"),
        (takes_unequal_inputs, ValueError, "all workers must have one structure"),
        (names_no_worker, ValueError, "there is no worker 7"),
        (fetches_a_foreign_value, ValueError, "belongs to another coordinator"),
        (takes_a_foreign_value, ValueError, "belongs to another coordinator"),
        (has_no_parameter_server, ValueError, "at least one ps"),
    ],
)
def test_it_is_refused_at_the_line_of_the_caller(
    coordinator: ClusterCoordinator,
    use: Callable[[ClusterCoordinator], None],
    kind: type[Exception],
    words: str,
) -> None:
    with pytest.raises(kind, match=words) as caught:
        use(coordinator)
    assert traceback.extract_tb(caught.tb)[-1].filename == __file__
    assert coordinator.done()
    assert coordinator.schedule(double, (1.0,)).fetch() == 2.0


def test_what_fails_later_is_raised_by_the_next_call_and_then_all_is_well(
    coordinator: ClusterCoordinator,
) -> None:
    def raises(x: Any) -> Any:
        if x == 1:
            raise KeyError("in the dataset")
        return x

    dataset = tf.data.Dataset.range(3).map(raises)
    iterator = iter(coordinator.create_per_worker_dataset(dataset))

    @tf.function
    def element(iterator: Any) -> Any:
        return next(iterator)

    assert coordinator.schedule(element, (iterator,), worker=0).fetch() == 0
    failed = coordinator.schedule(element, (iterator,), worker=0)
    for call in (failed.fetch, lambda: coordinator.schedule(double, (1.0,))):
        with pytest.raises(KeyError, match="in the dataset"):
            call()
    coordinator.join()
    with pytest.raises(KeyError, match="in the dataset"):
        failed.fetch()
    with pytest.raises(ClosureInputError, match="in the dataset") as caught:
        coordinator.schedule(double, (failed,))
    assert traceback.extract_tb(caught.tb)[-1].filename == __file__
    assert coordinator.schedule(double, (1.0,)).fetch() == 2.0
