"""Synchronous training of replicas."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import optax
import pytest

import jflow as tf
from tests.clusters import Backend, in_process
from tests.training.input_queues.feeding import WAIT_S
from tests.training.optimizers.test_optimizer import PRESETS, plain

START = [np.array([1.0, -2.0], np.float32), np.float32(0.5)]


class Worker:
    """A worker with its own graph and session; its loss is the inner product with a feed."""

    def __init__(self, target: str, device: Any, optimizer: Any, n: int, total: int) -> None:
        self.graph = tf.Graph()
        with self.graph.as_default(), tf.device(device):
            w, b = self.variables = [
                tf.Variable(START[0], name="w"),
                tf.Variable(START[1], name="b"),
            ]
            self.global_step = tf.Variable(0, trainable=False, name="global_step")
            self.x = tf.placeholder("float32", [2])
            sync = self.sync = tf.train.SyncReplicasOptimizer(optimizer, n, total)
            pairs = sync.compute_gradients(tf.numpy.sum(w * self.x) + b * self.x[0])
            self.train_op = sync.apply_gradients(pairs, self.global_step)
            self.runner = sync.get_chief_queue_runner()
            self.init_tokens = sync.get_init_tokens_op()
            self.init = tf.global_variables_initializer()
            self.local_step = tf.local_variables()[0]
        self.session = tf.Session(target, graph=self.graph)

    def step(self, *x: float) -> None:
        """Applies the gradients [x0, x1] and x0, and waits for a token."""
        self.session.run(self.train_op, {self.x: x}, tf.RunOptions(timeout_in_ms=WAIT_S * 1000))


def on_worker(index: int) -> Any:
    """A device function for a worker: variables are on the parameter server."""

    def choose(op: tf.Operation) -> str:
        return "/job:ps/task:0" if op.type == "variable" else f"/job:worker/task:{index}"

    return choose


def anywhere(_: int) -> Any:
    """A device function that requests no device."""
    return ""


def gradient(*x: float) -> list[Any]:
    """The gradient of a step of a worker."""
    return [np.array(x, np.float32), np.float32(x[0])]


def mean(*gradients: list[Any]) -> list[Any]:
    """The mean of the gradients of several workers."""
    return [np.mean(column, axis=0) for column in zip(*gradients, strict=True)]


@contextmanager
def training(
    targets: Sequence[str], optimizer: Any, n: int, total: int, device_of: Any = anywhere
) -> Iterator[list[Worker]]:
    """Workers, of which the first is the chief."""
    coord = tf.train.Coordinator()
    with ExitStack() as stack:
        workers = [
            Worker(target, device_of(i), optimizer, n, total) for i, target in enumerate(targets)
        ]
        stack.callback(lambda: coord.join(stop_grace_period_secs=WAIT_S))
        for worker in workers:
            # The chief's thread waits for gradients until its session is closed.
            stack.callback(worker.session.close)
        stack.callback(coord.request_stop)
        chief = workers[0]
        chief.session.run(chief.init)
        chief.session.run(chief.sync.chief_init_op)
        for worker in workers[1:]:
            worker.session.run(worker.sync.local_step_init_op)
        chief.session.run(chief.init_tokens)
        chief.runner.create_threads(chief.session, coord, daemon=True, start=True)
        yield workers


def reach(worker: Worker, step: int) -> list[Any]:
    """The values of the variables at a global step."""
    gate = threading.Event()
    while worker.session.run(worker.global_step) < step:
        gate.wait(0.005)
    assert worker.session.run(worker.global_step) == step
    values: list[Any] = worker.session.run(worker.variables)
    return values


def assert_equal(found: list[Any], wanted: list[Any]) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_the_first_round_counts_and_the_second_is_wasted() -> None:
    optimizer = optax.adam(0.1)
    with training([""], optimizer, 1, 1) as (worker,):
        worker.step(1, 2)
        reach(worker, 1)
        worker.step(30, 40)  # labelled like the first
        reach(worker, 1)
        for i in range(3):
            worker.step(5, i)
        found = reach(worker, 4)
        assert worker.session.run(worker.local_step) == 4
    counted = [gradient(1, 2), *(gradient(5, i) for i in range(3))]
    assert_equal(found, plain(optimizer, START, counted))


@pytest.mark.parametrize("device_of", [on_worker, anywhere])
def test_the_slowest_of_three_is_not_waited_for(device_of: Any) -> None:
    optimizer = optax.sgd(0.1, momentum=0.9)
    applied = []
    with (
        in_process({"ps": 1, "worker": 3}) as backend,
        training(backend.targets, optimizer, 2, 3, device_of) as (one, two, slow),
        ThreadPoolExecutor(2) as threads,
    ):

        def both(a: Worker, x: Sequence[float], b: Worker, y: Sequence[float]) -> None:
            """Runs the workers in threads, because they wait for each other."""
            for step in [threads.submit(a.step, *x), threads.submit(b.step, *y)]:
                step.result(WAIT_S)

        both(one, (1, 2), two, (3, 4))
        applied.append(mean(gradient(1, 2), gradient(3, 4)))
        assert_equal(reach(one, 1), plain(optimizer, START, applied))

        # Three tokens of step 1 are there: for the slow one, and for the round that is wasted.
        slow.step(100, 100)
        both(one, (200, 200), two, (300, 300))
        assert_equal(reach(one, 1), plain(optimizer, START, applied))

        for i in range(4):
            # Another one is slow each time, and its gradient comes when the round is over.
            pair, late = ([one, slow], two) if i % 2 else ([slow, two], one)
            both(pair[0], (i, 1), pair[1], (2, i))
            applied.append(mean(gradient(i, 1), gradient(2, i)))
            reach(one, i + 2)
            late.step(1000, 1000)
            assert_equal(reach(one, i + 2), plain(optimizer, START, applied))
        steps = [worker.session.run(worker.local_step) for worker in (one, two, slow)]
        assert steps == [5, 5, 5]


def test_workers_that_run_freely_do_as_one_would() -> None:
    optimizer, pause = optax.adam(0.1), threading.Event()
    coord = tf.train.Coordinator(clean_stop_exception_types=(tf.errors.CancelledError,))
    with in_process({"ps": 1, "worker": 3}) as backend:
        with training(backend.targets, optimizer, 2, 3, on_worker) as workers:
            for i, worker in enumerate(workers):

                def work(worker: Worker = worker, pause_s: float = 0.02 * (i == 2)) -> None:
                    worker.step(1, 2)
                    pause.wait(pause_s)

                tf.train.LooperThread.loop(coord, None, work)
            gate = threading.Event()
            while workers[0].session.run(workers[0].global_step) < 10:
                gate.wait(0.005)
            step, values = workers[0].session.run([workers[0].global_step, workers[0].variables])
            coord.request_stop()
        # Their sessions are closed, so nothing waits for a token any more.
        coord.join(stop_grace_period_secs=WAIT_S)
    # It may count an update a moment after it is done.
    wanted = [plain(optimizer, START, [gradient(1, 2)] * n) for n in (step, step + 1)]
    assert any(np.allclose(values[0], each[0], atol=1e-5) for each in wanted)


def test_state_is_where_it_belongs() -> None:
    with (
        in_process({"ps": 1, "worker": 2}) as backend,
        training(backend.targets, optax.adam(1.0), 1, 2, on_worker) as workers,
    ):
        for i, worker in enumerate(workers):
            ops = [worker.train_op, *worker.runner.enqueue_ops]
            placed = worker.session.placement(ops, [worker.x])
            on_host = {
                op.name: device for op, device in placed.items() if op.eqn.primitive.name == "host"
            }
            assert on_host
            assert {str(device.task) for device in on_host.values()} == {"/job:ps/task:0"}
            local = placed[worker.train_op]
            assert str(local.task) == f"/job:worker/task:{i}"


def test_one_worker_can_give_several_gradients_to_a_round() -> None:
    optimizer = optax.sgd(1.0)
    with training([""], optimizer, 2, 1) as (worker,):
        worker.step(1, 2)
        assert worker.session.run(worker.global_step) == 0
        worker.step(3, 4)
        found = reach(worker, 1)
    assert_equal(found, plain(optimizer, START, [mean(gradient(1, 2), gradient(3, 4))]))


def test_variables_without_a_gradient_stay_as_they_are() -> None:
    used, unused = tf.Variable(1.0, name="used"), tf.Variable(2.0, name="unused")
    step = tf.Variable(0, trainable=False)
    sync = tf.train.SyncReplicasOptimizer(optax.sgd(1.0), 1)
    pairs = sync.compute_gradients(used * 3.0)
    assert [variable for _, variable in pairs] == [used, unused]
    assert pairs[1][0] is None
    train = sync.apply_gradients(pairs, step)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run([sync.chief_init_op])
        session.run(sync.get_init_tokens_op())
        session.run(train)
        session.run(sync.get_chief_queue_runner().enqueue_ops)
        assert session.run([used, unused, step]) == [-2.0, 2.0, 1]


def test_training_goes_on_where_it_was() -> None:
    used, step = tf.Variable(1.0), tf.Variable(7, trainable=False)
    sync = tf.train.SyncReplicasOptimizer(optax.sgd(1.0), 1)
    train = sync.apply_gradients(sync.compute_gradients(used * 3.0, [used]), step)
    (local_step,) = tf.local_variables()
    (round_op,) = sync.get_chief_queue_runner().enqueue_ops
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(tf.local_variables_initializer())
        assert session.run(local_step) == 0
        session.run(sync.chief_init_op)
        assert session.run(local_step) == 7
        session.run(sync.get_init_tokens_op(2))
        local_step.load(6, session)
        session.run(train)  # comes too late
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(round_op, options=tf.RunOptions(timeout_in_ms=100))
        assert session.run(local_step) == 7
        session.run(train)
        session.run(round_op)
        assert session.run([used, step, local_step]) == [-2.0, 8, 7]


def test_what_cannot_work_is_refused() -> None:
    variable, step = tf.Variable(1.0), tf.Variable(0, trainable=False)
    for numbers in ((0,), (1, 0), (-1,)):
        with pytest.raises(ValueError, match="at least one replica"):
            tf.train.SyncReplicasOptimizer(optax.sgd(1.0), *numbers)
    sync = tf.train.SyncReplicasOptimizer(optax.sgd(1.0), 3, 1)
    for early in (
        sync.get_chief_queue_runner,
        sync.get_init_tokens_op,
        lambda: sync.chief_init_op,
        lambda: sync.local_step_init_op,
    ):
        with pytest.raises(ValueError, match="apply_gradients first"):
            early()
    pairs = sync.compute_gradients(variable * 2.0)
    with pytest.raises(ValueError, match="at least one variable"):
        sync.apply_gradients([], step)
    with pytest.raises(ValueError, match="at least one variable"):
        sync.apply_gradients([(None, variable)], step)
    with pytest.raises(ValueError, match="global step is required"):
        sync.apply_gradients(pairs)
    sync.apply_gradients(pairs, step)
    for few in (0, 1, -2):
        with pytest.raises(ValueError, match=f"too few tokens.*{few} given, 2 needed"):
            sync.get_init_tokens_op(few)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(sync.get_init_tokens_op(2))


def test_no_tokens_may_be_needed() -> None:
    variable, step = tf.Variable(1.0), tf.Variable(0, trainable=False)
    sync = tf.train.SyncReplicasOptimizer(optax.sgd(1.0), 1)
    sync.apply_gradients(sync.compute_gradients(variable * 2.0), step)
    with tf.Session() as session:
        session.run(sync.get_init_tokens_op(0))


def test_hooks_start_the_rounds_of_monitored_sessions() -> None:
    def worker(target: str, index: int, stack: ExitStack) -> Callable[[], list[float]]:
        stack.enter_context(tf.Graph().as_default())
        with tf.device(on_worker(index)):
            w, step = tf.Variable(4.0, name="w"), tf.train.create_global_step()
            sync = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.5), 1)
            train = sync.minimize(w * w / 2, step)
        hook = sync.make_session_run_hook(is_chief=index == 0, num_tokens=0)
        session = stack.enter_context(
            tf.train.MonitoredTrainingSession(target, is_chief=index == 0, hooks=[hook])
        )
        options = tf.RunOptions(timeout_in_ms=WAIT_S * 1000)
        return lambda: session.run(train, options=options) or session.run([step, w])

    with in_process({"ps": 1, "worker": 2}) as backend, ExitStack() as stack:
        chief = worker(backend.targets[0], 0, stack)
        assert [chief(), chief()] == [[1, 2.0], [2, 1.0]]
        # Its label is that of the step, or its gradient would be dropped.
        assert worker(backend.targets[1], 1, stack)() == [3, 0.5]


def test_a_hook_needs_a_round() -> None:
    sync = tf.train.SyncReplicasOptimizer(optax.sgd(0.1), 1)
    with pytest.raises(ValueError, match="call apply_gradients first"):
        sync.make_session_run_hook(is_chief=True).begin()


@pytest.mark.parametrize("name", PRESETS)
def test_each_preset_trains_in_a_monitored_session(name: str) -> None:
    make, peer = PRESETS[name]
    w, b = [tf.Variable(START[0], name="w"), tf.Variable(START[1], name="b")]
    x, step = tf.placeholder("float32", [2]), tf.train.create_global_step()
    sync = tf.train.SyncReplicasOptimizer(make(0.1), 1)
    train = sync.minimize(tf.numpy.sum(w * x) + b * x[0], step)
    hooks = [
        sync.make_session_run_hook(is_chief=True, num_tokens=0),
        tf.train.StopAtStepHook(last_step=3),
    ]
    options = tf.RunOptions(timeout_in_ms=WAIT_S * 1000)
    n_runs = 0
    with tf.train.MonitoredTrainingSession(hooks=hooks) as session:
        while not session.should_stop():
            n_runs += 1
            session.run(train, {x: (n_runs, 2)}, options)
        found = session.run_step_fn(lambda step_context: step_context.session.run([w, b]))
    assert n_runs == 3
    wanted = plain(peer(0.1), START, [gradient(k, 2) for k in (1, 2, 3)])
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_a_stop_ends_the_round_that_waits_for_gradients(backend: Backend) -> None:
    with tf.device(backend.devices[-1]):
        w, step = tf.Variable(4.0, name="w"), tf.train.create_global_step()
        sync = tf.train.SyncReplicasOptimizer(optax.sgd(0.5), 1)
        train = sync.minimize(w * w / 2, step)
        runner, init = sync.get_chief_queue_runner(), sync.chief_init_op
    options = tf.RunOptions(timeout_in_ms=WAIT_S * 1000)
    with backend.session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        session.run(init)
        for k in (1, 2):  # the runner works again after a stop
            coord = tf.train.Coordinator()
            runner.create_threads(session, coord, daemon=True, start=True)
            session.run(train, options=options)
            coord.request_stop()
            coord.join(stop_grace_period_secs=WAIT_S)  # raises if a thread goes on
            assert session.run([step, w]) == [k, 4.0 / 2**k]


@pytest.mark.parametrize("is_divided", [False, True])
def test_rows_are_collected_as_rows_and_the_mean_is_of_those_that_have_them(
    is_divided: bool,
) -> None:
    """As in TensorFlow, row 1 is divided by two gradients and the others by one."""
    step = tf.train.get_or_create_global_step()
    partitioner = tf.fixed_size_partitioner(2) if is_divided else None
    table = tf.get_variable(
        "table", (6, 1), initializer=tf.zeros_initializer(), partitioner=partitioner
    )
    ids = tf.placeholder(tf.int32, (2,))
    weights = tf.placeholder(tf.float32, (2, 1))
    taken = tf.nn.embedding_lookup(table, ids, partition_strategy="div")
    loss = tf.reduce_sum(taken * weights)
    sync = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(1.0), 2, 1)
    pairs = sync.compute_gradients(loss)
    assert all(isinstance(grad, tf.IndexedSlices) for grad, _ in pairs)
    train = sync.apply_gradients(pairs, step)
    hook = sync.make_session_run_hook(is_chief=True)
    rows = tf.convert_to_tensor(table)
    gate = threading.Event()
    with tf.train.MonitoredSession(hooks=[hook]) as sess:
        sess.run(train, {ids: [0, 1], weights: [[1], [2]]})
        sess.run(train, {ids: [1, 4], weights: [[4], [5]]})
        while sess.run(step) < 1:
            gate.wait(0.005)
        np.testing.assert_allclose(sess.run(rows)[:, 0], [-1, -3, 0, 0, -5, 0])
