"""Calls in one process, against `jax.jit` and `np.asarray`; updates of tables in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jflow as tf
from bench.timing import alternate, tell

WIDTH, BATCH, RATE = 512, 128, 0.01


def scalar() -> None:
    """A scalar expression, constant and fed."""
    expression = tf.constant(1.0) * 3
    x = tf.placeholder(tf.float32, ())
    fed = x * 3 + 1
    jitted = jax.jit(lambda x: x * 3 + 1)
    one = np.float32(1.0)
    with tf.Session() as session:
        times = alternate(
            {
                "local constant": lambda: session.run(expression),
                "local fed scalar": lambda: session.run(fed, {x: one}),
                "jax.jit scalar": lambda: np.asarray(jitted(one)),
            },
            n=500,
        )
    tell(times)


def functions() -> None:
    """A call of a function of one array, and of a hundred."""
    one = jnp.float32(1.0)
    jitted = jax.jit(lambda x: x * 3 + 1)
    traced = tf.function(lambda x: x * 3 + 1)
    leaves = {f"w{i}": jnp.ones(3) for i in range(100)}
    jitted_leaves = jax.jit(lambda tree: jax.tree.map(lambda x: x + 1, tree))
    traced_leaves = tf.function(lambda tree: jax.tree.map(lambda x: x + 1, tree))
    tell(
        alternate(
            {
                "function call": lambda: np.asarray(traced(one)),
                "jax.jit call": lambda: np.asarray(jitted(one)),
            },
            n=1000,
        )
    )
    tell(
        alternate(
            {
                "function call of 100 leaves": lambda: traced_leaves(leaves),
                "jax.jit call of 100 leaves": lambda: jitted_leaves(leaves),
            },
            n=100,
        )
    )


def scatter(n_rows: int) -> None:
    """Adding 256 rows into a table of 16 columns."""
    random = np.random.default_rng(0)
    with tf.Graph().as_default(), tf.Session() as session:
        table = tf.Variable(tf.numpy.zeros((n_rows, 16)))
        rows, at = tf.placeholder(tf.float32, (256, 16)), tf.placeholder(tf.int32, (256,))
        added = tf.group(tf.scatter_add(table, at, rows))
        feeds = {
            rows: random.normal(size=(256, 16)).astype(np.float32),
            at: random.integers(0, n_rows, 256).astype(np.int32),
        }
        session.run(table.initializer)
        tell(alternate({f"scatter_add into {n_rows}": lambda: session.run(added, feeds)}, n=50))


def layers(x: Any, weights: list[Any], namespace: Any, relu: Any) -> Any:
    """Three layers."""
    for weight in weights:
        x = relu(namespace.dot(x, weight))
    return namespace.mean(x**2)


def _mlp_values() -> tuple[list[Any], Any]:
    """The first weights and the batch."""
    random = np.random.default_rng(0)
    values = [random.normal(0, 0.05, (WIDTH, WIDTH)).astype(np.float32) for _ in range(3)]
    return values, random.normal(size=(BATCH, WIDTH)).astype(np.float32)


def plain_mlp() -> Callable[[], Any]:
    """The training step of three layers (batch 128, width 512) in hand-written JAX."""
    values, batch = _mlp_values()

    def step(weights: list[Any], x: Any) -> tuple[Any, list[Any]]:
        loss, slopes = jax.value_and_grad(lambda w: layers(x, w, jnp, jax.nn.relu))(weights)
        return loss, [w - RATE * s for w, s in zip(weights, slopes, strict=True)]

    jitted = jax.jit(step, donate_argnums=0)
    state = [jnp.asarray(value) for value in values]

    def plain() -> None:
        nonlocal state
        loss, state = jitted(state, batch)
        np.asarray(loss)

    return plain


def mlp_step(session: tf.Session) -> Callable[[], Any]:
    """The same step in a session, whose graph gets it."""
    values, batch = _mlp_values()
    weights = [tf.Variable(value, name="w") for value in values]
    x = tf.placeholder(tf.float32, (BATCH, WIDTH))
    loss = layers(x, weights, tf.numpy, tf.nn.relu)
    slopes = tf.gradients(loss, weights)
    train = tf.group(*(w.assign_sub(RATE * s) for w, s in zip(weights, slopes, strict=True)))
    session.run([weight.initializer for weight in weights])
    return lambda: session.run([loss, train], {x: batch})


def mlp() -> None:
    """A training step in a session beside hand-written JAX."""
    with tf.Session() as session:
        calls = {"local MLP step": mlp_step(session), "jax.jit MLP step": plain_mlp()}
        tell(alternate(calls, n=20))


if __name__ == "__main__":
    scalar()
    functions()
    scatter(10_000)
    scatter(5_000_000)
    mlp()
