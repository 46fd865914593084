"""Meshes of this process, whose threads start programs themselves."""

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import jflow as tf
from jflow import errors
from jflow.plan.xla.mesh_program import MeshProgram
from jflow.task.execution.device_order import DEVICE_ORDER, DeviceUse
from jflow.testing import wait_until

X = np.ones(8, np.float32)


@tf.function
def summed(x):
    with tf.device(mesh={"m": 4}):
        return jax.shard_map(lambda a: jax.lax.psum(a, "m"), in_specs=P("m"), out_specs=P())(x)


@tf.function
def long(n):
    """Some tenths of a millisecond a round, on a device of the mesh."""
    with tf.device("/cpu:1"):
        return jax.lax.fori_loop(0, n, lambda _, a: jnp.tanh(a @ a), jnp.ones((200, 200)))[0, 0]


def calling(host):
    """A function on one device whose program calls another one of this process."""

    @tf.function
    def outer(x):
        def body(_, a):
            return jax.pure_callback(host, jax.ShapeDtypeStruct(X.shape, X.dtype), a)

        with tf.device("/cpu:0"):
            return jax.lax.fori_loop(0, 3, body, x)

    return outer


def test_a_program_of_a_mesh_waits_for_one_that_another_thread_has_started():
    summed(X)
    long(1)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(long, 4000)
        wait_until(is_used)
        np.testing.assert_array_equal(summed(X), [4, 4])
        running.result(0.3)


def is_used():
    return bool(DEVICE_ORDER._uses)


def test_a_step_gives_up_waiting_for_its_devices_at_its_deadline():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder("float32", X.shape)
        total = summed(x)
        rounds = tf.placeholder(tf.int32, ())
        with tf.device("/cpu:2"):
            loop = tf.lax.fori_loop(
                0, rounds, lambda _, a: jnp.tanh(a @ a), tf.numpy.ones((300, 300))
            )[0, 0]
    with tf.Session(graph=graph) as session, ThreadPoolExecutor(1) as threads:
        session.run(total, {x: X})
        session.run(loop, {rounds: 1})
        running = threads.submit(session.run, loop, {rounds: 2500})
        wait_until(is_used)
        with pytest.raises(errors.DeadlineExceededError, match="waiting for devices"):
            session.run(total, {x: X}, options=tf.RunOptions(timeout_in_ms=200))
        assert not running.done()
        running.result()
        np.testing.assert_array_equal(session.run(total, {x: X}), [4, 4])


def doubled_on(**place):
    """A graph that doubles a placeholder somewhere."""
    with tf.Graph().as_default() as graph, tf.device(**place):
        x = tf.placeholder("float32", X.shape)
        return graph, x, x * 2


@contextmanager
def busy():
    """While a program on a mesh of all devices is not computed."""
    devices = np.array(jax.local_devices())
    use = DeviceUse(Mesh(devices, ("d",)))
    assert DEVICE_ORDER.begin(use, lambda: None)
    try:
        yield
    finally:
        DEVICE_ORDER.end(use)


def test_a_step_of_one_program_gives_up_waiting_at_its_deadline_too():
    graph, x, y = doubled_on(name="/cpu:1")
    with tf.Session(graph=graph) as session:
        np.testing.assert_array_equal(session.run(y, {x: X}), 2 * X)
        soon = tf.RunOptions(timeout_in_ms=200)
        with busy(), pytest.raises(errors.DeadlineExceededError, match="waiting for devices"):
            session.run(y, {x: X}, options=soon)
        np.testing.assert_array_equal(session.run(y, {x: X}, options=soon), 2 * X)


def test_a_session_of_one_device_waits_for_meshes_of_others():
    graph, x, y = doubled_on(name="/cpu:0")
    config = tf.ConfigProto(device_count={"CPU": 1})
    with tf.Session(graph=graph, config=config) as session, ThreadPoolExecutor(1) as threads:
        session.run(y, {x: X})
        with busy():
            running = threads.submit(session.run, y, {x: X})
            assert not wait([running], 0.3).done
        np.testing.assert_array_equal(running.result(30), 2 * X)


