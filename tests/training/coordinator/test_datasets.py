"""The rows of TensorFlow's ClusterCoordinator about datasets of workers."""

from __future__ import annotations

import threading
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.launch.testing.waiting import wait_until
from jflow.training.coordinator import ClosureInputError, ClusterCoordinator
from jflow.training.coordinator.per_worker import PerWorkerIterator, PerWorkerValues
from jflow.training.parameter_servers import DistributedDataset
from jflow.training.parameter_servers.datasets import InputContext
from tests.training.coordinator.functions import double


def test_per_worker_dataset_each_worker_has_its_own_iterator(
    coordinator: ClusterCoordinator,
) -> None:
    dataset = coordinator.create_per_worker_dataset(
        lambda: tf.data.Dataset.from_tensor_slices(np.float32([1, 2, 3, 4]))
    )
    first, second = iter(dataset), iter(dataset)

    @tf.function
    def pair(iterator: Any) -> Any:
        return next(iterator), next(iterator)

    for iterator in (first, second):
        for worker in (0, 1):
            for wanted in ((1, 2), (3, 4)):
                value = coordinator.schedule(pair, args=(iterator,), worker=worker)
                assert value.fetch() == wanted


def test_per_worker_dataset_the_end_of_one_is_the_error_of_its_closure(
    coordinator: ClusterCoordinator,
) -> None:
    iterator = iter(
        coordinator.create_per_worker_dataset(tf.data.Dataset.from_tensor_slices([1.0]))
    )

    @tf.function
    def element(iterator: Any) -> Any:
        return next(iterator)

    assert coordinator.schedule(element, args=(iterator,), worker=0).fetch() == 1.0
    with pytest.raises(tf.errors.OutOfRangeError, match="no more elements"):
        coordinator.schedule(element, args=(iterator,), worker=0).fetch()
    with pytest.raises(tf.errors.OutOfRangeError):
        coordinator.join()
    assert coordinator.schedule(element, args=(iterator,), worker=1).fetch() == 1.0


def test_per_worker_dataset_a_function_can_take_no_element_or_different_numbers_of_them(
    coordinator: ClusterCoordinator,
) -> None:
    dataset = tf.data.Dataset.range(1000)
    iterator = iter(coordinator.create_per_worker_dataset(dataset))

    @tf.function(static_argnums=1)
    def total(iterator: Any, n: int) -> Any:
        return sum((next(iterator) for _ in range(n)), start=jnp.zeros((), int))

    for n, wanted in ((3, 0 + 1 + 2), (0, 0), (1, 3), (3, 4 + 5 + 6), (5, 7 + 8 + 9 + 10 + 11)):
        assert coordinator.schedule(total, args=(iterator, n), worker=0).fetch() == wanted


