"""A training step of Adam over a hundred variables in a session, against one `jax.jit` of it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jflow as tf
from bench.timing import alternate, tell

N_VARIABLES = 100
RATE = 1e-3


def step(size: int, name: str, n: int) -> None:
    """Variables of shape (size, size), whose gradients are their values."""
    random = np.random.default_rng(0)
    start = [random.normal(size=(size, size)).astype(np.float32) for _ in range(N_VARIABLES)]
    transformation = optax.adam(RATE)

    def plain(params: Any, state: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda p: sum(jnp.sum(x * x) for x in p))(params)
        updates, state = transformation.update(grads, state, params)
        return loss, optax.apply_updates(params, updates), state

    jitted = jax.jit(plain, donate_argnums=(0, 1))
    held = [[jnp.asarray(value) for value in start]]
    held.append(jax.jit(transformation.init)(held[0]))

    def peer() -> None:
        loss, *held[:] = jitted(*held)
        np.asarray(loss)

    with tf.Graph().as_default(), tf.Session() as session:
        variables = [tf.Variable(value) for value in start]
        loss: Any = sum(tf.numpy.sum(v * v) for v in variables)
        train = tf.train.Optimizer(transformation).minimize(loss)
        session.run(tf.global_variables_initializer())
        tell(alternate({name: lambda: session.run([train, loss]), f"jax.jit {name}": peer}, n=n))


if __name__ == "__main__":
    step(256, "Adam over 100 variables", 20)
    step(16, "Adam over 100 small variables", 100)
