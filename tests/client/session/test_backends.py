"""One suite for every kind of backend: the same program, the same answers, the same errors."""

from __future__ import annotations

import threading
from collections import OrderedDict, namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from tests.clusters import Backend


def test_a_fetch_structure_comes_back_in_its_own_shape(backend: Backend) -> None:
    Pair = namedtuple("Pair", "left right")
    a = tf.constant(1.0, name="a")
    b = a + 2
    with backend.session() as session:
        got = session.run(
            {"x": [a, (b,)], "y": Pair(b, a.op), "z": OrderedDict(k=a), "n": "a:0", "e": []}
        )
    assert got["x"] == [1.0, (3.0,)]
    assert got["y"] == Pair(3.0, None)
    assert isinstance(got["z"], OrderedDict)
    assert got["z"]["k"] == 1.0
    assert got["n"] == 1.0
    assert got["e"] == []
    assert isinstance(got["n"], np.float32)


def test_values_cross_devices_and_come_back(backend: Backend) -> None:
    x = tf.placeholder(tf.float32, (8, 4))
    with tf.device(backend.devices[0]):
        y = tf.numpy.sin(x)
    with tf.device(backend.devices[1]):
        z = tf.numpy.dot(y, tf.constant(np.ones((4, 2), np.float32)))
    with tf.device(backend.devices[0]):
        total = tf.numpy.sum(z * 2)
    given = np.linspace(0, 1, 32, dtype=np.float32).reshape(8, 4)
    with backend.session() as session:
        got_y, got_total = session.run([y, total], {x: given})
    np.testing.assert_allclose(got_y, np.sin(given), rtol=1e-6)
    np.testing.assert_allclose(got_total, np.sum(np.sin(given)) * 4, rtol=1e-5)


def test_small_values_that_cross_together_arrive_apart(backend: Backend) -> None:
    shapes: list[tuple[int, ...]] = [(), (3,), (2, 2)]
    given = [np.arange(np.prod(shape), dtype=np.float32).reshape(shape) for shape in shapes]
    with tf.device(backend.devices[0]):
        numbers = [tf.Variable(float(number)) for number in range(20)]
        made = [tf.numpy.cos(value) for value in given]
        counts = [tf.cast(value, tf.int32) + number for number, value in enumerate(made)]
    with tf.device(backend.devices[1]):
        back = [tf.numpy.negative(value) for value in (*made, *counts)]
        stacked = tf.numpy.stack([number.value() for number in numbers])
        doubled = stacked * 2.0
    with tf.device(backend.devices[0]):
        total = tf.numpy.sum(doubled)
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        session.run(numbers[0].assign(3.0))
        got_back, got_total, got_made = session.run([back, total, made[1]])
    made_there = [np.cos(value) for value in given]
    expected = [-value for value in made_there]
    expected += [-(value.astype(np.int32) + number) for number, value in enumerate(made_there)]
    for got, value in zip(got_back, expected, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-6)
        assert got.shape == value.shape
    assert got_total == 2 * (3 + sum(range(1, 20)))
    np.testing.assert_allclose(got_made, made_there[1], rtol=1e-6)


def test_a_gradient_through_two_devices_is_jax_s(backend: Backend) -> None:
    def layers(x: object, w: object, where: list[str]) -> object:
        with tf.device(where[0]):
            hidden = tf.nn.relu(tf.numpy.dot(x, w))
        with tf.device(where[1]):
            return tf.numpy.mean(tf.nn.softmax(hidden)[:, 0] ** 2)

    weights = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    given = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    with tf.device(backend.devices[1]):
        w = tf.Variable(weights, name="w")
    x = tf.placeholder(tf.float32, (5, 4))
    slope, slope_x = tf.gradients(layers(x, w, backend.devices), [w, x])
    with backend.session() as session:
        session.run(w.initializer)
        got = session.run([slope, slope_x], {x: given})
    expected = jax.grad(
        lambda w, x: jnp.mean(jax.nn.softmax(jax.nn.relu(x @ w))[:, 0] ** 2), (0, 1)
    )(weights, given)
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_a_control_input_on_another_device_runs_before(backend: Backend) -> None:
    with tf.device(backend.devices[1]):
        x = tf.Variable(1.0, name="x")
        bump = x.assign_add(1.0)
    with tf.device(backend.devices[0]), tf.control_dependencies([bump]):
        after = tf.constant(5.0) * 2
    with tf.control_dependencies([after]):
        read = x.read_value()
    with backend.session() as session:
        session.run(x.initializer)
        assert session.run([after, read]) == [10.0, 2.0]
        assert session.run(read) == 3.0


def test_variables_are_shared_exactly_where_there_is_a_cluster(backend: Backend) -> None:
    x = tf.Variable(0.0, name="x")
    increment = tf.assign(x, x + 1)
    with backend.session(0) as session:
        session.run(x.initializer)
        assert session.run(increment) == 1.0
    with backend.session(1) as session:
        if backend.shared:
            assert session.run(increment) == 2.0
        else:
            with pytest.raises(tf.errors.FailedPreconditionError):
                session.run(increment)


