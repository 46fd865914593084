"""The rows of TensorFlow's ClusterCoordinator about `schedule`, and what jflow adds to them."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import jax
import numpy as np
import pytest

import jflow as tf
from jflow.base.cluster import ClusterSpec
from jflow.cli.watcher import Watcher
from jflow.errors import UnavailableError
from jflow.launch.testing.waiting import wait_until
from jflow.state.effects import ConflictError
from jflow.state.watch import CoordinatorStatus
from jflow.task.worker.worker import Worker
from jflow.testing import start_servers
from jflow.training.coordinator import ClusterCoordinator, PerWorkerValues, engine
from jflow.training.parameter_servers import ParameterServerStrategy
from tests.notices import notices_after
from tests.training.coordinator.functions import a_counter, a_queue, double

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


def test_a_worker_leaves_while_it_is_connected_to(
    coordinator: ClusterCoordinator, cluster: ClusterSpec
) -> None:
    coordinator.remove_worker(0)
    engine = coordinator._engine
    engine.stop_workers()
    coordinator.add_worker(0, cluster.task_address("worker", 0))
    link = engine._links[0]
    coordinator.remove_worker(0)
    engine.resume_workers()
    link._thread.join(10.0)
    assert not link._thread.is_alive()
    assert coordinator.schedule(double, args=(1.0,)).fetch() == 2.0


def test_many_short_closures_run_in_batches_and_each_has_its_own_result(
    coordinator: ClusterCoordinator,
) -> None:
    with coordinator.strategy.scope():
        counter = tf.Variable(0, name="batches")

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


def test_join_and_fetch_say_what_they_wait_for_when_that_takes_long(
    coordinator: ClusterCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    queue = a_queue(coordinator, "notices")

    @tf.function
    def wait() -> Any:
        return queue.dequeue()

    with notices_after(0.1):
        values = [coordinator.schedule(wait) for _ in range(2)]
        waiting = threading.Thread(target=coordinator.join)
        waiting.start()
        try:
            wait_until(lambda: "now: for 2 closures, of which " in caplog.text, "a notice")
        finally:
            queue.enqueue(1.0)
            queue.enqueue(2.0)
            waiting.join()
        late = coordinator.schedule(wait)
        waiting = threading.Thread(target=late.fetch)
        waiting.start()
        try:
            wait_until(lambda: "now: for <jflow.RemoteValue of " in caplog.text, "a notice")
        finally:
            queue.enqueue(3.0)
            waiting.join()
    assert sorted(float(value.fetch()) for value in values) == [1.0, 2.0]


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


def test_a_loss_that_two_threads_notice_at_once_is_one_failure(
    coordinator: ClusterCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator.schedule(double, args=(1.0,), worker=0).fetch()
    engine, both = coordinator._engine, threading.Barrier(2)
    is_up = engine._scheduler.workers.is_up

    def seen(worker: int) -> bool:
        found = is_up(worker)
        with suppress(threading.BrokenBarrierError):
            both.wait(0.3)  # the other thread asks meanwhile, if it may
        return found

    monkeypatch.setattr(engine._scheduler.workers, "is_up", seen)
    error = UnavailableError("the connection has ended")
    with ThreadPoolExecutor(2) as pool:
        for lost in [pool.submit(engine.lost, 0, error) for _ in range(2)]:
            lost.result()
    assert coordinator.metrics().worker_failures == 1


# Reports ------------------------------------------------------------------------------------------


def test_a_performance_report_has_the_closures_with_their_workers_and_what_they_missed(
    coordinator: ClusterCoordinator,
) -> None:
    with coordinator.strategy.scope():
        weight = tf.Variable(1.0, name="weight")

    @tf.function
    def train(x: Any) -> None:
        with tf.device("/job:worker"):  # else all of it is one program beside the variable
            slope = jax.grad(lambda w: x * w**2)(weight.value())
        weight.assign_sub(slope)

    with tf.performance_report() as report:
        for _ in range(20):
            coordinator.schedule(train, args=(0.01,))
        coordinator.join()
    runs = {one.title: one.n_runs for one in report.measurements.steps}
    batches = {title: title.removesuffix(" calls of train") for title in runs if "train" in title}
    counts = [runs[title] * int(n if n.isdecimal() else 1) for title, n in batches.items()]
    assert sum(counts) == 20
    (update,) = [one for one in report.measurements.updates if one.variable == "weight"]
    assert update.n >= 1
    assert update.most_missed <= 20


def test_a_report_has_the_attempt_of_a_closure_that_was_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ExitStack() as stack:
        servers = start_servers(stack.enter_context, {"ps": 2, "worker": 1})
        strategy = ParameterServerStrategy(servers[0].cluster_spec)
        stack.callback(strategy.close)
        with strategy.scope():
            first, second = (tf.Variable(1.0, name=name) for name in ("first", "second"))
        coordinator = stack.enter_context(ClusterCoordinator(strategy))

        @tf.function
        def mix() -> None:
            with tf.device("/job:worker"):
                total = first.value() + second.value()
            first.assign(total)
            second.assign(total)

        coordinator.schedule(mix, effects="exactly_once")
        coordinator.join()
        run_plans, conflicts = Worker._run_plans, []

        async def conflicting(self: Worker, *args: Any) -> Any:
            values = await run_plans(self, *args)
            is_second = str(self._context.task) == "/job:ps/task:1"
            if is_second and args[4:] and len(conflicts) < 3:
                conflicts.append(args)
                await asyncio.sleep(0.05)  # so that the other task has succeeded
                raise ConflictError("an older step has it")
            return values

        with tf.performance_report() as plain:
            coordinator.schedule(mix, effects="exactly_once").fetch()
        monkeypatch.setattr(Worker, "_run_plans", conflicting)
        with tf.performance_report() as report:
            coordinator.schedule(mix, effects="exactly_once").fetch()
        assert len(conflicts) == 3
        counts = [
            (len(one.measurements.operations), sum(o.n for o in one.measurements.operations))
            for one in (plain, report)
        ]
        assert counts[0] == counts[1]
        assert [one.n for one in report.measurements.updates] == [1, 1]
        assert first.numpy() == 8.0


# What watchers of the cluster see -----------------------------------------------------------------


def told_of(cluster: ClusterSpec) -> list[CoordinatorStatus]:
    """The coordinators that clients have told the servers of a cluster of."""
    with Watcher([f"grpc://{cluster.task_address('ps', 0)}"], 30.0) as watcher:
        return [status for _, status in watcher.coordinators()]


def test_a_coordinator_tells_its_cluster_what_goes_on(
    cluster: ClusterSpec, coordinator: ClusterCoordinator
) -> None:
    queue = a_queue(coordinator, "held")

    @tf.function
    def hold() -> Any:
        return queue.dequeue()

    values = [coordinator.schedule(hold) for _ in range(5)]
    wait_until(lambda: any(one.n_running for one in told_of(cluster)), "a status")
    (status,) = told_of(cluster)
    assert status.name == "coordinator"
    assert status.n_waiting + status.n_running == 5
    assert [worker.task for worker in status.workers] == [
        "/job:worker/task:0",
        "/job:worker/task:1",
    ]
    assert sum(worker.n_running for worker in status.workers) == status.n_running
    for _ in values:
        queue.put(1.0)
    coordinator.join()
    wait_until(lambda: told_of(cluster)[0].n_done == 5, "the end of all")
    assert told_of(cluster)[0].n_running == 0


def test_a_coordinator_that_is_closed_is_not_told_of(
    cluster: ClusterSpec, made: Callable[..., ClusterCoordinator]
) -> None:
    with made() as coordinator:
        assert coordinator.schedule(double, args=(1.0,)).fetch() == 2.0
        wait_until(lambda: told_of(cluster), "a status")
    wait_until(lambda: not told_of(cluster), "the end, while its session is open")
