"""Branches and loops of graph code: on all backends, over devices, and what is refused."""

import collections
from contextlib import contextmanager

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
        (
            lambda x: tf.switch_case(tf.to_int32(x), [(0, lambda: x), (0, lambda: x)]),
            ValueError,
            "two functions",
        ),
        (
            lambda x: tf.while_loop(lambda y, z: True, lambda *y: y, [x, x], [x.shape]),
            ValueError,
            "each of 2 loop variables",
        ),
        (
            lambda x: tf.while_loop(lambda y: True, lambda y: y, [tf.placeholder(tf.float32)]),
            UnimplementedError,
            "has an unknown rank",
        ),
    ],
)
def test_what_does_not_fit_is_an_error_of_the_call(make, error, message):
    x = tf.placeholder(tf.float32, [])
    with pytest.raises(error, match=message):
        make(x)


@pytest.fixture
def cells(backend: Backend):
    """Variables on the last device: v of 0, w of 5; and a flag."""
    with tf.device(backend.devices[-1]):
        v, w = tf.Variable(0.0, name="v"), tf.Variable(5.0, name="w")
    return v, w, tf.placeholder(tf.bool, [], name="flag")


@contextmanager
def _initialized(backend: Backend):
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        yield session


def _after_growth(v, make):
    with tf.control_dependencies([v.assign_add(1.0)]):
        return make()


@pytest.mark.parametrize("what", ["read", "use", "constant", "nested"])
def test_a_write_in_a_branch_runs_only_if_it_is_chosen(what, cells, backend: Backend):
    """What a program takes from outside must not run what the body does before it."""
    v, w, flag = cells
    results = {
        "read": w.read_value,
        "use": lambda: w + 0.0,
        "constant": lambda: tf.constant(5.0),
        "nested": lambda: tf.cond(w > 3.0, lambda: w * 1.0, lambda: 0.0),
    }
    chosen = tf.cond(flag, lambda: _after_growth(v, results[what]), lambda: 0.0)
    with _initialized(backend) as session:
        assert session.run(chosen, {flag: False}) == 0.0
        assert session.run(v) == 0.0
        assert session.run(chosen, {flag: True}) == 5.0
        assert session.run(v) == 1.0


def test_a_body_writes_once_an_iteration_and_reads_what_it_has_written(cells, backend: Backend):
    v, w, _ = cells

    def body(i, x):
        return i + 1, _after_growth(v, lambda: x + w.read_value() + 10.0 * v)

    loop = tf.while_loop(lambda i, x: i < 4, body, [0, 0.0])
    rows = tf.map_fn(lambda x: w.assign(w * 2.0 + x), tf.zeros([3]))
    with _initialized(backend) as session:
        assert session.run(loop) == [4, 120.0]
        assert session.run(v) == 4.0
        assert session.run(rows).tolist() == [10.0, 20.0, 40.0]
        assert session.run(w) == 40.0


@pytest.mark.parametrize("limit", [None, 20])
@pytest.mark.parametrize("is_implicit", [True, False])
def test_a_condition_sees_what_the_body_writes(is_implicit, limit, cells, backend: Backend):
    v, _, _ = cells
    loop = tf.while_loop(
        lambda i: (v if is_implicit else v.read_value()) < 5.0,
        lambda i: _after_growth(v, lambda: i + 1),
        [0],
        maximum_iterations=limit,
    )
    with _initialized(backend) as session:
        assert [session.run(loop), session.run(v)] == [5, 5.0]


def test_branches_and_loops_read_variables_after_what_is_before_them(cells, backend: Backend):
    v, w, flag = cells
    fetches = [
        _after_growth(v, lambda: tf.cond(flag, lambda: v * 10.0, lambda: 0.0)),
        tf.cond(w.assign_add(1.0) > 0.0, lambda: w.read_value() + 0.0, lambda: -1.0),
    ]
    total = tf.while_loop(
        lambda i, x: i < 2, lambda i, x: (i + 1, x + v.read_value()), [0, v.assign_add(1.0)]
    )
    with _initialized(backend) as session:
        for n in (1.0, 2.0, 3.0):
            assert session.run(fetches, {flag: True}) == [10.0 * n, 5.0 + n]
        assert session.run(total) == [2, 12.0]


def test_a_branch_that_is_not_chosen_keeps_what_others_write(cells, backend: Backend):
    v, _, flag = cells
    chosen, grow = tf.cond(flag, lambda: v.assign(100.0), lambda: 0.0), v.assign_add(1.0)
    with _initialized(backend) as session:
        for _ in range(20):
            session.run([chosen, grow.op], {flag: False})
        assert session.run(v) == 20.0
        started = [
            session.run_async(one, {flag: False}) for _ in range(20) for one in (chosen, grow)
        ]
        for one in started:
            one.result(60)
        assert session.run(v) == 40.0
        assert session.run(chosen, {flag: True}) == 100.0
        assert session.run(v) == 100.0


def test_what_is_made_in_a_body_cannot_be_fed(cells, backend: Backend):
    _, _, flag = cells
    made = []

    def branch():
        made.append(tf.constant(2.0) * 3.0)
        return made[0] + 1.0

    chosen = tf.cond(flag, branch, lambda: 0.0)
    with backend.session() as session, pytest.raises(ValueError, match="in a branch or loop"):
        session.run(chosen, {flag: True, made[0]: 100.0})


def test_results_have_the_structure_that_tensorflow_gives_them():
    flag, x = tf.placeholder(tf.bool, []), tf.constant([2.0, 3.0])
    assert isinstance(tf.cond(flag, lambda: [x], lambda: [x * 2.0]), tf.Tensor)
    assert isinstance(tf.cond(flag, lambda: [x], lambda: [x * 2.0], strict=True), list)
    pair = collections.namedtuple("pair", "n value")
    last = tf.while_loop(lambda n, _: n < 3, lambda n, x: (n + 1, x), pair(tf.constant(0), x))
    assert isinstance(last, pair)
    stopped = [
        tf.map_fn(tf.square, x, back_prop=False),
        tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y * y), [0, x], back_prop=False)[1],
    ]
    with tf.Session() as session:
        for y in stopped:
            assert session.run(tf.gradients(y, x)[0]).tolist() == [0.0, 0.0]
