"""Mathematical functions where JAX and TensorFlow differ: no rows, bad indices, equal elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import jflow as tf

MATRIX = [[1.0, 2.0], [3.0, 4.0]]


def _value(tensor: Any, feeds: Any = None) -> Any:
    with tf.Session() as session:
        return session.run(tensor, feeds)


def _numbers(x: Any) -> Any:
    return tf.cast(x[:, 0], tf.int32)


ON_ROWS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "boolean_mask": (lambda x: tf.boolean_mask(x, tf.greater(x[:, 0], 0.0)), (0, 3)),
    "boolean_mask of elements": (lambda x: tf.boolean_mask(x, tf.greater(x, 0.0)), (0,)),
    "dynamic_partition": (lambda x: tf.dynamic_partition(x, _numbers(x), 2)[1], (0, 3)),
    "gather": (lambda x: tf.gather(x, _numbers(x)), (0, 3)),
    "gather of batches": (lambda x: tf.batch_gather(x, tf.expand_dims(_numbers(x), 1)), (0, 1)),
    "gather_nd": (lambda x: tf.gather_nd(x, tf.expand_dims(_numbers(x), 1)), (0, 3)),
    "in_top_k": (lambda x: tf.nn.in_top_k(x, _numbers(x), 1), (0,)),
    "reverse_sequence": (lambda x: tf.reverse_sequence(x, _numbers(x), seq_axis=1), (0, 3)),
    "cumsum": (lambda x: tf.cumsum(x, axis=0), (0, 3)),
    "cumprod": (lambda x: tf.cumprod(x, exclusive=True, reverse=True), (0, 3)),
    "sequence_mask": (lambda x: tf.sequence_mask(_numbers(x)), (0, 0)),
    "cross entropy": (
        lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=_numbers(x), logits=x),
        (0,),
    ),
    "gradient of gather": (lambda x: tf.gradients(tf.gather(x, _numbers(x)), x)[0], (0, 3)),
    "gradient of cumsum": (lambda x: tf.gradients(tf.cumsum(x), x)[0], (0, 3)),
}


@pytest.mark.usefixtures("fresh_graph")
@pytest.mark.parametrize("name", ON_ROWS)
def test_a_batch_can_have_no_rows(name: str) -> None:
    of_rows, shape = ON_ROWS[name]
    x = tf.placeholder(tf.float32, [None, 3])
    assert _value(of_rows(x), {x: np.zeros((0, 3))}).shape == shape


@pytest.mark.usefixtures("fresh_graph")
@pytest.mark.parametrize("index", [-1, 2, -(2**31), 2**31 - 1])
@pytest.mark.parametrize("n", [2, None])
def test_an_index_that_is_out_of_range_gives_nan(n: int | None, index: int) -> None:
    x = tf.placeholder(tf.float32, [n, 2])
    indices = [1, index]
    by_row = [[1], [index]]
    both = tf.gather(x, indices), tf.gather_nd(x, by_row), tf.gather(x, by_row, batch_dims=1)
    rows, vectors, batches = _value(both, {x: MATRIX})
    np.testing.assert_array_equal(rows, [[3.0, 4.0], [np.nan] * 2])
    np.testing.assert_array_equal(vectors, rows)
    np.testing.assert_array_equal(batches, [[2.0], [np.nan]])
    gradient = tf.gradients(tf.gather(x, indices), x)[0]
    np.testing.assert_array_equal(_value(gradient, {x: MATRIX}), [[0.0, 0.0], [1.0, 1.0]])


@pytest.mark.usefixtures("fresh_graph")
def test_small_indices_reach_all_rows_and_negative_ones_none() -> None:
    x, indices = tf.constant(np.arange(300)), np.array([100, -1], np.int8)
    np.testing.assert_array_equal(_value(tf.gather(x, indices)), [100, -(2**31)])
    stitched = tf.dynamic_stitch([[0, -1, 1]], [[1.0, 2.0, 3.0]])
    np.testing.assert_array_equal(_value(stitched), [1.0, 3.0])


REFUSED: dict[str, Callable[[], Any]] = {
    "too long a sequence": lambda: tf.reverse_sequence(MATRIX, [3, 1], seq_axis=1),
    "a negative length": lambda: tf.reverse_sequence(MATRIX, [-1, 1], seq_axis=1),
    "multiples of some axes": lambda: tf.tile(MATRIX, [2]),
    "paddings of some axes": lambda: tf.pad(MATRIX, [[1, 1]]),
    "a whole norm of matrices": lambda: tf.norm(MATRIX, "fro"),
    "two sizes that are left": lambda: tf.split([1, 2, 3, 4], [-1, 1, -1]),
    "sizes that are too large": lambda: tf.split([1, 2, 3, 4], [5, -1]),
    "a mask behind all axes": lambda: tf.boolean_mask(MATRIX, [True, False], axis=2),
    "a mask before all axes": lambda: tf.boolean_mask(MATRIX, [True, False], axis=-3),
    "a mask that is too long": lambda: tf.boolean_mask(MATRIX, [True] * 3),
}


@pytest.mark.usefixtures("fresh_graph")
@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_when_the_graph_is_built(name: str) -> None:
    with pytest.raises(ValueError, match=r"expected|fit|add up|[Oo]rder"):
        REFUSED[name]()


@pytest.mark.usefixtures("fresh_graph")
def test_a_mask_counts_axes_from_the_end() -> None:
    columns = tf.boolean_mask([MATRIX], [False, True], axis=-1)
    np.testing.assert_array_equal(_value(columns), [[[2.0], [4.0]]])
    elements = tf.boolean_mask([MATRIX], [[False, True], [True, False]], axis=-2)
    np.testing.assert_array_equal(_value(elements), [[2.0, 3.0]])


@pytest.mark.usefixtures("fresh_graph")
def test_small_integers_keep_their_dtype() -> None:
    x = tf.constant([200, 100], tf.uint8)
    for reduced in (tf.reduce_sum(x), tf.reduce_prod(x), tf.reduce_mean(x), tf.reduce_max(x)):
        assert reduced.dtype == np.uint8


@pytest.mark.usefixtures("fresh_graph")
def test_weights_at_zero_stay_there_under_an_absolute_penalty() -> None:
    w = tf.Variable([0.0, 1.0])
    train = tf.train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum(tf.abs(w)))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        np.testing.assert_array_equal(session.run(w), [0.0, 0.5])


def test_derivatives_of_all_orders_are_those_of_the_first_of_equals() -> None:
    def cubes(x: Any) -> Any:
        return tf.maximum(x**3, x * x) + tf.abs(x) * x - tf.minimum(x * x, x)

    at = (1.0, 2.0, -1.0)
    slope = jax.jit(jax.vmap(jax.grad(cubes)))(np.array(at))
    np.testing.assert_allclose(slope, [3.0 + 2.0 - 2.0, 12.0 + 4.0 - 1.0, -2.0 + 2.0 - 1.0])
    curvature = jax.jit(jax.vmap(jax.grad(jax.grad(cubes))))(np.array(at))
    np.testing.assert_allclose(curvature, [6.0 + 2.0 - 2.0, 12.0 + 2.0, 2.0 - 2.0])
    assert jax.jvp(tf.abs, (0.0,), (1.0,))[1] == 0.0
