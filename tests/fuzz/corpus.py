"""What is mutated: programs, plans and graph files, small ones that have much in them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jflow as tf
from jflow.compiler import lowering

VECTOR = jax.ShapeDtypeStruct((8,), np.float32)


def _loop(x: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 5, lambda _, y: y * 1.5 + 1.0, x)


def _search(x: jax.Array) -> jax.Array:
    return jax.lax.while_loop(lambda y: jnp.sum(y) < 100.0, lambda y: y + 1.0, x)


def _branches(x: jax.Array) -> jax.Array:
    return jax.lax.cond(x[0] > 0, jnp.sin, lambda y: jnp.cumsum(y) + jax.nn.softmax(y), x)


def _sorted(x: jax.Array) -> jax.Array:
    order = jnp.argsort(x)
    return jnp.sort(x) + x[order]


def _windows(x: jax.Array) -> jax.Array:
    pooled = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (3,), (1,), "SAME")
    return jnp.convolve(pooled, jnp.ones(3), "same")


def _rows(x: jax.Array) -> jax.Array:
    table = jnp.outer(x, x)
    return table.at[jnp.array([1, 3, 5])].add(x)[jnp.array([0, 7, 1])].T @ jnp.ones(3)


def _solved(x: jax.Array) -> jax.Array:
    matrix = jnp.outer(x, x) + 9.0 * jnp.eye(8)
    return jnp.linalg.cholesky(matrix) @ jnp.linalg.qr(matrix)[0] @ x


def _random(x: jax.Array) -> jax.Array:
    return x + jax.random.normal(jax.random.key(3), x.shape)


def _mixed(x: jax.Array) -> jax.Array:
    small = (x * 3).astype(jnp.int8)
    wide = jnp.fft.irfft(jnp.fft.rfft(x.astype(jnp.float32)), 8)
    return wide + jnp.bitwise_xor(small, 7).astype(jnp.float32) + x.astype(jnp.bfloat16)


def _calls(x: jax.Array) -> jax.Array:
    inner = jax.jit(lambda y: jnp.tanh(y) * y)
    return inner(inner(x)) + jax.checkpoint(lambda y: jnp.exp(y / 10))(x)


FUNCTIONS: tuple[Callable[[jax.Array], jax.Array], ...] = (
    *(jnp.tanh, _loop, _search, _branches, _sorted, _windows),
    *(_rows, _solved, _random, _mixed, _calls),
)


@cache
def program(number: int) -> bytes:
    """The serialized program of one of `FUNCTIONS`."""
    jaxpr = jax.make_jaxpr(lambda x: [FUNCTIONS[number](x)])(VECTOR)
    return bytes(lowering.export(jaxpr, "cpu"))


def programs() -> tuple[bytes, ...]:
    """Serialized programs of a vector, each of which gives a vector."""
    return tuple(map(program, range(len(FUNCTIONS))))


@cache
def graph_files() -> tuple[bytes, ...]:
    """Files of graphs, as `tf.train.export_meta_graph` writes them."""
    with tempfile.TemporaryDirectory() as folder:
        return tuple(
            _saved(make, Path(folder) / "graph") for make in (_model, _programs, _pipeline)
        )


def _saved(make: Callable[[], object], file: Path) -> bytes:
    with tf.Graph().as_default():
        make()
        tf.train.export_meta_graph(file)
    return file.read_bytes()


def _model() -> None:
    """A variable, an update of it and what differentiates a loop."""
    x = tf.placeholder(tf.float32, (None, 2), name="x")
    w = tf.Variable(np.ones((2, 2), np.float32), name="w")
    y = tf.lax.fori_loop(0, 2, lambda _, h: tf.numpy.tanh(h @ w), x)
    tf.train.GradientDescentOptimizer(0.1).minimize(tf.numpy.mean(y))


def _programs() -> None:
    """Reductions by functions, which a file has as programs, and a branch."""
    x = tf.placeholder(tf.float32, (4,), name="x")
    for number in range(3):
        combined = partial(lambda n, a, b: jnp.sin(a) * b + n, float(number))
        x = x + tf.lax.reduce(x, np.float32(1), combined, (0,))
    tf.lax.cond(x[0] > 0, jnp.cos, lambda y: y * 2.0, x)


def _pipeline() -> None:
    """Queues, strings and conditions."""
    words = tf.constant(["some", "words"])
    queue = tf.FIFOQueue(5, [tf.string, tf.float32], [(2,), (3,)], shared_name="q")
    put = queue.enqueue([words, tf.numpy.arange(3.0)])
    with tf.control_dependencies([put]):
        _, numbers = queue.dequeue()
        tf.numpy.sort(numbers)
