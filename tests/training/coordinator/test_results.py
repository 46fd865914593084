"""The rows of TensorFlow's ClusterCoordinator about errors, `join`, `fetch` and `RemoteValue`."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.launch.testing.waiting import wait_until
from jflow.training.coordinator import ClosureInputError, ClusterCoordinator, RemoteValueStatus
from jflow.training.coordinator.scheduler import ClosureScheduler
from tests.training.coordinator.functions import a_counter, a_failure, a_queue, double

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


@pytest.fixture
def checks_nans() -> Iterator[None]:
    """Lets steps of all threads check for NaN; `jax.debug_nans` is for one thread."""
    jax.config.update("jax_debug_nans", True)
    yield
    jax.config.update("jax_debug_nans", False)


@pytest.mark.long
@pytest.mark.usefixtures("checks_nans")
def test_first_error_of_a_batch_in_exactly_once_mode_is_that_of_one_closure(
    coordinator: ClusterCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    failed = ClosureScheduler.failed

    def noted(scheduler: ClosureScheduler, number: int, *rest: Any, **named: Any) -> Any:
        (attempt,) = [one for one in scheduler.attempts if one.number == number]
        sizes.append(len(attempt.closures))
        return failed(scheduler, number, *rest, **named)

    monkeypatch.setattr(ClosureScheduler, "failed", noted)
    with coordinator.strategy.scope():
        counter = tf.Variable(0.0, name="roots")

    @tf.function
    def add_root(x: Any) -> Any:
        root = jnp.sqrt(x)
        counter.assign_add(root)
        return root

    def schedule(xs: list[float]) -> list[Any]:
        args = [(np.float32(x),) for x in xs]
        return [coordinator.schedule(add_root, one, effects="exactly_once") for one in args]

    def has_batches() -> bool:
        n_before = coordinator.metrics().closure_execution.count
        coordinator.fetch(schedule([1.0] * 150))
        return coordinator.metrics().closure_execution.count < n_before + 75

    wait_until(has_batches, "closures to run in batches")
    before = counter.value()
    values = schedule([1.0] * 60 + [-1.0] + [1.0] * 89)
    with pytest.raises(FloatingPointError):
        values.pop(60).fetch()
    coordinator.fetch(values)
    with pytest.raises(FloatingPointError):
        coordinator.join()
    assert counter.value() == before + 149
    assert max(sizes) > 1
    assert min(sizes) == 1


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


@pytest.mark.parametrize(
    ("progress", "is_watched", "is_shown"),
    [(True, True, True), (None, True, False), (False, True, False), (True, False, False)],
    ids=["asked for", "short", "not wanted", "in a file"],
)
def test_join_shows_progress(
    coordinator: ClusterCoordinator,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    progress: bool | None,
    is_watched: bool,
    is_shown: bool,
) -> None:
    monkeypatch.setattr("jflow.base.progress.is_watched", lambda: is_watched)
    monkeypatch.setattr("jflow.training.coordinator.coordinator.is_watched", lambda: is_watched)
    for _ in range(4):
        coordinator.schedule(double, args=(1.0,))
    coordinator.join(progress=progress)
    captured = capsys.readouterr()
    assert ("scheduled functions" in captured.out + captured.err) == is_shown


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


def test_remote_value_is_fetched_by_others_after_a_task_that_awaits_it_was_cancelled(
    coordinator: ClusterCoordinator,
) -> None:
    queue = a_queue(coordinator, "awaited")

    @tf.function
    def wait() -> Any:
        return queue.dequeue()

    value = coordinator.schedule(wait)

    async def cancelled() -> None:
        await asyncio.wait_for(_awaited(value), 0.01)

    with pytest.raises(TimeoutError):
        asyncio.run(cancelled())
    queue.enqueue(7.0)
    assert value.fetch() == 7.0


def test_closures_that_have_ended_leave_nothing_to_the_garbage_collector(
    coordinator: ClusterCoordinator,
) -> None:
    coordinator.schedule(double, args=(1.0,)).fetch()
    gc.disable()
    try:
        values = [coordinator.schedule(double, args=(float(n),)) for n in range(5)]
        coordinator.join()
        ends = [weakref.ref(value) for value in values]
        del values
        wait_until(lambda: not any(end() for end in ends))
    finally:
        gc.enable()


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
