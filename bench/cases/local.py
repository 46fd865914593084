"""Calls in one process, against `jax.jit` and `np.asarray`."""

from __future__ import annotations

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


def layers(x: Any, weights: list[Any], namespace: Any, relu: Any) -> Any:
    """Three layers."""
    for weight in weights:
        x = relu(namespace.dot(x, weight))
    return namespace.mean(x**2)


def mlp() -> None:
    """The training step of three layers (batch 128, width 512) against hand-written JAX."""
    random = np.random.default_rng(0)
    values = [random.normal(0, 0.05, (WIDTH, WIDTH)).astype(np.float32) for _ in range(3)]
    batch = random.normal(size=(BATCH, WIDTH)).astype(np.float32)

    def step(weights: list[Any], x: Any) -> tuple[Any, list[Any]]:
        loss, slopes = jax.value_and_grad(lambda w: layers(x, w, jnp, jax.nn.relu))(weights)
        return loss, [w - RATE * s for w, s in zip(weights, slopes, strict=True)]

    jitted = jax.jit(step, donate_argnums=0)
    state = [jnp.asarray(value) for value in values]

    def plain() -> None:
        nonlocal state
        loss, state = jitted(state, batch)
        np.asarray(loss)

    weights = [tf.Variable(value, name="w") for value in values]
    x = tf.placeholder(tf.float32, (BATCH, WIDTH))
    loss = layers(x, weights, tf.numpy, tf.nn.relu)
    slopes = tf.gradients(loss, weights)
    train = tf.group(*(w.assign_sub(RATE * s) for w, s in zip(weights, slopes, strict=True)))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        tell(
            alternate(
                {
                    "local MLP step": lambda: session.run([loss, train], {x: batch}),
                    "jax.jit MLP step": plain,
                },
                n=20,
            )
        )


if __name__ == "__main__":
    scalar()
    mlp()