def test_a_session_of_one_device_calls_a_program_of_its_mesh_once_at_a_time(monkeypatch):
    calls, most = [], []
    call = MeshProgram.__call__

    def counted(program, *args, **options):
        calls.append(program)
        most.append(len(calls))
        try:
            return call(program, *args, **options)
        finally:
            calls.pop()

    monkeypatch.setattr(MeshProgram, "__call__", counted)
    graph, x, y = doubled_on(mesh={"m": 1})
    config = tf.ConfigProto(device_count={"CPU": 1})
    with tf.Session(graph=graph, config=config) as session, ThreadPoolExecutor(4) as threads:
        for found in threads.map(lambda _: session.run(y, {x: X}), range(16), timeout=60):
            np.testing.assert_array_equal(found, 2 * X)
    assert len(most) == 16
    assert max(most) == 1


def test_a_callback_that_needs_the_device_of_its_own_program_is_refused():
    summed(X)
    outer = calling(lambda x: np.tile(summed(np.asarray(x)), 4))
    with pytest.raises(Exception, match="cannot use Mesh"):
        np.asarray(outer(X))
    np.testing.assert_array_equal(summed(X), [4, 4])


def test_callbacks_that_use_one_device_go_on_beside_programs_of_meshes():
    @tf.function
    def inner(x):
        with tf.device("/cpu:0"):
            return x + 1

    summed(X)
    inner(X)
    begun, may_go_on = threading.Event(), threading.Event()

    def host(x):
        begun.set()
        may_go_on.wait(5)
        return np.asarray(inner(np.asarray(x)))

    with ThreadPoolExecutor(2) as threads:
        outer = threads.submit(lambda: np.asarray(calling(host)(X)))
        assert begun.wait(30)
        beside = threads.submit(lambda: np.asarray(summed(X)))
        may_go_on.set()
        np.testing.assert_array_equal(outer.result(60), X + 3)
        np.testing.assert_array_equal(beside.result(60), [4, 4])


@pytest.mark.parametrize("value", [3, 2.5, True, np.float32(2), np.int64(4)])
def test_numbers_are_arguments_of_functions_on_meshes(value):
    @tf.function
    def doubled(x):
        with tf.device(mesh={"m": 4}):
            return x * 2

    found = doubled(value)
    assert found == jax.jit(lambda x: x * 2)(value)
    assert found.dtype == jax.jit(lambda x: x * 2)(value).dtype


def test_threads_compile_a_program_of_a_mesh_of_one_device_once():
    @tf.function
    def doubled(x):
        with tf.device(mesh={"m": 1}):
            return x * 2

    doubled(X)
    with ThreadPoolExecutor(8) as threads:
        for found in threads.map(doubled, [X] * 16, timeout=60):
            np.testing.assert_array_equal(found, 2 * X)


def test_shardings_on_a_mesh_of_one_device_are_those_that_were_declared():
    with tf.connect():
        with tf.device(mesh={"m": 1}):
            first = tf.Variable(X, name="v", sharding=P("m"))
            again = tf.Variable(X, name="v", sharding=P("m"))
        assert first.sharding == again.sharding == P("m")


def test_a_sharding_needs_known_sizes():
    with tf.Graph().as_default(), tf.device(mesh={"m": 4}):
        x = tf.placeholder("float32", (None,))
        with pytest.raises(ValueError, match="needs sizes that are known"):
            tf.Variable(x, name="v", validate_shape=False, sharding=P("m"))


# Files ------------------------------------------------------------------------------------------


def test_a_file_keeps_variables_on_meshes_with_their_shardings(tmp_path):
    path = str(tmp_path / "graph")
    with tf.Graph().as_default() as graph, tf.device(mesh={"m": 4}):
        v = tf.Variable(X, name="v", sharding=P("m"))
        tf.add_to_collection("doubled", tf.numpy.multiply(v.value(), 2, name="doubled"))
    tf.export.save_graph(path, graph)
    with tf.Graph().as_default() as loaded:
        tf.export.load_graph(path)
        (variable,) = tf.global_variables()
        assert variable.sharding == P("m")
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            (doubled,) = loaded.get_collection("doubled")
            np.testing.assert_array_equal(session.run(doubled), 2 * X)
            (state,) = session._backend._containers.variables().values()
            assert state.buffer.array.sharding.spec == P("m")


def test_programs_that_need_a_mesh_are_not_written_to_files(tmp_path):
    with tf.Graph().as_default() as graph, tf.device(mesh={"m": 4}):
        tf.lax.with_sharding_constraint(tf.constant(X), P("m"))
    with pytest.raises(errors.UnimplementedError, match="a mesh with the axes m=4"):
        tf.export.save_graph(str(tmp_path / "graph"), graph)
