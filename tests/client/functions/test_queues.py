"""Queues in functions: each use happens once a call, in the order of the lines."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jflow as tf
from tests.clusters import Backend

CONFIG = tf.ConfigProto(operation_timeout_in_ms=100_000)


@pytest.fixture
def connection(backend: Backend) -> Iterator[tf.Connection]:
    backend.reset()
    with tf.connect(backend.targets[0], CONFIG) as connection:
        yield connection


@pytest.fixture
def queue(connection: tf.Connection) -> tf.FIFOQueue:
    return tf.FIFOQueue(20, [tf.float32], [()])


def drained(queue: tf.QueueBase) -> list[float]:
    return [float(queue.get()) for _ in range(int(queue.size()))]


def test_uses_happen_in_the_order_of_the_lines(queue: tf.FIFOQueue) -> None:
    total = tf.Variable(0.0)

    @tf.function
    def step(x: Any) -> Any:
        queue.enqueue(x)
        queue.enqueue(x + 1)
        first = queue.dequeue()
        queue.enqueue(first * 10)
        total.assign_add(first)
        return first, queue.size()

    for x in (1.0, 5.0):
        first, size = step(x)
        assert (float(first), int(size)) == (x, 2)
        assert drained(queue) == [x + 1, x * 10]
    assert float(total.value()) == 6


def test_what_a_function_puts_may_be_a_constant(queue: tf.FIFOQueue) -> None:
    @tf.function
    def step() -> None:
        queue.enqueue(1.5)
        queue.enqueue(2)
        queue.enqueue(np.float32(3))
        queue.enqueue(jnp.float32(4))
        queue.enqueue_many(np.array([5, 6], np.float32))
        queue.enqueue_many([7.0, 8.0])

    step()
    assert drained(queue) == [1.5, 2, 3, 4, 5, 6, 7, 8]


def test_integers_are_not_cut_out_of_floats(connection: tf.Connection) -> None:
    queue = tf.FIFOQueue(20, [tf.int32], [()])
    for wrong in (1.5, np.float32(2.5), "3"):
        with pytest.raises(TypeError):
            tf.function(lambda wrong=wrong: queue.enqueue(wrong))()
    with pytest.raises(TypeError, match="requires int32"):
        tf.function(queue.enqueue)(jnp.float32(1))
    assert queue.size() == 0


def test_batches_in_functions(queue: tf.FIFOQueue) -> None:
    @tf.function
    def step(x: Any) -> Any:
        queue.enqueue_many(x)
        return queue.dequeue_many(2), queue.dequeue_up_to(1).sum()

    two, one = step(jnp.arange(4.0))
    assert (two.tolist(), float(one)) == ([0, 1], 2)
    assert drained(queue) == [3]


def test_closing_in_a_function(queue: tf.FIFOQueue) -> None:
    @tf.function
    def close() -> Any:
        queue.close()
        return queue.is_closed()

    assert bool(close())
    with pytest.raises(tf.errors.OutOfRangeError, match="is closed and has insufficient"):
        tf.function(queue.dequeue)()


TRANSFORMS: dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "plain": lambda f: f,
    "jit": jax.jit,
    "jit in jit": lambda f: jax.jit(lambda x: jax.jit(f)(x) * 1),
    "grad": jax.grad,
    "value and grad": lambda f: lambda x: jax.value_and_grad(f)(x)[0],
    "jit of grad": lambda f: jax.jit(jax.grad(f)),
    "grad of jit": lambda f: jax.grad(jax.jit(f)),
    "vjp": lambda f: lambda x: jax.vjp(f, x)[1](jnp.float32(1))[0],
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (x,))[1],
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transformations_do_not_repeat_uses(queue: tf.FIFOQueue, transform: str) -> None:
    def work(x: Any) -> Any:
        queue.enqueue(x * 2)
        y = queue.dequeue()
        queue.enqueue(y + 1)
        return jnp.sin(x) * y

    run = tf.function(TRANSFORMS[transform](work))
    for n in range(1, 3):
        run(jnp.float32(3))
        assert queue.size() == n
    assert drained(queue) == [6, 8]  # the second call found what the first one left


def test_what_comes_out_of_a_queue_is_a_constant_to_gradients(queue: tf.FIFOQueue) -> None:
    @tf.function
    def loss(x: Any) -> Any:
        queue.enqueue(x)
        return x * queue.dequeue() + x**2

    assert float(tf.grad(loss)(jnp.float32(3))) == 9
    assert queue.size() == 0


def test_the_rule_of_a_function_with_one_is_what_happens(queue: tf.FIFOQueue) -> None:
    @jax.custom_vjp
    def ruled(x: Any) -> Any:
        queue.enqueue(1.0)
        return x

    def forward(x: Any) -> Any:
        queue.enqueue(2.0)
        return x, None

    def backward(_: Any, slope: Any) -> Any:
        queue.enqueue(3.0)
        return (slope * 7,)

    ruled.defvjp(forward, backward)
    assert float(tf.function(ruled)(jnp.float32(5))) == 5
    assert drained(queue) == [1]
    assert float(tf.function(jax.grad(ruled))(jnp.float32(5))) == 7
    assert drained(queue) == [2, 3]


REFUSED: dict[str, Callable[[tf.FIFOQueue, Any], Any]] = {
    "fori_loop": lambda q, x: lax.fori_loop(0, 3, lambda _, c: c + q.dequeue(), x),
    "while_loop": lambda q, x: lax.while_loop(lambda c: c < 3, lambda c: c + q.dequeue(), x),
    "scan": lambda q, x: lax.scan(lambda c, _: (c, q.enqueue(c)), x, None, 3),
    "cond": lambda q, x: lax.cond(x > 0, q.dequeue, lambda: x),
    "checkpoint": lambda q, x: jax.checkpoint(lambda y: y * q.dequeue())(x),
    "grad of checkpoint": lambda q, x: jax.grad(jax.checkpoint(lambda y: y * q.dequeue()))(x),
    "vmap": lambda q, x: jax.vmap(q.enqueue)(jnp.stack([x, x])),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_uses_that_jax_might_repeat_are_refused_with_the_line(
    queue: tf.FIFOQueue, kind: str
) -> None:
    queue.put(1.0)
    with pytest.raises((NotImplementedError, TypeError)) as caught:
        tf.function(lambda x: REFUSED[kind](queue, x))(jnp.float32(1))
    assert queue.ref.name in str(caught.value)
    assert "test_queues.py" in str(caught.value)
    assert drained(queue) == [1]


def test_a_function_that_jax_compiles_by_itself_cannot_use_a_queue(queue: tf.FIFOQueue) -> None:
    with pytest.raises((TypeError, ValueError), match=r"queue '.*test_queues.py"):
        jax.jit(queue.enqueue)(jnp.float32(1))
    assert queue.size() == 0


def test_strings_and_values_of_any_rank_are_refused(connection: tf.Connection) -> None:
    strings, ranks = tf.FIFOQueue(5, [tf.string], [()]), tf.FIFOQueue(5, [tf.float32])
    for use, words in (
        (strings.dequeue, r"string\[\]"),
        (lambda: strings.enqueue("x"), "requires strings"),
        (ranks.dequeue, r"float32\[\?\].*give it a shape"),
    ):
        with pytest.raises(TypeError, match=words):
            tf.function(use)()
    tf.function(ranks.enqueue)(jnp.ones(3))
    assert ranks.get().tolist() == [1, 1, 1]


def test_a_wrong_shape_is_refused_before_anything_is_put(queue: tf.FIFOQueue) -> None:
    def put_two(x: Any) -> None:
        queue.enqueue(x[0])
        queue.enqueue(x)

    with pytest.raises(ValueError, match=r"shape \(\).*got \(2,\)"):
        tf.function(put_two)(jnp.ones(2))
    assert queue.size() == 0


def test_queues_on_other_devices(connection: tf.Connection, backend: Backend) -> None:
    queues = []
    for device in backend.devices[:2]:
        with tf.device(device):
            queues.append(tf.FIFOQueue(5, [tf.float32], [()]))

    @tf.function
    def step(x: Any) -> Any:
        for queue in queues:
            queue.enqueue(x)
            x = queue.dequeue() * 2
        return x

    assert [float(step(x)) for x in (1.0, 3.0)] == [4, 12]
    assert [int(queue.size()) for queue in queues] == [0, 0]


def test_functions_that_share_a_queue_hand_over_through_it(queue: tf.FIFOQueue) -> None:
    put = tf.function(queue.enqueue)
    take = tf.function(lambda: queue.dequeue() + 1)
    for x in (1.0, 2.0):
        put(x)
    assert [float(take()) for _ in range(2)] == [2, 3]


def test_a_function_with_a_shared_queue_joins_a_graph(
    connection: tf.Connection, backend: Backend
) -> None:
    if not backend.shared:
        pytest.skip("local sessions share nothing")
    queue = tf.FIFOQueue(5, [tf.float32], [()], shared_name="joined")
    put, take = tf.function(queue.enqueue), tf.function(lambda x: x * queue.dequeue())
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, ())
        done, product = put(x), take(x)
        with backend.session(config=CONFIG) as session:
            session.run(done, {x: 3.0})
            assert float(queue.get()) == 3
            queue.put(4.0)
            assert session.run(product, {x: 2.0}) == 8


def test_a_queue_that_the_session_would_not_have_is_refused(queue: tf.FIFOQueue) -> None:
    take = tf.function(lambda x: x * queue.dequeue())
    with tf.Graph().as_default(), pytest.raises(ValueError, match="give it a shared_name"):
        take(tf.constant(1.0))


def test_a_queue_of_another_connection_is_refused(queue: tf.FIFOQueue, backend: Backend) -> None:
    with (
        tf.connect(backend.targets[0], CONFIG),
        pytest.raises(ValueError, match=r"queue '.*belongs to .*make it again"),
    ):
        tf.function(queue.dequeue)()


def test_a_queue_keeps_its_elements_when_the_function_that_put_them_is_gone(
    queue: tf.FIFOQueue,
) -> None:
    tf.function(queue.enqueue)(jnp.float32(1))
    gc.collect()
    tf.function(queue.enqueue)(jnp.float32(2))
    gc.collect()
    assert drained(queue) == [1, 2]


def test_a_size_that_only_the_queue_knows_is_a_number_like_any_other(
    connection: tf.Connection,
) -> None:
    queue = tf.FIFOQueue(20, [tf.float32], [(2,)])

    def centred(x: Any) -> Any:
        rows = jnp.arange(x.shape[0])[:, None] + jnp.ones((x.shape[0], 2))
        return (x - x.mean()) / x.shape[0] * rows

    @tf.function
    def step(scale: Any) -> Any:
        x = queue.dequeue_up_to(5)
        return centred(x) * scale, x.shape[0] * scale

    for n_rows in (3, 4):
        values = np.arange(2.0 * n_rows, dtype=np.float32).reshape(n_rows, 2)
        queue.put_many(values)
        if n_rows == 3:
            queue.put_many(np.zeros((2, 2), np.float32))
            values = np.concatenate([values, np.zeros((2, 2), np.float32)])
        else:
            queue.close()
        found, size = step(jnp.float32(2))
        np.testing.assert_allclose(found, centred(jnp.asarray(values)) * 2, rtol=1e-6)
        assert float(size) == 2 * len(values)
