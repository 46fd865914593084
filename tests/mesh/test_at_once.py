"""Programs of several sessions, functions and a coordinator at once on the devices of one task."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jflow as tf
from jflow import errors
from jflow.plan.xla.mesh_program import MeshProgram
from tests.clusters import in_process
from tests.mesh.clusters import cluster as cluster

TASK = "/job:worker/task:0"
N = 12
X = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
PATIENCE_S = 100


def summed(x):
    """The sums of columns, which every device gets from all others."""
    name = jax.sharding.get_abstract_mesh().axis_names[0]
    return jax.shard_map(
        lambda part: jax.lax.psum(jnp.sum(part, axis=0), name), in_specs=P(name), out_specs=P()
    )(x)


def session_on(target, name, mesh):
    """Runs steps of graph code on a mesh, each with its own feed."""
    with tf.Graph().as_default() as graph, tf.device(name, mesh=mesh):
        x = tf.placeholder("float32", X.shape)
        total = tf.function(summed)(x)
    with tf.Session(target, graph=graph) as session:
        for i in range(N):
            found = session.run(total, {x: X * i})
            np.testing.assert_allclose(found, (X * i).sum(0), rtol=1e-5)


def function_on(target, name, mesh, variable):
    """Calls a function that updates a variable on a mesh."""
    with tf.connect(target):
        with tf.device(name, mesh=mesh):
            v = tf.Variable(np.zeros(8, np.float32), name=variable, sharding=P())

        @tf.function
        def add(x):
            with tf.device(name, mesh=mesh):
                v.assign_add(summed(x))

        for _ in range(N):
            add(X)
        np.testing.assert_allclose(v.numpy(), N * X.sum(0), rtol=1e-4)


def busy_on(target, name):
    """Runs programs of some milliseconds on one of the devices."""
    with tf.Graph().as_default() as graph, tf.device(name):
        x = tf.placeholder("float32", (200, 200))
        y = tf.lax.fori_loop(0, 20, lambda _, a: jnp.tanh(a @ a), x)
    with tf.Session(target, graph=graph) as session:
        for _ in range(N):
            assert np.isfinite(session.run(y, {x: np.eye(200)})).all()


def scheduled_on(cluster, mesh):
    """Schedules a function of meshes on whatever worker is free."""
    strategy = tf.distribute.ParameterServerStrategy(cluster.cluster_spec)

    @tf.function
    def total(x):
        with tf.device(mesh=mesh):
            return summed(x)

    with tf.distribute.coordinator.ClusterCoordinator(strategy) as coordinator:
        results = [coordinator.schedule(total, (X * i,)) for i in range(N)]
        for i, result in enumerate(results):
            np.testing.assert_allclose(result.fetch(), (X * i).sum(0), rtol=1e-5)
    strategy.close()


def test_sessions_functions_and_a_coordinator_share_the_devices_of_a_task():
    resources = tf.TaskResources(cpu_devices=4)
    with tf.LocalCluster(ps=1, workers=2, resources=resources) as cluster:
        target, other = cluster.target(), cluster.target("worker", 1)
        square = {"x": 2, "y": 2}
        with ThreadPoolExecutor(7) as threads:
            work = [
                threads.submit(session_on, target, TASK, square),
                threads.submit(session_on, other, f"{TASK}/device:MESH:1", {"x": 2}),
                threads.submit(function_on, target, TASK, {"x": 4}, "of_four"),
                threads.submit(function_on, other, TASK, {"y": 2}, "of_two"),
                threads.submit(busy_on, target, f"{TASK}/cpu:3"),
                threads.submit(busy_on, target, f"{TASK}/cpu:0"),
                threads.submit(scheduled_on, cluster, square),
            ]
            for each in work:
                each.result(PATIENCE_S)


def test_a_step_that_is_cancelled_while_it_waits_for_its_mesh_starts_on_no_device(cluster):
    """A program keeps one device of the mesh; a step that gives up leaves no trace."""
    with tf.Graph().as_default() as graph:
        with tf.device(TASK, mesh={"x": 4}):
            v = tf.Variable(np.zeros(8, np.float32), name="counted")
            count = v.assign_add(tf.function(summed)(tf.constant(X)))
        with tf.device(f"{TASK}/cpu:2"):
            rounds = tf.placeholder(tf.int32, ())
            long = tf.lax.fori_loop(
                0, rounds, lambda _, a: jnp.tanh(a @ a), tf.numpy.ones((300, 300))
            )[0, 0]
    done = threading.Event()

    def keep_busy():
        with tf.Session(cluster.target(), graph=graph) as session:
            session.run(long, {rounds: 3000})
        done.set()

    with tf.Session(cluster.target(), graph=graph) as session:
        session.run(v.initializer)
        session.run(count)
        session.run(long, {rounds: 1})
        thread = threading.Thread(target=keep_busy)
        thread.start()
        n_counted, message = 1, ""
        while not message:
            assert not done.is_set(), "the program was too short to wait for"
            try:
                session.run(count, options=tf.RunOptions(timeout_in_ms=200))
                n_counted += 1
            except errors.DeadlineExceededError as error:
                message = str(error)
        assert f"waited for {TASK}/device:MESH:0[x=4], which runs other programs" in message
        thread.join(PATIENCE_S)
        np.testing.assert_allclose(session.run(v), n_counted * X.sum(0), rtol=1e-4)
        session.run(count)
        np.testing.assert_allclose(session.run(v), (n_counted + 1) * X.sum(0), rtol=1e-4)
    tf.Session.reset(cluster.target())


@pytest.mark.parametrize("axes", [{"x": 4}, {"x": 2, "y": 2}])
def test_threads_of_one_process_share_its_devices(axes):
    """Local sessions have no server that could order their programs."""

    def call(i):
        @tf.function
        def total(x):
            with tf.device(mesh=axes):
                return summed(x)

        return total(X * i)

    with ThreadPoolExecutor(4) as threads:
        for i, found in enumerate(threads.map(call, range(8), timeout=PATIENCE_S)):
            np.testing.assert_allclose(found, (X * i).sum(0), rtol=1e-5)


@pytest.mark.parametrize("where", ["local", "server"])
def test_others_use_the_devices_while_a_program_is_compiled(where, monkeypatch):
    compiling, may_go_on = threading.Event(), threading.Event()
    compile_now = MeshProgram._compile

    def compile_later(program, form):
        compiling.set()
        assert may_go_on.wait(PATIENCE_S)
        return compile_now(program, form)

    @tf.function
    def on_mesh(x):
        with tf.device(mesh={"m": 4}):
            return summed(x)

    @tf.function
    def on_a_device(x):
        with tf.device("/device:CPU:1"):
            return jnp.sum(x)

    def connected(function, x):
        with tf.connect(target):
            return np.asarray(function(x))

    n_callers = 12  # more than the threads of a server for other work
    with ExitStack() as stack:
        target = ""
        if where == "server":
            target = stack.enter_context(in_process({"worker": 1})).target
        # From the first mesh on, a program of one device waits for those of meshes.
        np.testing.assert_allclose(connected(on_mesh, X), X.sum(0), rtol=1e-5)
        monkeypatch.setattr(MeshProgram, "_compile", compile_later)
        with ThreadPoolExecutor(n_callers) as threads:
            slow = [threads.submit(connected, on_mesh, X[:4]) for _ in range(n_callers)]
            try:
                assert compiling.wait(PATIENCE_S)
                assert connected(on_a_device, X) == X.sum()
                assert not any(one.done() for one in slow)
            finally:
                may_go_on.set()
            for one in slow:
                np.testing.assert_allclose(one.result(PATIENCE_S), X[:4].sum(0), rtol=1e-5)


def test_a_deadline_says_that_a_program_is_compiled(monkeypatch):
    may_go_on = threading.Event()
    compile_now = MeshProgram._compile

    def compile_later(program, form):
        assert may_go_on.wait(PATIENCE_S)
        return compile_now(program, form)

    monkeypatch.setattr(MeshProgram, "_compile", compile_later)

    @tf.function
    def on_mesh(x):
        with tf.device(mesh={"m": 4}):
            return summed(x)

    config = tf.ConfigProto(operation_timeout_in_ms=1000)
    with in_process({"worker": 1}) as backend, tf.connect(backend.target, config):
        with pytest.raises(errors.DeadlineExceededError, match=r"compiled a program for .*m=4"):
            on_mesh(X)
        may_go_on.set()


def test_a_program_is_compiled_once_for_several_callers(monkeypatch):
    compiled = []
    compile_now = MeshProgram._compile
    monkeypatch.setattr(
        MeshProgram, "_compile", lambda *args: compiled.append(args) or compile_now(*args)
    )

    @tf.function
    def on_mesh(x):
        with tf.device(mesh={"m": 2}):
            return 2 * summed(x)

    with tf.connect(), ThreadPoolExecutor(4) as threads:
        on_mesh.explain(X)  # traced before
        for found in threads.map(on_mesh, [X] * 4):
            np.testing.assert_allclose(found, 2 * X.sum(0), rtol=1e-5)
    assert len(compiled) == 1


def test_what_cannot_be_compiled_leaves_the_devices_to_others(monkeypatch):
    def fail(program, form):
        raise errors.InvalidArgumentError("no such program")

    @tf.function
    def on_mesh(x):
        with tf.device(mesh={"m": 4}):
            v.assign_add(summed(x))

    with in_process({"worker": 1}) as backend, tf.connect(backend.target):
        with tf.device(mesh={"m": 4}):
            v = tf.Variable(np.zeros(8, np.float32), name="not_compiled", sharding=P())
        monkeypatch.setattr(MeshProgram, "_compile", fail)
        with pytest.raises(errors.InvalidArgumentError, match="no such program"):
            on_mesh(X)
        monkeypatch.undo()
        on_mesh(X)
        np.testing.assert_allclose(v.numpy(), X.sum(0), rtol=1e-5)