def test_another_graph_with_the_same_name_finds_the_same_variable(backend: Backend) -> None:
    if not backend.shared:
        pytest.skip("local sessions share nothing")
    with tf.Graph().as_default():
        x = tf.Variable(np.arange(3.0), name="x")
        with backend.session() as session:
            session.run(x.initializer)
    with tf.Graph().as_default():
        tf.constant(0.0)
        same = tf.Variable(np.zeros(3), name="x")
        with backend.session(1) as session:
            np.testing.assert_array_equal(session.run(same), [0, 1, 2])


def test_containers_keep_equal_names_apart_and_one_graph_uses_several(backend: Backend) -> None:
    x = tf.Variable(1.0, name="x")
    with tf.Graph().as_default() as graph:
        with tf.container("problem"):
            inner = tf.Variable(10.0, name="x")
        outer = tf.Variable(20.0, name="x_1")
        with backend.session(graph=graph) as session:
            session.run(tf.global_variables_initializer())
            assert session.run([inner, outer]) == [10.0, 20.0]
    with backend.session() as session:
        session.run(x.initializer)
        assert session.run(x) == 1.0


def test_reset_frees_the_named_containers_only(backend: Backend) -> None:
    if not backend.shared:
        pytest.skip("a local session has nothing to reset")
    with tf.container("problem"):
        x = tf.Variable(1.0, name="x")
    with tf.container("other"):
        y = tf.Variable(2.0, name="y")
    z = tf.Variable(3.0, name="z")
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
    backend.reset("problem", "unknown")
    with backend.session(1) as session:
        assert session.run([y, z]) == [2.0, 3.0]
        with pytest.raises(tf.errors.FailedPreconditionError, match="'x'"):
            session.run(x)
        session.run(x.initializer)
        assert session.run(x) == 1.0


def test_the_default_container_is_also_called_by_its_job(backend: Backend) -> None:
    if not backend.shared:
        pytest.skip("a local session has nothing to reset")
    with tf.device("/job:ps/task:0"):
        x = tf.Variable(1.0, name="x")
    with backend.session() as session:
        session.run(x.initializer)
    backend.reset("ps")
    with backend.session() as session, pytest.raises(tf.errors.FailedPreconditionError):
        session.run(x)


def test_reset_ends_the_sessions_of_that_server_and_no_others(backend: Backend) -> None:
    if not backend.shared:
        pytest.skip("a local session has nothing to reset")
    x = tf.Variable(1.0, name="x")
    here, there = backend.session(0), backend.session(-1)
    try:
        here.run(x.initializer)
        there.run(x)
        tf.Session.reset(backend.targets[0], ["problem"])
        with pytest.raises(tf.errors.AbortedError, match="open a new one"):
            here.run(x)
        if len(backend.targets) > 1:
            assert there.run(x) == 1.0
    finally:
        here.close()
        there.close()


