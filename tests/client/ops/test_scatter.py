"""Scatter updates: what they compute, what they refuse, and that they work in place."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jflow as tf
from tests.drawn import examples

TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)

OPERATIONS = {
    "update": (tf.scatter_update, lambda old, i, x: old.at[i].set(x)),
    "add": (tf.scatter_add, lambda old, i, x: old.at[i].add(x)),
    "sub": (tf.scatter_sub, lambda old, i, x: old.at[i].subtract(x)),
    "mul": (tf.scatter_mul, lambda old, i, x: old.at[i].multiply(x)),
    "div": (tf.scatter_div, lambda old, i, x: old.at[i].divide(x)),
    "min": (tf.scatter_min, lambda old, i, x: old.at[i].min(x)),
    "max": (tf.scatter_max, lambda old, i, x: old.at[i].max(x)),
}


def run(variable: tf.Variable, update: tf.Tensor, feeds: dict | None = None) -> np.ndarray:
    with tf.Session() as session:
        session.run(variable.initializer)
        session.run(update, feeds)
        return session.run(variable)


@pytest.mark.parametrize("name", OPERATIONS)
@settings(max_examples=examples(4))
@given(indices=st.lists(st.integers(0, 3), max_size=5, unique=True))
def test_rows_become_what_jax_makes_of_them(name: str, indices: list[int]) -> None:
    scatter, plain = OPERATIONS[name]
    updates = np.full((len(indices), 3), 5.0, np.float32)
    at = np.array(indices, np.int32)
    with tf.Graph().as_default():
        table = tf.Variable(TABLE)
        # Fed, because XLA divides by a constant in another way, with another last bit.
        rows = tf.placeholder("float32", updates.shape)
        np.testing.assert_array_equal(
            run(table, scatter(table, at, rows), {rows: updates}),
            jax.jit(plain)(TABLE, at, updates),
        )


def test_an_index_that_occurs_twice_counts_twice() -> None:
    table = tf.Variable(TABLE)
    value = run(table, tf.scatter_add(table, [1, 1, 2], np.ones((3, 3), np.float32)))
    np.testing.assert_array_equal(value - TABLE, [[0] * 3, [2] * 3, [1] * 3, [0] * 3])


def test_elements_are_named_by_vectors_of_indices() -> None:
    for scatter, plain in (
        (tf.scatter_nd_update, [[0, 9, 2], [3, 4, 5], [6, 7, 8], [9, 10, 8]]),
        (tf.scatter_nd_add, [[0, 10, 2], [3, 4, 5], [6, 7, 8], [9, 10, 19]]),
        (tf.scatter_nd_sub, [[0, -8, 2], [3, 4, 5], [6, 7, 8], [9, 10, 3]]),
    ):
        with tf.Graph().as_default():
            table = tf.Variable(TABLE)
            value = run(table, scatter(table, [[0, 1], [3, 2]], [9.0, 8.0]))
            np.testing.assert_array_equal(value, plain)


@pytest.mark.parametrize("bad", [4, -1, 2**31 - 1])
def test_an_index_out_of_range_is_an_error_and_nothing_is_written(bad: int) -> None:
    table = tf.Variable(TABLE, name="table")
    indices = tf.placeholder("int32", (2,))
    update = tf.scatter_add(table, indices, np.ones((2, 3), np.float32))
    with tf.Session() as session:
        session.run(table.initializer)
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=rf"'table'.*: indices\[1\] = {bad} is not in \[0, 4\); nothing was written",
        ):
            session.run(update, {indices: [0, bad]})
        np.testing.assert_array_equal(session.run(table), TABLE)
        session.run(update, {indices: [0, 3]})
        assert session.run(table)[3, 0] == TABLE[3, 0] + 1


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32"])
def test_indices_of_any_dtype_are_checked(dtype: str) -> None:
    table = tf.Variable(np.zeros((200, 2), np.float32))
    indices = tf.placeholder(dtype, (3,))
    update = tf.scatter_add(table, indices, np.ones((3, 2), np.float32))
    with tf.Session() as session:
        session.run(table.initializer)
        session.run(update, {indices: np.array([5, 0, 99], dtype)})
        bad = np.array([5, 0, 255], np.int64).astype(dtype)  # -1 as an int8
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[2\] = (255|-1) is"):
            session.run(update, {indices: bad})
        assert session.run(table)[:, 0].tolist() == [1] + [0] * 4 + [1] + [0] * 93 + [1] + [0] * 100


def test_what_follows_an_update_waits_for_the_check_of_its_indices() -> None:
    table, count = tf.Variable(TABLE), tf.Variable(0)
    indices = tf.placeholder("int32", (1,))
    update = tf.scatter_add(table, indices, np.ones((1, 3), np.float32))
    with tf.control_dependencies([update]):
        counted = count.assign_add(1)
    total = count.assign_add(tf.cast(tf.numpy.sum(update), "int32"))
    second = tf.Variable(TABLE)
    with tf.control_dependencies([update]):
        both = tf.scatter_add(second, [0], np.ones((1, 3), np.float32))
    with tf.Session() as session:
        session.run([table.initializer, count.initializer, second.initializer])
        for following in (counted, total, both):
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[0\] = 9"):
                session.run(following, {indices: [9]})
        assert session.run(count) == 0
        np.testing.assert_array_equal(session.run(second), TABLE)
        session.run(counted, {indices: [1]})
        session.run(both, {indices: [1]})
        assert session.run(count) == 1
        np.testing.assert_array_equal(
            session.run(table) - TABLE, [[0] * 3, [2] * 3, [0] * 3, [0] * 3]
        )
        assert session.run(second)[0, 0] == TABLE[0, 0] + 1


def test_in_a_function_nothing_after_a_bad_update_is_written() -> None:
    with tf.connect():
        table, count = tf.Variable(TABLE), tf.Variable(0)

        @tf.function
        def both(first, second, row):
            tf.scatter_add(table, first, row)
            tf.scatter_add(table, second, row)
            count.assign_add(1)
            return table.value()

        one = jnp.ones((1, 3))
        for first, second, added in (([9], [0], 0), ([0], [9], 1)):
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[0\] = 9"):
                both(jnp.array(first), jnp.array(second), one)
            np.testing.assert_array_equal(table.numpy()[0], TABLE[0] + added)
        both(jnp.array([0]), jnp.array([0]), one)
        np.testing.assert_array_equal(table.numpy()[0], TABLE[0] + 3)


def test_a_vector_of_indices_out_of_range_is_an_error() -> None:
    table = tf.Variable(TABLE)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[0\] = 3 is not in"):
        run(table, tf.scatter_nd_add(table, [[0, 3]], [1.0]))


@pytest.mark.parametrize(
    ("indices", "updates", "error"),
    [
        ([0.0], np.ones((1, 3), np.float32), TypeError),
        ([0], np.ones((1, 4), np.float32), ValueError),
        ([0], np.ones((1, 3), np.complex64), TypeError),
    ],
)
def test_what_does_not_fit_is_refused_when_the_graph_is_built(
    indices: list[float], updates: np.ndarray, error: type[Exception]
) -> None:
    table = tf.Variable(TABLE)
    with pytest.raises(error):
        tf.scatter_add(table, indices, updates)


def test_live_variables_and_functions_scatter_too() -> None:
    with tf.connect():
        table = tf.Variable(TABLE, name="table")
        tf.scatter_add(table, [0], np.ones((1, 3), np.float32))
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[0\] = 7"):
            tf.scatter_add(table, [7], np.ones((1, 3), np.float32))

        @tf.function
        def twice(at, x):
            tf.scatter_add(table, at, x)
            return tf.scatter_sub(table, at, x * 3)

        one = jnp.ones((1, 3))
        np.testing.assert_array_equal(twice(jnp.array([0]), one)[0], TABLE[0] - 1)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"indices\[0\] = -2"):
            twice(jnp.array([-2]), one)
        np.testing.assert_array_equal(table.numpy()[0], TABLE[0] - 1)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("shape", [(1, 3), (2, 1), (3,), (1,), (2, 2, 3)], ids=str)
def test_updates_of_rows_have_the_shape_of_the_rows(name: str, shape: tuple[int, ...]) -> None:
    scatter, _ = OPERATIONS[name]
    table = tf.Variable(TABLE)
    for updates in (np.ones(shape, np.float32), tf.constant(np.ones(shape, np.float32))):
        with pytest.raises(ValueError, match=r"indices of shape \(2,\).*\(2, 3\), got"):
            scatter(table, [0, 1], updates)


def test_a_scalar_updates_all_of_the_rows() -> None:
    table = tf.Variable(TABLE)
    value = run(table, tf.scatter_mul(table, [0, 1], 0.0))
    np.testing.assert_array_equal(value, [[0] * 3, [0] * 3, *TABLE[2:]])


@pytest.mark.parametrize("scatter", [tf.scatter_nd_update, tf.scatter_nd_add, tf.scatter_nd_sub])
def test_updates_of_elements_have_the_shape_of_the_elements(scatter: Any) -> None:
    table = tf.Variable(TABLE)
    for indices, shapes in (
        ([[0, 1], [3, 2]], [(), (1,), (3,), (2, 1), (1, 2)]),
        ([[0], [3]], [(), (3,), (2,), (1, 3), (2, 1)]),
    ):
        for shape in shapes:
            with pytest.raises(ValueError, match="need updates of shape"):
                scatter(table, indices, np.ones(shape, np.float32))
    with tf.connect():
        eager = tf.Variable(TABLE)
        with pytest.raises(ValueError, match="need updates of shape"):
            scatter(eager, [[0, 1], [3, 2]], 1.0)
        with pytest.raises(ValueError, match="need updates of shape"):
            tf.function(lambda x: scatter(eager, [[0, 1], [3, 2]], x))(jnp.ones(1))


def test_sizes_that_are_one_need_no_check() -> None:
    table = tf.Variable(TABLE)
    queue = tf.FIFOQueue(10, ["int32", "float32"], [(), (3,)])
    at, rows = queue.dequeue_up_to(2)
    before = len(tf.get_default_graph().get_operations())
    tf.scatter_add(table, at, rows)
    added = tf.get_default_graph().get_operations()[before:]
    assert not [op for op in added if op.type.startswith("ensure_shape")]


def test_indices_of_unknown_rank_are_refused() -> None:
    with pytest.raises(TypeError, match=r"must know the rank of .*set_shape"):
        tf.scatter_add(tf.Variable(TABLE), tf.placeholder("int32"), np.ones((1, 3)))
