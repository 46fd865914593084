"""Sizes None of several placeholders, which have to be equal only where a step needs that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tests.tensorflow_values.program import Steps, gives

IMAGES = np.sin(np.arange(12 * 784, dtype=np.float32)).reshape(12, 784)
LABELS = np.eye(10, dtype=np.float32)[np.arange(12) * 7 % 10]


def _of(tf: Any, name: str, name_of_tensorflow: str) -> Callable[..., Any]:
    """A function of jflow.numpy, or that of TensorFlow."""
    found: Callable[..., Any] = (
        getattr(tf.numpy, name) if hasattr(tf, "numpy") else getattr(tf, name_of_tensorflow)
    )
    return found


@gives(
    loss=2.3025851,
    trained=1.7799392,
    accuracy=1 / 3,
    biases=[
        *(0.00173874, 0.00189439, -0.00041507, -0.00275137, 0.001645),
        *(-0.00037372, -0.00275137, 0.00163417, -0.0002626, -0.00035815),
    ],
)
def softmax_regression_is_trained_with_batches_of_all_sizes(tf: Any) -> Mapping[str, Any]:
    mean, total = _of(tf, "mean", "reduce_mean"), _of(tf, "sum", "reduce_sum")
    x, y = tf.placeholder(tf.float32, [None, 784]), tf.placeholder(tf.float32, [None, 10])
    w = tf.Variable(np.zeros((784, 10), np.float32))
    b = tf.Variable(np.zeros(10, np.float32))
    logits = _of(tf, "matmul", "matmul")(x, w) + b
    loss = -mean(total(y * tf.nn.log_softmax(logits), axis=1))
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    argmax = _of(tf, "argmax", "argmax")
    right = _of(tf, "equal", "equal")(argmax(logits, 1), argmax(y, 1))
    accuracy = mean(tf.cast(right, tf.float32))

    def batch(n: int) -> dict[Any, Any]:
        return {x: IMAGES[:n], y: LABELS[:n]}

    steps = [(train, batch(n)) for n in (8, 4, 8)]
    return {
        "loss": Steps((loss, batch(8))),
        "trained": Steps(*steps, (loss, batch(12))),
        "accuracy": Steps(*steps, (accuracy, batch(12))),
        "biases": Steps(*steps, b),
    }


@gives(both=[[2.0, 6.0], [2.0, 6.0]], by_x=[[1.0, 2.0]] * 3, by_y=[[2.0, 3.0]] * 3, apart=10.0)
def gradients_reach_both_sides_of_an_operation_on_two_unknown_sizes(tf: Any) -> Mapping[str, Any]:
    x, y = tf.placeholder(tf.float32, [None, 2]), tf.placeholder(tf.float32, [None, None])
    product = x * y
    by_x, by_y = tf.gradients(product, [x, y])
    feeds = {x: [[2.0, 3.0]] * 3, y: [[1.0, 2.0]] * 3}
    fewer = {x: [[2.0, 3.0]] * 2, y: [[1.0, 2.0]] * 2}
    total = _of(tf, "sum", "reduce_sum")
    return {
        "both": Steps((product, fewer)),
        "by_x": Steps((by_x, feeds)),
        "by_y": Steps((by_y, feeds)),
        "apart": Steps((total(x) + total(y), {x: [[2.0, 3.0]], y: [[5.0]]})),
    }


@gives(row=[[3.0, 4.0]] * 2, column=[[2.0, 3.0]] * 2, known=[[2.0, 3.0]] * 2, vector=[[2.0, 3.0]])
def a_known_size_says_what_an_unknown_one_is(tf: Any) -> Mapping[str, Any]:
    x, one = tf.placeholder(tf.float32, [None, 2]), tf.placeholder(tf.float32, [1, 2])
    column, vector = tf.placeholder(tf.float32, [None, 1]), tf.placeholder(tf.float32, [None])
    known = x + np.ones((2, 2), np.float32)
    assert known.shape == (2, 2)
    rows = [[1.0, 2.0]] * 2
    return {
        "row": Steps((x + one, {x: rows, one: [[2.0, 2.0]]})),
        "column": Steps((x + column, {x: rows, column: [[1.0]] * 2})),
        "known": Steps((known, {x: rows})),
        "vector": Steps((x + vector, {x: rows[:1], vector: [1.0, 1.0]})),
    }


@gives(flat=[[12.0], [12.0]], scaled=[[3.0, 4.0]])
def a_layer_is_built_by_the_shape_of_its_input(tf: Any) -> Mapping[str, Any]:
    x, any_rank = tf.placeholder(tf.float32, [None, 2, 3]), tf.placeholder(tf.float32)
    shape = x.get_shape()
    assert shape.as_list() == [None, 2, 3]
    assert shape.ndims == 3
    assert any_rank.get_shape().ndims is None
    assert not shape.is_fully_defined()
    assert shape[1:].is_fully_defined()
    assert shape == [None, 2, 3]
    assert shape.merge_with([4, None, None]) == [4, 2, 3]
    assert tf.TensorShape([None, 2]).concatenate([3]).as_list() == [None, 2, 3]
    assert shape.with_rank(3).is_compatible_with([7, 2, 3])
    size = shape[1:].num_elements()
    weights = tf.Variable(np.full((size, 1), 2.0, np.float32))
    assert weights.get_shape() == [6, 1]
    assert weights.shape == tf.TensorShape([tf.Dimension(6), tf.Dimension(1)])
    v = tf.get_variable("v", shape=tf.TensorShape([2]), initializer=tf.ones_initializer())
    y = tf.placeholder(tf.float32, [None, *v.get_shape().as_list()])
    flat = _of(tf, "reshape", "reshape")(x, [-1, size])
    return {
        "flat": Steps((_of(tf, "matmul", "matmul")(flat, weights), {x: np.ones((2, 2, 3))})),
        "scaled": Steps((v * y, {y: [[3.0, 4.0]]})),
    }


PROGRAMS = [
    softmax_regression_is_trained_with_batches_of_all_sizes,
    gradients_reach_both_sides_of_an_operation_on_two_unknown_sizes,
    a_known_size_says_what_an_unknown_one_is,
    a_layer_is_built_by_the_shape_of_its_input,
]