def test_updates_from_many_threads_all_count(backend: Backend) -> None:
    x = tf.Variable(0, name="x")
    add = x.assign_add(1).op
    n_threads, n_steps = 8, 25
    with backend.session() as session:
        session.run(x.initializer)

        def work() -> None:
            for _ in range(n_steps):
                session.run(add)

        threads = [threading.Thread(target=work) for _ in range(n_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert session.run(x) == n_threads * n_steps


def test_a_fetched_variable_is_a_copy_that_later_updates_leave_alone(backend: Backend) -> None:
    x = tf.Variable(np.zeros(1000, np.float32), name="x")
    add = x.assign_add(np.ones(1000, np.float32))
    with backend.session() as session:
        session.run(x.initializer)
        before = session.run(x)
        new = session.run(add)
        session.run(add.op)
        assert before.sum() == 0
        assert new.sum() == 1000
        assert session.run(x).sum() == 2000


def test_a_fed_array_may_change_after_the_step(backend: Backend) -> None:
    x = tf.Variable(np.zeros(1024, np.float32), name="x")
    value = tf.placeholder(tf.float32, 1024)
    assign = x.assign(value)
    with backend.session() as session:
        given = np.full(1024, 7.0, np.float32)
        session.run(assign.op, {value: given})
        given[:] = -1
        assert session.run(x).min() == 7.0


def test_feeding_a_tensor_cuts_what_computes_it(backend: Backend) -> None:
    x = tf.Variable(1.0, name="x")
    bump = x.assign_add(1.0)
    y = bump * 2
    with backend.session() as session:
        session.run(x.initializer)
        assert session.run(y, {bump: 10.0}) == 20.0
        assert session.run(x) == 1.0
        assert session.run([bump, y], {bump: 5.0}) == [5.0, 10.0]
        assert session.run([x * 3, x], {x: 2.0}) == [6.0, 2.0]


def test_operations_added_after_a_step_run_too(backend: Backend) -> None:
    a = tf.constant(2.0)
    with backend.session() as session:
        assert session.run(a) == 2.0
        assert session.run(a * a) == 4.0


def test_large_tensors_travel_whole(backend: Backend) -> None:
    big = np.random.default_rng(0).random((1500, 1000)).astype(np.float32)
    x = tf.placeholder(tf.float32, big.shape)
    with tf.device(backend.devices[1]):
        y = x + 1
    with tf.device(backend.devices[0]):
        z = y - 1
        constant = tf.constant(big)[0, :3] * 1
    with backend.session() as session:
        got, few = session.run([z, constant], {x: big})
    np.testing.assert_allclose(got, big, atol=1e-6)
    np.testing.assert_array_equal(few, big[0, :3])


def test_zero_size_and_scalar_tensors_travel(backend: Backend) -> None:
    x = tf.placeholder(tf.int32, (0, 3))
    flag = tf.placeholder(tf.bool, ())
    with tf.device(backend.devices[1]):
        total, wide = tf.numpy.sum(x), tf.numpy.concatenate([x, x], axis=1)
        negated = tf.numpy.logical_not(flag)
    with backend.session() as session:
        got = session.run([total, wide, negated], {x: np.zeros((0, 3), np.int32), flag: True})
    assert got[0] == 0
    assert got[1].shape == (0, 6)
    assert not got[2]


@pytest.mark.parametrize("bad", ["unfed", "shape", "dtype", "device", "uninitialized"])
def test_bad_input_is_an_error_and_the_session_goes_on(backend: Backend, bad: str) -> None:
    x = tf.placeholder(tf.float32, (2,), name="x")
    y = x * 2
    with tf.device("/job:nowhere/task:3"):
        lost = tf.constant(1.0, name="lost") + 0
    v = tf.Variable(1.0, name="v")
    with backend.session() as session:
        if bad == "unfed":
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"feed.*'x'.*test_backends"):
                session.run(y)
        elif bad == "shape":
            with pytest.raises(ValueError, match=r"shape \(3,\).*'x:0'.*\(2,\)"):
                session.run(y, {x: [1.0, 2.0, 3.0]})
        elif bad == "dtype":
            with pytest.raises(TypeError, match="complex"):
                session.run(y, {x: [1j, 2j]})
        elif bad == "device":
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"nowhere.*available.*/job:"):
                session.run(lost)
        else:
            with pytest.raises(
                tf.errors.FailedPreconditionError, match=r"'v' \(container ''\) on /job:.*test_back"
            ) as caught:
                session.run(v + 1)
            assert caught.value.op == "v"
            assert caught.value.task.startswith("/job:")
        assert session.run(y, {x: [1.0, 2.0]}).tolist() == [2.0, 4.0]


def test_a_variable_of_another_shape_or_dtype_is_refused_and_unharmed(backend: Backend) -> None:
    if not backend.shared:
        pytest.skip("local sessions share nothing")
    x = tf.Variable(np.ones(3, np.float32), name="x")
    with backend.session() as session:
        session.run(x.initializer)
    for other in (np.ones(4, np.float32), np.ones(3, np.int32)):
        with tf.Graph().as_default() as graph:
            wrong = tf.Variable(other, name="x")
            with backend.session(graph=graph) as session:
                for fetch in (wrong, wrong.initializer):
                    with pytest.raises(tf.errors.InvalidArgumentError, match="expects"):
                        session.run(fetch)
    with backend.session() as session:
        assert session.run(x).tolist() == [1, 1, 1]


def test_a_closed_session_says_so(backend: Backend) -> None:
    a = tf.constant(1.0)
    session = backend.session()
    session.run(a)
    session.close()
    session.close()
    with pytest.raises(RuntimeError, match="closed Session"):
        session.run(a)


def test_list_devices_names_every_device(backend: Backend) -> None:
    tf.constant(1.0)
    with backend.session() as session:
        names = [device.name for device in session.list_devices()]
    jobs = {name.split("/")[1] for name in names}
    assert jobs == ({"job:ps", "job:worker"} if backend.shared else {"job:localhost"})


def test_a_variable_s_name_stands_for_its_value(backend: Backend) -> None:
    with tf.device(backend.devices[1]), tf.name_scope("scope"):
        x = tf.Variable([1.0, 2.0], name="x")
    assert x.name == "scope/x:0"
    assert x.graph.get_tensor_by_name(x.name) is x.value()
    total = tf.numpy.sum(x * 10)
    with backend.session() as session:
        session.run(x.initializer)
        assert session.run(x.name).tolist() == [1, 2]
        assert session.run({"value": x.name})["value"].tolist() == [1, 2]
        assert session.run(total, {x.name: [3.0, 4.0]}) == 70
        assert session.run([x.name, total], {"scope/x:0": [3.0, 4.0]})[0].tolist() == [3, 4]
        assert session.run(total) == 30
    with pytest.raises(KeyError, match="outputs"):
        x.graph.get_tensor_by_name("scope/x:1")
