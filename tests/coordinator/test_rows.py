"""The rows of TensorFlow's ClusterCoordinator, one by one, and what jflow adds to them."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.cluster import ClusterSpec
from jflow.coordinator import (
    ClosureInputError,
    ClusterCoordinator,
    PerWorkerValues,
    RemoteValueStatus,
    engine,
)
from jflow.parameter_servers import ParameterServerStrategy
from jflow.testing.waiting import wait_until


@tf.function
def double(x: Any) -> Any:
    return 2 * x


@tf.function
def not_a_number(x: Any) -> Any:
    return jnp.log(x)


def a_queue(coordinator: ClusterCoordinator, name: str) -> tf.FIFOQueue:
    """An empty queue on the parameter server, which closures can wait for."""
    with coordinator.strategy.scope(), tf.device("/job:ps/task:0"):
        return tf.FIFOQueue(100, [tf.float32], [[]], shared_name=name)


def a_failure(coordinator: ClusterCoordinator) -> Callable[[], Any]:
    """A function that fails: it takes an element of a queue that is closed and empty."""
    queue = a_queue(coordinator, "closed")
    queue.close()

    @tf.function
    def fail() -> Any:
        return queue.dequeue()

    return fail


def a_counter(coordinator: ClusterCoordinator) -> tuple[tf.Variable, Callable[[], Any]]:
    with coordinator.strategy.scope():
        counter = tf.Variable(0.0, name="counter")

    @tf.function
    def count() -> None:
        counter.assign_add(1.0)

    return counter, count


# Construction ---------------------------------------------------------------------------------


def test_construction_there_is_one_coordinator_for_a_strategy(
    coordinator: ClusterCoordinator,
) -> None:
    assert ClusterCoordinator(coordinator.strategy) is coordinator
    with pytest.raises(ValueError, match=r"requires a jflow\.distribute\.ParameterServerStrategy"):
        ClusterCoordinator("strategy")  # type: ignore[arg-type]


def test_construction_threads_end_when_the_coordinator_is_dropped(cluster: ClusterSpec) -> None:
    strategy = ParameterServerStrategy(cluster)
    coordinator = ClusterCoordinator(strategy)
    coordinator.schedule(double, args=(1.0,)).fetch()
    ended = weakref.ref(coordinator._engine)
    del coordinator
    wait_until(lambda: gc.collect() >= 0 and ended() is None, "the engine to end")
    strategy.close()


# schedule ---------------------------------------------------------------------------------------


def test_schedule_returns_at_once_and_takes_arguments_by_name(
    coordinator: ClusterCoordinator,
) -> None:
    @tf.function
    def difference(x: Any, y: Any) -> Any:
        return x - y

    value = coordinator.schedule(difference, args=(5.0,), kwargs={"y": np.float32(2)})
    assert value.fetch() == 3.0
    assert coordinator.schedule(difference, kwargs={"x": 1, "y": 2}).fetch() == -1


def test_schedule_refuses_a_plain_function(coordinator: ClusterCoordinator) -> None:
    with pytest.raises(TypeError, match=r"requires a jflow.function.*@jflow.function"):
        coordinator.schedule(lambda: 1)
    assert coordinator.done()


def test_schedule_raises_errors_of_tracing_at_the_caller_and_queues_nothing(
    coordinator: ClusterCoordinator,
) -> None:
    @tf.function
    def wrong(x: Any) -> Any:
        raise KeyError("in the trace")

    with pytest.raises(KeyError, match="in the trace"):
        coordinator.schedule(wrong, args=(1.0,))
    assert coordinator.metrics().scheduled == 0
    coordinator.join()


def test_schedule_copies_its_arguments(coordinator: ClusterCoordinator) -> None:
    array = np.ones(3, np.float32)
    values = []
    for _ in range(20):
        values.append(coordinator.schedule(double, args=(array,)))
        array += 1
    assert [value.fetch()[0] for value in values] == [2.0 * n for n in range(1, 21)]


def test_schedule_takes_a_method_and_its_object(coordinator: ClusterCoordinator) -> None:
    class Model:
        scale = 3.0

        @tf.function
        def scaled(self, x: Any) -> Any:
            return self.scale * x

    assert coordinator.schedule(Model().scaled, args=(2.0,)).fetch() == 6.0


def test_schedule_is_thread_safe_and_counts_every_closure(coordinator: ClusterCoordinator) -> None:
    counter, count = a_counter(coordinator)

    def many() -> None:
        for _ in range(100):
            coordinator.schedule(count)

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    coordinator.join()
    assert counter.value() == 400.0


def test_schedule_gives_a_function_the_value_of_its_worker(coordinator: ClusterCoordinator) -> None:
    values = PerWorkerValues([np.float32(10), np.float32(20)])
    for worker in (0, 1):
        value = coordinator.schedule(double, args=(values,), worker=worker)
        assert value.fetch() == 20.0 * (worker + 1)


def test_schedule_refuses_values_of_workers_that_differ_in_shape(
    coordinator: ClusterCoordinator,
) -> None:
    with pytest.raises(ValueError, match="values of all workers must have one structure"):
        coordinator.schedule(double, args=(PerWorkerValues([np.ones(2), np.ones(3)]),))


def test_schedule_waits_while_too_many_closures_are_open(
    coordinator: ClusterCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "MAX_OPEN", 3)
    queue = a_queue(coordinator, "bound")

    @tf.function
    def wait() -> Any:
        return queue.dequeue()

    for _ in range(3):
        coordinator.schedule(wait)
    fourth = threading.Thread(target=lambda: coordinator.schedule(wait))
    fourth.start()
    fourth.join(0.2)
    assert fourth.is_alive()
    queue.enqueue_many(np.zeros(4, np.float32))
    fourth.join()
    coordinator.join()
    assert coordinator.metrics().succeeded == 4


def test_worker_index_is_known_inside_functions_on_workers_only(
    coordinator: ClusterCoordinator,
) -> None:
    current_index = tf.distribute.coordinator.experimental_get_current_worker_index

    @tf.function
    def index(x: Any) -> Any:
        return current_index() + x

    for worker in (0, 1, 0):
        assert coordinator.schedule(index, (10,), worker=worker).fetch() == 10 + worker
    with pytest.raises(RuntimeError, match="only in functions that a coordinator schedules"):
        current_index()
    with (
        coordinator.strategy.scope(),
        pytest.raises(
            tf.errors.InvalidArgumentError, match="functions that a coordinator schedules"
        ),
    ):
        index(1)


# First error ------------------------------------------------------------------------------------


def test_first_error_is_raised_once_and_cancels_what_is_open(
    coordinator: ClusterCoordinator,
) -> None:
    queue = a_queue(coordinator, "empty")

    @tf.function
    def wait() -> Any:
        return queue.dequeue()

    blocked = [coordinator.schedule(wait, worker=0) for _ in range(3)]
    failed = coordinator.schedule(a_failure(coordinator), worker=1)
    with pytest.raises(tf.errors.OutOfRangeError):
        failed.fetch()
    with pytest.raises(tf.errors.OutOfRangeError):
        coordinator.join()
    for value in blocked:
        with pytest.raises(tf.errors.CancelledError, match=r"is cancelled.*Please reschedule"):
            value.fetch()
    coordinator.join()
    assert coordinator.done()
    assert coordinator.schedule(double, args=(1.0,)).fetch() == 2.0


@pytest.mark.parametrize("method", ["schedule", "join", "done"])
def test_first_error_is_raised_by_whatever_is_called_next(
    coordinator: ClusterCoordinator, method: str
) -> None:
    failed = coordinator.schedule(a_failure(coordinator))
    with pytest.raises(tf.errors.OutOfRangeError):
        failed.fetch()
    arguments = (double, (1.0,)) if method == "schedule" else ()
    with pytest.raises(tf.errors.OutOfRangeError):
        getattr(coordinator, method)(*arguments)
    assert coordinator.metrics().scheduled == 1  # the closure of the raising call was dropped
    assert coordinator.done()


# join and done ----------------------------------------------------------------------------------


def test_join_returns_at_once_if_nothing_is_scheduled_and_can_be_repeated(
    coordinator: ClusterCoordinator,
) -> None:
    coordinator.join()
    coordinator.schedule(double, args=(1.0,))
    coordinator.join()
    coordinator.join()
    assert coordinator.done()


def test_join_with_a_timeout_leaves_the_closures_running(coordinator: ClusterCoordinator) -> None:
    queue = a_queue(coordinator, "later")

    @tf.function
    def wait() -> Any:
        return queue.dequeue()

    value = coordinator.schedule(wait)
    assert not coordinator.done()
    with pytest.raises(tf.errors.DeadlineExceededError, match="1 closure"):
        coordinator.join(timeout=0.05)
    queue.enqueue(7.0)
    coordinator.join()
    assert value.fetch() == 7.0


def test_join_shows_progress(
    coordinator: ClusterCoordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(4):
        coordinator.schedule(double, args=(1.0,))
    coordinator.join(progress=True)
    captured = capsys.readouterr()
    assert "scheduled functions" in captured.out + captured.err


# RemoteValue ------------------------------------------------------------------------------------


def test_remote_value_has_the_structure_of_the_result(coordinator: ClusterCoordinator) -> None:
    @tf.function
    def nested(x: Any) -> Any:
        return {"a": (x, x + 1), "b": [x * 2]}

    value = coordinator.schedule(nested, args=(np.float32(1),))
    fetched = value.fetch()
    assert fetched == {"a": (1.0, 2.0), "b": [2.0]}
    assert type(fetched["a"][0]) is np.ndarray
    assert isinstance(value.get()["b"][0], jax.Array)
    assert value.status is RemoteValueStatus.READY


def test_remote_value_of_a_function_without_a_result_is_none(
    coordinator: ClusterCoordinator,
) -> None:
    _, count = a_counter(coordinator)
    assert coordinator.schedule(count).fetch() is None


def test_remote_value_of_a_failed_closure_raises_each_time_and_leaves_the_error_for_join(
    coordinator: ClusterCoordinator,
) -> None:
    value = coordinator.schedule(a_failure(coordinator))
    for _ in range(3):
        with pytest.raises(tf.errors.OutOfRangeError):
            value.fetch()
    with pytest.raises(tf.errors.OutOfRangeError):
        coordinator.join()
    with pytest.raises(tf.errors.OutOfRangeError):
        value.get()


def test_remote_value_can_be_awaited(coordinator: ClusterCoordinator) -> None:
    async def both() -> list[Any]:
        return await asyncio.gather(*map(_awaited, values))

    values = [coordinator.schedule(double, args=(float(n),)) for n in range(5)]
    assert asyncio.run(both()) == [0.0, 2.0, 4.0, 6.0, 8.0]


async def _awaited(value: Any) -> Any:
    return await value


def test_remote_value_can_be_an_argument_of_another_closure(
    coordinator: ClusterCoordinator,
) -> None:
    value = coordinator.schedule(double, args=(np.float32([1, 2]),))
    for _ in range(3):
        value = coordinator.schedule(double, args=(value,))
    np.testing.assert_array_equal(value.fetch(), [16, 32])


def test_remote_value_of_random_keys_can_be_an_argument_too(
    coordinator: ClusterCoordinator,
) -> None:
    split = tf.function(lambda key: jax.random.split(key, 3))
    numbers = tf.function(jax.vmap(jax.random.uniform))
    keys = coordinator.schedule(split, args=(jax.random.key(7),))
    value = coordinator.schedule(numbers, args=(keys,))
    wanted = jax.vmap(jax.random.uniform)(jax.random.split(jax.random.key(7), 3))
    np.testing.assert_array_equal(value.fetch(), wanted)


def test_remote_value_that_has_failed_is_refused_as_an_argument(
    coordinator: ClusterCoordinator,
) -> None:
    failed = coordinator.schedule(a_failure(coordinator))
    with pytest.raises(tf.errors.OutOfRangeError):
        failed.fetch()
    with pytest.raises(tf.errors.OutOfRangeError):
        coordinator.join()
    with pytest.raises(ClosureInputError) as caught:
        coordinator.schedule(double, args=(failed,))
    assert isinstance(caught.value.original_exception, tf.errors.OutOfRangeError)


def test_remote_value_that_fails_later_fails_what_waits_for_it(
    coordinator: ClusterCoordinator,
) -> None:
    queue = a_queue(coordinator, "fails_later")

    @tf.function
    def wait() -> Any:
        return queue.dequeue()

    source = coordinator.schedule(wait)
    value = coordinator.schedule(double, args=(source,))
    queue.close()
    with pytest.raises(ClosureInputError):
        value.fetch()
    with pytest.raises(tf.errors.OutOfRangeError):
        coordinator.join()


def test_remote_value_cannot_be_fetched_while_a_function_is_traced(
    coordinator: ClusterCoordinator,
) -> None:
    value = coordinator.schedule(double, args=(1.0,))

    def inner() -> Any:
        return value.fetch()

    hidden = [inner]

    @tf.function
    def fetches() -> Any:
        return hidden[0]()

    with pytest.raises(RuntimeError, match="pass it as an argument"):
        coordinator.schedule(fetches)

    @tf.function
    def captures() -> Any:
        return value

    with pytest.raises(TypeError, match=r"captures 'value'.*pass it as an argument"):
        coordinator.schedule(captures)


def test_remote_value_that_is_cancelled_is_no_error_of_join(
    coordinator: ClusterCoordinator,
) -> None:
    queue = a_queue(coordinator, "cancelled")

    @tf.function
    def wait() -> Any:
        return queue.dequeue()

    values = [coordinator.schedule(wait) for _ in range(4)]  # two of them wait for a worker
    assert all(value.cancel() for value in values)
    for value in values:
        with pytest.raises(tf.errors.CancelledError, match="is cancelled"):
            value.fetch()
        assert not value.cancel()
    coordinator.join()
    queue.enqueue(1.0)
    assert queue.size() == 1  # no cancelled closure takes it


def test_fetch_maps_over_a_structure_and_leaves_other_values_alone(
    coordinator: ClusterCoordinator, made: Callable[..., ClusterCoordinator]
) -> None:
    value = coordinator.schedule(double, args=(1.0,))
    assert coordinator.fetch({"a": [value, "text"], "b": 3}) == {"a": [2.0, "text"], "b": 3}
    with pytest.raises(ValueError, match="belongs to another coordinator"):
        made().fetch(value)


# Datasets ---------------------------------------------------------------------------------------


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


# Deadlines, affinity, priorities, workers ------------------------------------------------------


def test_a_closure_with_a_timeout_fails_with_a_deadline_error(
    coordinator: ClusterCoordinator,
) -> None:
    queue = a_queue(coordinator, "timeout")

    @tf.function
    def wait() -> Any:
        return queue.dequeue()

    value = coordinator.schedule(wait, timeout=0.3)
    with pytest.raises(tf.errors.DeadlineExceededError):
        value.fetch()
    with pytest.raises(tf.errors.DeadlineExceededError):
        coordinator.join()
    with pytest.raises(ValueError, match="timeout above 0"):
        coordinator.schedule(wait, timeout=0.0)


def test_a_worker_can_be_chosen_and_one_that_is_not_there_is_refused(
    coordinator: ClusterCoordinator,
) -> None:
    with pytest.raises(ValueError, match="there is no worker 5"):
        coordinator.schedule(double, args=(1.0,), worker=5)
    with pytest.raises(ValueError, match="expected effects="):
        coordinator.schedule(double, args=(1.0,), effects="never")
    assert coordinator.schedule(double, args=(1.0,), worker=1).fetch() == 2.0


def test_workers_leave_and_join_while_closures_run(
    coordinator: ClusterCoordinator, cluster: ClusterSpec
) -> None:
    counter, count = a_counter(coordinator)
    for _ in range(200):
        coordinator.schedule(count)
    coordinator.remove_worker(0)
    for _ in range(100):
        coordinator.schedule(count)
    coordinator.add_worker(0, cluster.task_address("worker", 0))
    assert coordinator.schedule(double, args=(1.0,), worker=0).fetch() == 2.0
    coordinator.join()
    assert counter.value() == 300.0


def test_many_short_closures_run_in_bursts_and_each_has_its_own_result(
    coordinator: ClusterCoordinator,
) -> None:
    with coordinator.strategy.scope():
        counter = tf.Variable(0, name="bursts")

    @tf.function
    def next_number(x: Any) -> Any:
        return counter.assign_add(1), x

    values = [coordinator.schedule(next_number, args=(n,)) for n in range(2000)]
    fetched = coordinator.fetch(values)
    assert sorted(int(n) for n, _ in fetched) == list(range(1, 2001))
    assert [int(x) for _, x in fetched] == list(range(2000))
    assert coordinator.metrics().closure_execution.count < 2000


# Bad input --------------------------------------------------------------------------------------


def test_a_closure_that_uses_what_is_not_of_the_cluster_is_refused_at_the_caller(
    coordinator: ClusterCoordinator,
) -> None:
    of_the_graph = tf.Variable(1.0, name="graph")

    @tf.function
    def reads_graph() -> Any:
        return of_the_graph.value()

    with pytest.raises(TypeError, match="part of a graph"):
        coordinator.schedule(reads_graph)

    with tf.connect():
        local = tf.Variable(1.0, name="local")

        @tf.function
        def writes_local() -> Any:
            return local.assign_add(1.0)

        with pytest.raises(ValueError, match="belongs to"):
            coordinator.schedule(writes_local)

    with coordinator.strategy.scope():
        private = tf.FIFOQueue(3, [tf.float32], [[]])

    @tf.function
    def uses_private() -> Any:
        return private.dequeue()

    with pytest.raises(ValueError, match="give it a shared_name"):
        coordinator.schedule(uses_private)

    @tf.function
    def calls_python(x: Any) -> Any:
        jax.debug.print("{}", x)
        return x

    with pytest.raises(ValueError, match="cannot call Python"):
        coordinator.schedule(calls_python, args=(1.0,))

    @tf.function
    def returns_text() -> Any:
        return "text"

    with pytest.raises(TypeError, match="must return arrays"):
        coordinator.schedule(returns_text)
    assert coordinator.done()
    assert coordinator.schedule(double, args=(1.0,)).fetch() == 2.0


def test_a_closed_coordinator_says_so_and_ends_what_is_open(
    made: Callable[..., ClusterCoordinator],
) -> None:
    coordinator = made()
    queue = a_queue(coordinator, "closing")

    @tf.function
    def wait() -> Any:
        return queue.dequeue()

    value = coordinator.schedule(wait)
    coordinator.close()
    with pytest.raises(tf.errors.CancelledError):
        value.fetch()
    with pytest.raises(RuntimeError, match="cannot be used any more"):
        coordinator.schedule(double, args=(1.0,))
    assert ClusterCoordinator(coordinator.strategy) is not coordinator


# Watchdog and metrics -----------------------------------------------------------------------------


def test_watchdog_logs_the_stacks_of_all_threads_when_nothing_ends(
    made: Callable[..., ClusterCoordinator], caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = made(watchdog_timeout=0.2)
    queue = a_queue(coordinator, "watchdog")

    @tf.function
    def wait() -> Any:
        return queue.dequeue()

    coordinator.schedule(wait)
    wait_until(lambda: "no closure has ended" in caplog.text, "the watchdog")
    assert "Thread MainThread" in caplog.text
    queue.enqueue(1.0)
    coordinator.join()


def test_metrics_count_closures_and_measure_traces_runs_and_fetches(
    coordinator: ClusterCoordinator,
) -> None:
    for n in range(10):
        coordinator.schedule(double, args=(float(n),)).fetch()
    coordinator.join()
    metrics = coordinator.metrics()
    assert (metrics.scheduled, metrics.succeeded, metrics.queued, metrics.running) == (10, 10, 0, 0)
    assert metrics.function_tracing.count == 1
    assert metrics.closure_execution.count == 10
    assert metrics.remote_value_fetch.count > 0
    assert metrics.worker_connecting.count >= 1