def test_per_worker_dataset_functions_of_one_worker_take_elements_in_their_order(
    coordinator: ClusterCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = coordinator.create_per_worker_dataset(tf.data.Dataset.range(100))
    iterator, other = iter(dataset), iter(dataset)

    @tf.function
    def element(iterator: Any) -> Any:
        return next(iterator)

    @tf.function
    def negative(iterator: Any) -> Any:
        return -next(iterator)

    for _ in range(3):  # until several are under way at a time
        coordinator.schedule(element, args=(other,), worker=0).fetch()
    are_read, take = threading.Event(), iterator.take_elements

    def late(worker: int, n: int, wait_s: float) -> list[Any] | None:
        """Elements are not read when the first function would take one, and are for the next."""
        is_late = not tried or (wait_s > 0 and not are_read.is_set())
        tried.append(worker)
        return None if is_late else take(worker, n, wait_s)

    tried: list[int] = []
    monkeypatch.setattr(iterator, "take_elements", late)
    functions = [element, negative, element, negative]
    values = [coordinator.schedule(fn, args=(iterator,), worker=0) for fn in functions]
    wait_until(lambda: coordinator.metrics().running > 1, "several to be under way")
    are_read.set()
    assert coordinator.fetch(values) == [0, -1, 2, -3]


def test_per_worker_dataset_a_function_that_waits_for_an_element_can_be_cancelled(
    coordinator: ClusterCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    iterator = iter(coordinator.create_per_worker_dataset(tf.data.Dataset.range(100)))

    @tf.function
    def element(iterator: Any) -> Any:
        return next(iterator)

    for n in range(3):
        assert coordinator.schedule(element, args=(iterator,), worker=0).fetch() == n
    take = iterator.take_elements
    monkeypatch.setattr(iterator, "take_elements", lambda *_: None)
    values = [coordinator.schedule(element, args=(iterator,), worker=0) for _ in range(2)]
    wait_until(lambda: coordinator.metrics().running > 1, "both to be under way")
    values[1].cancel()  # the one that waits for its turn
    with pytest.raises(tf.errors.CancelledError):
        values[1].fetch()
    monkeypatch.setattr(iterator, "take_elements", take)
    assert values[0].fetch() == 3


def test_per_worker_dataset_a_function_that_waits_for_an_element_of_a_lost_worker_runs_again(
    coordinator: ClusterCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    are_read = threading.Event()

    def wait(x: Any) -> Any:
        assert are_read.wait(60)
        return x

    are_read.set()  # to look at the first element
    numbers = tf.data.Dataset.range(100).map(wait)
    iterator = iter(coordinator.create_per_worker_dataset(numbers))
    are_read.clear()
    is_waiting, abort = threading.Event(), iterator.abort

    @tf.function
    def element(iterator: Any) -> Any:
        return next(iterator)

    def take(*args: Any) -> Any:
        is_waiting.set()
        return original(*args)

    def slow(worker: int) -> None:
        abort(worker)
        time.sleep(0.2)  # for what the one that waits makes of it

    original = iterator.take_elements
    monkeypatch.setattr(iterator, "take_elements", take)
    monkeypatch.setattr(iterator, "abort", slow)
    value = coordinator.schedule(element, args=(iterator,), worker=0)
    assert is_waiting.wait(60)
    coordinator._engine.lost(0, tf.errors.UnavailableError("a test says so"))
    are_read.set()
    assert value.fetch() == 0
    coordinator.join()
    assert coordinator.metrics().put_back == 1


def test_per_worker_dataset_refuses_what_workers_cannot_do(
    coordinator: ClusterCoordinator,
) -> None:
    def makes_a_variable() -> Any:
        tf.Variable(1.0, name="inside")
        return tf.data.Dataset.range(3)

    with pytest.raises(ValueError, match="created inside a dataset function"):
        coordinator.create_per_worker_dataset(makes_a_variable)
    with pytest.raises(TypeError, match="must return a dataset"):
        coordinator.create_per_worker_dataset(lambda: 3)
    with pytest.raises(TypeError, match="expected a function that returns a dataset"):
        coordinator.create_per_worker_dataset(3)
    dataset = coordinator.create_per_worker_dataset(tf.data.Dataset.range(3))
    with pytest.raises(NotImplementedError, match="pass it to schedule"):
        next(iter(dataset))

    @tf.function
    def iterates() -> Any:
        return iter(hidden[0])

    hidden = [dataset]
    with pytest.raises(RuntimeError, match="call it outside"):
        coordinator.schedule(iterates)

    @tf.function
    def loops(iterator: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda _, total: total + next(iterator), 0)

    with pytest.raises(TypeError, match="not supported in a loop"):
        coordinator.schedule(loops, args=(iter(dataset),))


def test_per_worker_dataset_that_raises_is_the_error_of_its_closure(
    coordinator: ClusterCoordinator,
) -> None:
    def raises(x: Any) -> Any:
        if x == 1:
            raise KeyError("in the dataset")
        return x

    iterator = iter(coordinator.create_per_worker_dataset(tf.data.Dataset.range(3).map(raises)))

    @tf.function
    def element(iterator: Any) -> Any:
        return next(iterator)

    assert coordinator.schedule(element, args=(iterator,), worker=0).fetch() == 0
    with pytest.raises(KeyError, match="in the dataset"):
        coordinator.schedule(element, args=(iterator,), worker=0).fetch()
    with pytest.raises(KeyError, match="in the dataset"):
        coordinator.join()


def test_per_worker_dataset_that_cannot_be_made_is_an_input_error(
    coordinator: ClusterCoordinator,
) -> None:
    fails: list[int] = []

    def make() -> Any:
        if fails:
            raise KeyError("no such file")
        return tf.data.Dataset.range(3)

    iterator = iter(coordinator.create_per_worker_dataset(make))

    @tf.function
    def element(iterator: Any) -> Any:
        return next(iterator)

    fails.append(0)
    iterator.abort(0)
    iterator.rebuild(0)
    value = coordinator.schedule(element, (iterator,), worker=0)
    for wait in (value.fetch, coordinator.join):
        with pytest.raises(ClosureInputError, match="no such file") as caught:
            wait()
        assert isinstance(caught.value.original_exception, KeyError)
    assert coordinator.schedule(double, (1.0,), worker=0).fetch() == 2.0, "it is not used"
    assert coordinator.schedule(element, (iterator,), worker=1).fetch() == 0


def test_per_worker_dataset_of_a_strategy_tells_each_worker_which_one_it_is(
    coordinator: ClusterCoordinator,
) -> None:
    strategy = coordinator.strategy
    dataset = coordinator.create_per_worker_dataset(
        lambda: strategy.distribute_datasets_from_function(
            lambda context: tf.data.Dataset.range(10).shard(2, context.input_pipeline_id)
        )
    )
    iterator = iter(dataset)

    @tf.function
    def element(iterator: Any) -> Any:
        return next(iterator)

    for worker in (0, 1):
        values = [coordinator.schedule(element, (iterator,), worker=worker) for _ in range(3)]
        assert coordinator.fetch(values) == [worker, worker + 2, worker + 4]


def test_a_worker_that_joins_has_a_part_of_a_dataset_that_was_divided_before() -> None:
    contexts = {index: InputContext(2, index) for index in (0, 1)}
    dataset = DistributedDataset(
        lambda context: tf.data.Dataset.range(6).shard(
            context.num_input_pipelines, context.input_pipeline_id
        ),
        contexts,
    )
    parts = [list(dataset.for_worker(worker)) for worker in (0, 1, 2, 5)]
    assert parts == [[0, 2, 4], [1, 3, 5], [0, 2, 4], [1, 3, 5]]


def test_a_worker_that_joins_has_no_value_of_those_that_were_made_before() -> None:
    values = PerWorkerValues([1, 2])
    assert values.for_worker(1) == 2
    with pytest.raises(ValueError, match=r"worker 2 has joined since .* and has no value"):
        values.for_worker(2)


def test_closures_are_traced_for_a_dataset_while_all_workers_are_down() -> None:
    iterator = PerWorkerIterator(lambda _: tf.data.Dataset.from_tensor_slices([1.5]), [0, 1])
    for worker in (0, 1):
        iterator.abort(worker)
    assert iterator.example() == 0.0
