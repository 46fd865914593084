"""Branches and loops of graph code: on all backends, over devices, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jflow as tf
from jflow.errors import FailedPreconditionError, InvalidArgumentError, UnimplementedError
from tests.clusters import Backend


def test_branches_and_loops_run_where_blocks_request(backend: Backend):
    first, last = backend.devices[0], backend.devices[-1]
    flag, x = tf.placeholder(tf.bool, []), tf.placeholder(tf.float32, [None, 2])
    with tf.device(last):
        w = tf.Variable(np.eye(2, dtype=np.float32), name="w")
    with tf.device(first):
        total = tf.cond(flag, lambda: tf.reduce_sum(x @ w), lambda: tf.constant(-1.0))
        count = tf.while_loop(lambda i: i < 5, lambda i: i + 1, [tf.constant(0)])
    rows = tf.map_fn(lambda row: row * tf.constant(2.0), x)
    assert total.device
    with backend.session() as session:
        session.run(w.initializer)
        for n in (1, 3):
            feeds = {flag: True, x: np.ones((n, 2))}
            assert session.run([total, count], feeds) == [2.0 * n, 5]
            assert session.run(rows, feeds).tolist() == [[2.0, 2.0]] * n
        assert session.run(total, {flag: False, x: np.ones((1, 2))}) == -1.0


def test_a_body_on_several_devices_is_a_loop_over_them(backend: Backend):
    first, last = backend.devices[0], backend.devices[-1]
    x = tf.placeholder(tf.float32, [4])

    def body(i, y):
        with tf.device(first):
            y = y * 2.0
        with tf.device(last):
            y = y + 1.0
        return i + 1, y

    _, y = tf.while_loop(lambda i, _: i < 3, body, [0, x], maximum_iterations=3)
    with backend.session() as session:
        assert session.run(y, {x: np.arange(4)}).tolist() == [7.0, 15.0, 23.0, 31.0]


def test_a_variable_that_a_body_writes_is_written_once(backend: Backend):
    with tf.device(backend.devices[-1]):
        v = tf.Variable(1.0, name="v")
    flag = tf.placeholder(tf.bool, [])
    doubled = tf.cond(flag, lambda: v.assign(v * 2.0), v.read_value)
    loop = tf.while_loop(
        lambda i: i < 10, lambda i: i + 1 + 0 * tf.to_int32(v.assign_add(1.0)), [tf.constant(0)]
    )
    with backend.session() as session:
        with pytest.raises(FailedPreconditionError):
            session.run(doubled, {flag: True})
        session.run(v.initializer)
        assert session.run(doubled, {flag: True}) == 2.0
        assert session.run(doubled, {flag: False}) == 2.0
        assert session.run(loop) == 10
        assert session.run(v) == 12.0


def test_an_optimizer_is_chosen_by_a_branch(backend: Backend):
    w = tf.get_variable("w", [2], initializer=tf.ones_initializer())
    loss = tf.reduce_sum(tf.square(w))
    fast = tf.train.MomentumOptimizer(0.25, 0.5)
    flag = tf.placeholder(tf.bool, [])
    trained = tf.cond(flag, lambda: fast.minimize(loss), tf.no_op)
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        session.run(trained, {flag: False})
        assert session.run(w).tolist() == [1.0, 1.0]
        session.run(trained, {flag: True})
        assert session.run(w).tolist() == [0.5, 0.5]
        session.run(trained, {flag: True})
        assert session.run(w).tolist() == [0.0, 0.0]


def test_variables_are_made_in_a_branch_and_not_in_a_loop(backend: Backend):
    flag = tf.constant(True)
    y = tf.cond(
        flag,
        lambda: tf.get_variable("made", initializer=3.0) + 0.0,
        lambda: tf.constant(0.0),
    )
    assert [v.op.name for v in tf.global_variables()] == ["made"]
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(y) == 3.0
    with pytest.raises(ValueError, match="the body of 'while' makes the variable"):
        tf.while_loop(
            lambda x: x < 1.0, lambda x: x + tf.Variable(1.0, name="inner"), [tf.constant(0.0)]
        )


@given(
    n=st.integers(0, 6),
    limit=st.integers(0, 6),
    start=st.floats(-2, 2, width=32),
    bounded=st.booleans(),
)
def test_a_loop_gives_what_python_gives(n, limit, start, bounded):
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [])
        given_limit = limit if bounded else tf.constant(limit)
        _, y = tf.while_loop(
            lambda i, _: i < n,
            lambda i, y: (i + 1, tf.sin(y) + x),
            [0, x],
            maximum_iterations=given_limit,
        )
        with tf.Session() as session:
            found = session.run(y, {x: start})
    expected = np.float32(start)
    for _ in range(min(n, limit)):
        expected = np.sin(expected) + np.float32(start)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_derivatives_of_a_loop_need_a_bound():
    x = tf.placeholder(tf.float32, [])

    def made(**options):
        return tf.while_loop(
            lambda i, _: i < 3, lambda i, y: (i + 1, y * x), [0, tf.constant(1.0)], **options
        )[1]

    with pytest.raises(ValueError, match="maximum_iterations"):
        tf.gradients(made(), x)
    slope = tf.gradients(made(maximum_iterations=5), x)[0]
    with tf.Session() as session:
        assert session.run(slope, {x: 2.0}) == 12.0


def test_in_a_function_they_are_those_of_jax():
    @tf.function
    def f(x):
        y = tf.cond(x[0] > 0, lambda: x * 2, lambda: x)
        n, z = tf.while_loop(lambda i, _: i < 3, lambda i, z: (i + 1, z + y), [0, y])
        rows = tf.map_fn(lambda row: row + 1, z)
        total = tf.foldl(lambda a, b: a + b, z)
        chosen = tf.case([(x[0] < 0, lambda: x[0])], default=lambda: x[1])
        return n, z, rows, total, tf.scan(lambda a, b: a + b, z), chosen

    x = np.float32([1.0, 2.0])
    n, z, rows, total, sums, chosen = f(x)
    assert n == 3
    assert np.asarray(z).tolist() == [8.0, 16.0]
    assert np.asarray(rows).tolist() == [9.0, 17.0]
    assert (total, np.asarray(sums).tolist()) == (24.0, [8.0, 24.0])
    assert chosen == 2.0
    assert jax.jit(lambda x: tf.cond(x > 0, lambda: x, lambda: -x))(jnp.float32(-2.0)) == 2.0


def test_a_case_without_a_true_condition_fails_the_step():
    x = tf.placeholder(tf.float32, [])
    pairs = [(x < 0.0, lambda: tf.constant(1)), (x < 1.0, lambda: tf.constant(2))]
    some, one = tf.case(pairs), tf.case(pairs, default=lambda: tf.constant(3), exclusive=True)
    with tf.Session() as session:
        assert session.run([some, one], {x: 0.5}) == [2, 2]
        assert session.run(one, {x: 7.0}) == 3
        with pytest.raises(InvalidArgumentError, match="one true condition"):
            session.run(some, {x: 7.0})
        with pytest.raises(InvalidArgumentError, match="one true condition"):
            session.run(one, {x: -1.0})


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda x: tf.cond(True, lambda: x, lambda: x), TypeError, "Python bool"),
        (lambda x: tf.cond(x, lambda: x, lambda: x), TypeError, r"pred must be bool\[\]"),
        (lambda x: tf.cond(x > 0, lambda: x), TypeError, "two functions"),
        (lambda x: tf.cond(x > 0, lambda: x, lambda: 1), TypeError, "jflow.cast"),
        (lambda x: tf.cond(x > 0, lambda: x, lambda: [x, x]), ValueError, "other structures"),
        (lambda x: tf.cond(x > 0, lambda: x, lambda: tf.stack([x, x])), ValueError, "shapes"),
        (lambda x: tf.cond(x > 0, lambda: x, lambda: None), TypeError, "got None"),
        (lambda x: tf.while_loop(lambda y: y, lambda y: y, [x]), TypeError, "must return bool"),
        (
            lambda x: tf.while_loop(lambda y: y < 1, lambda y: (y, y), [x]),
            ValueError,
            "another structure",
        ),
        (
            lambda x: tf.while_loop(lambda y: y < 1, tf.to_int32, [x]),
            TypeError,
            "loop variable 0",
        ),
        (
            lambda x: tf.while_loop(
                lambda y: y[0] < 1,
                lambda y: tf.concat([y, y], 0),
                [tf.stack([x])],
                shape_invariants=[tf.TensorShape([None])],
            ),
            UnimplementedError,
            "change its shape",
        ),
        (lambda x: tf.while_loop(lambda: True, lambda: (), []), ValueError, "No loop variables"),
        (lambda x: tf.map_fn(lambda y: y, x), ValueError, r"1\+ dimensional"),
        (lambda x: tf.foldl(None, tf.stack([x])), TypeError, "not callable"),
        (
            lambda x: tf.foldl(lambda a, b: tf.stack([a, b]), tf.stack([x, x])),
            ValueError,
            "equal shapes",
        ),
        (lambda x: tf.case([]), TypeError, "list of pairs"),
        (lambda x: tf.switch_case(tf.to_int32(x), {}), ValueError, "at least one"),
    ],
)
def test_what_does_not_fit_is_an_error_of_the_call(make, error, message):
    x = tf.placeholder(tf.float32, [])
    with pytest.raises(error, match=message):
        make(x)


def test_what_no_program_can_do_is_refused_with_its_line():
    flag = tf.placeholder(tf.bool, [])
    queue = tf.FIFOQueue(10, [tf.float32], [[]], name="q")
    v = tf.Variable(np.zeros(3, np.float32), name="v")
    words = tf.placeholder(tf.string, [])
    one = tf.constant(1.0)

    def scatter():
        return tf.scatter_add(v, [0], [1.0])

    for make, message in [
        (lambda: tf.cond(flag, queue.dequeue, lambda: one), "true_fn of cond 'cond.*'"),
        (lambda: tf.cond(flag, lambda: words, lambda: words), "on the host"),
        (lambda: tf.cond(flag, scatter, v.read_value), "checks indices"),
        (
            lambda: tf.map_fn(lambda x: tf.random_normal([]) + x, tf.constant([1.0])),
            "fn of 'map.*'",
        ),
        (
            lambda: tf.while_loop(
                lambda x: v.assign_add(tf.stack([x] * 3))[0] < 1, lambda x: x, [one]
            ),
            "the condition of 'while.*' writes the variable 'v'",
        ),
    ]:
        with pytest.raises(UnimplementedError, match=rf"{message}.*test_control\.py:\d+"):
            make()
