"""Variables as TensorFlow's users know them, each behaviour on every backend."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import jflow as tf
from jflow.launch.testing.backends import BackendUnderTest as Backend


def test_a_variable_is_known_by_container_and_name(shared_backend: Backend) -> None:
    first, twin = tf.get_variable("x", initializer=1.0), tf.Variable(2.0, name="x")
    assert (first.name, twin.name) == ("x:0", "x_1:0")
    queue = tf.FIFOQueue(3, [tf.float32], [()], shared_name="x")
    put, take = queue.enqueue(5.0), queue.dequeue()
    init = tf.global_variables_initializer()
    with tf.Graph().as_default() as graph:
        same = tf.Variable(9.0, name="x")
    with shared_backend.session(0) as one, shared_backend.session(1, graph=graph) as other:
        one.run(init)
        one.run(put)
        assert other.run(same) == 1.0
        assert one.run([first, twin, take]) == [1.0, 2.0, 5.0]


def test_a_read_of_an_uninitialized_variable_says_its_name(backend: Backend) -> None:
    x = tf.Variable([1.0, 2.0], name="x")
    uses = [x.read_value(), x.assign_add([1.0, 1.0]), tf.scatter_add(x, [0], [1.0])]
    with backend.session() as session:
        for use in uses:
            with pytest.raises(
                tf.errors.FailedPreconditionError,
                match="Attempting to use uninitialized value x",
            ):
                session.run(use)


def test_an_assignment_initializes_and_checks_shape_and_dtype(backend: Backend) -> None:
    x = tf.Variable([1.0, 2.0], name="x")
    with pytest.raises(ValueError, match=r"shape \(3,\) to variable 'x'"):
        x.assign([1.0, 2.0, 3.0])
    with pytest.raises(TypeError, match="has dtype float32"):
        x.assign(tf.constant([1, 2]))
    value = tf.placeholder(tf.float32, (None,))
    assign = x.assign(value)
    with tf.variable_scope("varying"):
        varying = tf.get_variable("v", initializer=[0.0], validate_shape=False)
    change = tf.assign(varying, value)
    with backend.session() as session:
        session.run(assign, {value: [3.0, 4.0]})
        np.testing.assert_array_equal(session.run(x), [3.0, 4.0])
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"expected a value of shape"):
            session.run(assign, {value: [1.0]})
        np.testing.assert_array_equal(session.run(x), [3.0, 4.0])
        session.run(change, {value: [1.0, 2.0, 3.0]})
        assert session.run(varying).shape == (3,)


def test_four_sessions_count_exactly(backend: Backend) -> None:
    x = tf.get_variable("x", initializer=0)
    up = x.assign_add(1)
    down = x.assign_sub(1)
    with backend.session() as first:
        first.run(x.initializer)
        others = [backend.session(i) if backend.shared else first for i in range(4)]
        for session in others * 5:
            session.run(up)
        first.run(down)
        assert first.run(x) == 19
        for session in others if backend.shared else ():
            session.close()


def test_scatter_methods_update_rows(backend: Backend) -> None:
    table = tf.Variable(np.ones((2, 2), np.float32), name="table")
    twice = table.scatter_add([0, 0], np.full((2, 2), 2.0, np.float32))
    inside = table.scatter_nd_add([[0, 1], [0, 1]], [7.0, 1.0])
    sparse = tf.SparseTensor(tf.constant([1]), tf.constant([[1.0, 2.0]]), tf.constant([2, 2]))
    delta = table.scatter_sub(sparse)
    nothing = table.scatter_mul(np.zeros(0, np.int32), np.zeros((0, 2), np.float32))
    at = tf.placeholder(tf.int32, (1,))
    outside = table.scatter_update(at, [[1.0, 1.0]])
    with tf.control_dependencies([twice]), tf.control_dependencies([inside, delta, nothing]):
        both = tf.no_op()
    with backend.session() as session:
        session.run(table.initializer)
        session.run(both)
        np.testing.assert_array_equal(session.run(table), [[5.0, 13.0], [0.0, -1.0]])
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"indices\[0\] = 5 is not in \[0, 2\)"
        ):
            session.run(outside, {at: [5]})
        np.testing.assert_array_equal(session.run(table), [[5.0, 13.0], [0.0, -1.0]])
    with pytest.raises(TypeError, match="expected indices and updates"):
        table.scatter_add([0])


def test_counting_up_gives_the_value_before_and_ends_at_the_limit(backend: Backend) -> None:
    x = tf.get_variable("x", initializer=0)
    up = x.count_up_to(2)
    with backend.session() as session:
        session.run(x.initializer)
        assert [session.run(up), session.run(up)] == [0, 1]
        with pytest.raises(tf.errors.OutOfRangeError, match="Reached limit of 2"):
            session.run(up)
        assert session.run(x) == 2
    with pytest.raises(TypeError, match="scalar integer variable"):
        tf.get_variable("y", initializer=0.0).count_up_to(3)


def test_initializing_again_resets_for_all_sessions(backend: Backend) -> None:
    x = tf.get_variable("x", initializer=1.0)
    init = tf.global_variables_initializer()
    change = x.assign(5.0)
    with backend.session(0) as one:
        other = backend.session(1) if backend.shared else one
        one.run(init)
        other.run(change)
        assert one.run(x) == 5.0
        one.run(init)
        assert other.run(x) == 1.0
        other.close()
    with pytest.raises(ValueError, match="needs an initial value of known shape"):
        tf.Variable(tf.placeholder(tf.float32, (None,)), name="unknown")


def test_steps_report_what_is_uninitialized(backend: Backend) -> None:
    with tf.device(backend.devices[0]):
        a = tf.get_variable("a", initializer=1.0)
    with tf.device(backend.devices[1]), tf.variable_scope("s"):
        b = tf.get_variable("b", initializer=[1.0, 2.0])
        c = tf.get_local_variable("c", initializer=3)
        key = tf.get_variable("key", initializer=jax.random.key(0), trainable=False)
    missing = tf.report_uninitialized_variables()
    of_some = tf.report_uninitialized_variables([c, a])
    flags = [tf.is_variable_initialized(v) for v in (a, b, c, key)]
    check = tf.assert_variables_initialized([a, b])
    with tf.control_dependencies([c.initializer]):
        after = tf.is_variable_initialized(c)
    with backend.session() as session:
        assert session.run(missing).tolist() == [b"a", b"s/b", b"s/key", b"s/c"]
        session.run(a.initializer)
        assert session.run(flags) == [True, False, False, False]
        assert session.run(of_some).tolist() == [b"s/c"]
        with pytest.raises(
            tf.errors.FailedPreconditionError, match="Attempting to use uninitialized value s/b"
        ):
            session.run(check)
        session.run(tf.global_variables_initializer())
        session.run(check)
        assert session.run(missing).tolist() == [b"s/c"]
        assert session.run(after)
        assert session.run(missing).tolist() == []
        assert session.run(flags) == [True] * 4


def test_an_initialized_value_is_the_initial_one_only_without_another(backend: Backend) -> None:
    with tf.device(backend.devices[0]):
        first = tf.Variable(tf.constant([1.0, 2.0]) * 2, name="first")
    with tf.device(backend.devices[1]):
        second = tf.Variable(first.initialized_value() * 10, name="second")
    value = first.initialized_value()
    with backend.session() as session:
        np.testing.assert_array_equal(session.run(value), [2.0, 4.0])
        assert not session.run(tf.is_variable_initialized(first))
        session.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(session.run(second), [20.0, 40.0])
        session.run(first.assign([5.0, 6.0]))
        np.testing.assert_array_equal(session.run(value), [5.0, 6.0])
        session.run(second.initializer)
        np.testing.assert_array_equal(session.run(second), [50.0, 60.0])
        # One of the two orders: what is fetched must be a value of the variable.
        session.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(session.run(first), [2.0, 4.0])
        before, _ = session.run([value, first.assign_add([1.0, 1.0])])
        assert before.tolist() in ([2.0, 4.0], [3.0, 5.0])


def test_a_read_under_control_dependencies_comes_after_them(backend: Backend) -> None:
    x = tf.get_variable("x", initializer=0.0)
    with tf.control_dependencies([x.assign_add(1.0)]):
        reads = [x.read_value(), tf.identity(x.read_value())]
    with backend.session() as session:
        session.run(x.initializer)
        assert session.run(reads) == [1.0, 1.0]
        assert session.run(reads) == [2.0, 2.0]


def test_a_fetched_variable_is_its_value_and_its_name_works_too(backend: Backend) -> None:
    x = tf.get_variable("scope/x", initializer=2.0)
    with backend.session() as session:
        x.load(3.0, session)
        assert session.run([x, "scope/x:0"]) == [3.0, 3.0]
        assert x.eval(session) == 3.0
        assert session.run(x + 1, {x: 10.0}) == 11.0
        assert session.run(x) == 3.0


def test_a_cached_value_is_on_the_caching_device(backend: Backend) -> None:
    with tf.device(backend.devices[1]):
        x = tf.get_variable("x", initializer=2.0, caching_device=backend.devices[0])
    fresh = x.read_value()
    with tf.device(backend.devices[0]):
        here = tf.constant(0.0).device
    assert (x.value().device, fresh.device) == (here, x.device)

    with backend.session() as session:
        session.run(x.initializer)
        assert session.run([x.value() * 2, fresh]) == [4.0, 2.0]


def test_slots_live_beside_their_variables(backend: Backend) -> None:
    variables = []
    for name, device in zip("ab", backend.devices, strict=False):
        with tf.device(device):
            variables.append(tf.get_variable(name, initializer=[1.0, 2.0]))
    loss = tf.numpy.sum(variables[0] ** 2) + tf.numpy.sum(variables[1] ** 2)
    optimizer = tf.train.AdamOptimizer(0.1)
    train = optimizer.minimize(loss)
    for variable in variables:
        for name in optimizer.get_slot_names():
            slot = optimizer.get_slot(variable, name)
            assert slot.op.colocation_groups() == variable.op.colocation_groups()
            assert slot.device == variable.device
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        np.testing.assert_allclose(session.run(variables[1]), [0.9, 1.9], rtol=1e-4)


def test_local_variables_are_initialized_by_each_worker_for_itself(backend: Backend) -> None:
    shared = tf.get_variable("shared", initializer=1.0)
    with tf.device(backend.devices[0]):
        own = tf.get_local_variable("own", initializer=lambda: tf.constant(2.0))
    listed = tf.Variable(3.0, collections=[tf.GraphKeys.LOCAL_VARIABLES], trainable=False)
    assert tf.local_variables() == [own, listed]
    assert tf.global_variables() == tf.trainable_variables() == [shared]
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        with pytest.raises(tf.errors.FailedPreconditionError, match="own"):
            session.run(own)
        session.run(tf.local_variables_initializer())
        assert session.run([own, listed]) == [2.0, 3.0]


def test_a_constraint_holds_after_each_update(backend: Backend) -> None:
    def positive(value: tf.Tensor) -> tf.Tensor:
        return tf.numpy.maximum(value, 0.0)

    with tf.variable_scope("s", constraint=positive):
        x = tf.get_variable("x", initializer=[1.0, 0.05])
    free = tf.get_variable("free", initializer=[1.0, 0.05])
    assert (x.constraint, free.constraint) == (positive, None)
    loss = tf.numpy.sum(x) + tf.numpy.sum(free)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        np.testing.assert_allclose(session.run(x), [0.9, 0.0], rtol=1e-6)
        np.testing.assert_allclose(session.run(free), [0.9, -0.05], rtol=1e-5)
