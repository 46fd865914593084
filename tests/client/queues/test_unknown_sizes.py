"""Tensors whose sizes are unknown before a step runs, in JAX's functions and across devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from tests.client.queues.helpers import session
from tests.clusters import Backend

RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(size=(4, 3)).astype(np.float32)

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "elementwise": lambda np_, x: np_.tanh(x) * 2 + 1,
    "matmul": lambda np_, x: np_.dot(x, WEIGHTS),
    "mean": lambda np_, x: np_.mean(x, axis=0),
    "sum of all": lambda np_, x: np_.sum(x * x),
    "transpose": lambda np_, x: np_.transpose(x) @ x,
    "reshape": lambda np_, x: np_.reshape(x, (-1,)),
    "concatenate": lambda np_, x: np_.concatenate([x, x * 2], axis=0),
    "slice": lambda np_, x: x[:1] + x[-1],
    "where": lambda np_, x: np_.where(x > 0, x, 0.0),
    "sort": lambda np_, x: np_.sort(x, axis=0),
    "argmax": lambda np_, x: np_.argmax(x, axis=0),
}


def given(n: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(n).normal(size=(n, 4)).astype(np.float32)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_batch_of_any_size_gives_what_jax_gives(backend: Backend, name: str) -> None:
    function = FUNCTIONS[name]
    x = tf.placeholder(tf.float32, (None, 4))
    y = function(tf.numpy, x)
    expected = jax.jit(lambda value: function(jnp, value))
    with session(backend) as sess:
        for n in (1, 3, 1):
            np.testing.assert_allclose(
                sess.run(y, {x: given(n)}), expected(given(n)), rtol=1e-5, atol=1e-6
            )


def test_what_is_dequeued_up_to_goes_through_programs_on_several_devices(backend: Backend) -> None:
    queue = tf.FIFOQueue(20, [tf.float32], [(4,)])
    with tf.device(backend.devices[0]):
        hidden = tf.nn.relu(tf.numpy.dot(queue.dequeue_up_to(5), WEIGHTS))
    with tf.device(backend.devices[1]):
        total = tf.numpy.mean(hidden, axis=0) * 3
    with session(backend) as sess:
        sess.run(queue.enqueue_many(given(8)))
        sess.run(queue.close())
        for rows in (given(8)[:5], given(8)[5:]):
            layer = jnp.maximum(rows @ WEIGHTS, 0)
            found, mean = sess.run([hidden, total])
            np.testing.assert_allclose(found, layer, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(mean, layer.mean(0) * 3, rtol=1e-5, atol=1e-6)
        with pytest.raises(tf.errors.OutOfRangeError):
            sess.run(total)


def test_sums_and_products_of_sizes_cross_devices(backend: Backend) -> None:
    first, second = tf.placeholder(tf.float32, (None, 2)), tf.placeholder(tf.float32, (None, 2))
    with tf.device(backend.devices[0]):
        both = tf.numpy.concatenate([first, second])
        flat = tf.numpy.reshape(both, (-1,))
    with tf.device(backend.devices[1]):
        total, doubled = tf.numpy.sum(both), flat * 2
    with session(backend) as sess:
        for n, m in ((3, 4), (1, 6), (3, 4)):
            feeds = {first: np.ones((n, 2)), second: np.full((m, 2), 2.0)}
            found, rows = sess.run([total, doubled], feeds)
            assert found == 2 * n + 4 * m
            assert rows.tolist() == [2.0] * 2 * n + [4.0] * 2 * m


def test_gradients_of_batches_of_any_size(backend: Backend) -> None:
    def loss(np_: Any, w: Any, x: Any) -> Any:
        return np_.mean(np_.sum(np_.tanh(np_.dot(x, w)) ** 2, axis=1))

    with tf.device(backend.devices[1]):
        w = tf.Variable(WEIGHTS, name="w")
    queue = tf.FIFOQueue(20, [tf.float32], [(4,)])
    n = tf.placeholder(tf.int32, ())
    with tf.device(backend.devices[0]):
        x = queue.dequeue_many(n)
        slopes = tf.gradients(loss(tf.numpy, w, x), [w, x])
    expected = jax.jit(jax.grad(lambda w, x: loss(jnp, w, x), (0, 1)))
    with session(backend) as sess:
        sess.run(w.initializer)
        for size in (2, 5):
            sess.run(queue.enqueue_many(given(size)))
            found = sess.run(slopes, {n: size})
            for one, other in zip(found, expected(WEIGHTS, given(size)), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_training_on_what_a_queue_gives_is_training(backend: Backend) -> None:
    w = tf.Variable(np.zeros(4, np.float32), name="w")
    queue = tf.FIFOQueue(50, [tf.float32, tf.float32], [(4,), ()])
    x, y = queue.dequeue_up_to(8)
    loss = tf.numpy.mean((tf.numpy.dot(x, w) - y) ** 2)
    (slope,) = tf.gradients(loss, [w])
    train = w.assign_sub(slope * 0.1)
    inputs = given(20)
    targets = inputs @ np.arange(4, dtype=np.float32)
    with session(backend) as sess:
        sess.run(w.initializer)
        sess.run(queue.enqueue_many([inputs, targets]))
        sess.run(queue.close())
        for _ in range(3):
            sess.run(train.op)
        found = sess.run(w)
    value = jnp.zeros(4)
    for start in (0, 8, 16):
        batch, wanted = inputs[start : start + 8], targets[start : start + 8]
        value = value - 0.1 * jax.grad(lambda v: jnp.mean((batch @ v - wanted) ** 2))(value)  # noqa: B023
    np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-6)


def test_a_tensor_of_any_rank_stays_on_the_host_until_its_shape_is_known(backend: Backend) -> None:
    queue = tf.FIFOQueue(10, [tf.float32])
    any_rank = tf.placeholder(tf.float32)
    enqueue = queue.enqueue(any_rank)
    taken = queue.dequeue()
    assert taken.shape.ndims is None
    known = tf.ensure_shape(taken, (None, 2))
    with tf.device(backend.devices[1]):
        total = tf.numpy.sum(known, axis=0)
    with session(backend) as sess:
        for value in (3.0, np.ones((2, 2)), np.zeros((0,))):
            sess.run(enqueue, {any_rank: value})
            np.testing.assert_array_equal(sess.run(taken), value)
        sess.run(enqueue, {any_rank: np.ones((3, 2))})
        assert sess.run(total).tolist() == [3, 3]
        sess.run(enqueue, {any_rank: np.ones((2, 3))})
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"shape \(None, 2\), got \(2, 3\)"
        ):
            sess.run(total)


def test_a_tensor_of_any_rank_crosses_devices(backend: Backend) -> None:
    any_rank = tf.placeholder(tf.float32)
    with tf.device(backend.devices[0]):
        near = tf.identity(any_rank)
    with tf.device(backend.devices[1]):
        far = tf.identity(near)
        total = tf.numpy.sum(tf.ensure_shape(near, (2,)))
    with session(backend) as sess:
        assert sess.run(far, {any_rank: [[1.0]]}).tolist() == [[1]]
        assert sess.run([far, total], {any_rank: [1.0, 2.0]})[1] == 3


def test_ensure_shape_says_what_a_shape_is_and_checks_it(backend: Backend) -> None:
    x = tf.placeholder(tf.float32, (None, None))
    narrow = tf.ensure_shape(x, (2, None))
    assert narrow.shape[0] == 2
    with pytest.raises(ValueError, match="cannot have the shape"):
        tf.ensure_shape(narrow, (3, None))
    with pytest.raises(ValueError, match="cannot have the shape"):
        tf.ensure_shape(x, (2,))
    words = tf.ensure_shape(tf.placeholder(tf.string), ())
    with session(backend) as sess:
        assert sess.run(narrow * 1, {x: np.zeros((2, 5))}).shape == (2, 5)
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"the size 2 as dimension 0 of .*, got 3"
        ):
            sess.run(narrow, {x: np.zeros((3, 5))})
        assert sess.run(words, {words.op.inputs[0]: "x"}) == b"x"


def test_a_feed_must_fit_what_is_known_of_a_shape(backend: Backend) -> None:
    x = tf.placeholder(tf.float32, (None, 4), name="x")
    y = x * 2
    with session(backend) as sess:
        for wrong in (np.zeros(4), np.zeros((2, 3)), 1.0, np.zeros((1, 1, 4))):
            with pytest.raises(ValueError, match=r"Cannot feed value of shape .*'x:0'"):
                sess.run(y, {x: wrong})
        assert sess.run(y, {x: given(2)}).shape == (2, 4)


def test_sizes_that_must_be_equal_are_checked_when_the_step_runs(backend: Backend) -> None:
    x, y = tf.placeholder(tf.float32, (None,)), tf.placeholder(tf.float32, (None,))
    same = tf.placeholder(tf.float32, x.shape)
    with session(backend) as sess:
        for other, message in ((y, "'add' needs equal sizes"), (same, "does not accept")):
            total = x + other
            assert sess.run(total, {x: [1, 2], other: [3, 4]}).tolist() == [4, 6]
            with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                sess.run(total, {x: [1, 2], other: [3, 4, 5]})


def test_programs_that_need_rows_refuse_empty_batches_and_queues_do_not(backend: Backend) -> None:
    n = tf.placeholder(tf.int32, ())
    queue = tf.FIFOQueue(10, [tf.float32], [(4,)])
    taken = queue.dequeue_many(n)
    doubled, first = taken * 2, taken[0]
    with session(backend) as sess:
        assert sess.run([taken, doubled], {n: 0})[1].shape == (0, 4)
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"does not accept its arguments.*value >= 1"
        ):
            sess.run(first, {n: 0})
        sess.run(queue.enqueue_many(given(2)))
        assert sess.run(doubled, {n: 2}).shape == (2, 4)
