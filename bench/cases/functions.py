"""Calls of functions whose arguments are not all plain arrays that are used, against `jax.jit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jflow as tf
from bench.timing import alternate, tell

N_ARRAYS = 40
WIDTH, BATCH, N_CLASSES, RATE = 64, 32, 10, 0.01


def unused() -> None:
    """An argument that the result does not depend on."""
    one, other = jnp.float32(1.0), jnp.ones(3)

    def add(x: jax.Array, _: jax.Array) -> jax.Array:
        return x + 1

    jitted, traced = jax.jit(add), tf.function(add)
    tell(
        alternate(
            {
                "function call with an unused argument": lambda: np.asarray(traced(one, other)),
                "jax.jit call with an unused argument": lambda: np.asarray(jitted(one, other)),
            },
            n=1000,
        )
    )


def with_a_key() -> None:
    """A random key among arrays, as in the state of a model with dropout."""
    arrays, key = [jnp.ones(3) for _ in range(N_ARRAYS)], jax.random.key(0)

    def add_all(arrays: list[jax.Array], key: jax.Array) -> Any:
        key, used = jax.random.split(key)
        return [x + jax.random.uniform(used) for x in arrays], key

    jitted, traced = jax.jit(add_all), tf.function(add_all)
    tell(
        alternate(
            {
                "function call with a random key": lambda: jax.block_until_ready(
                    traced(arrays, key)
                ),
                "jax.jit call with a random key": lambda: jax.block_until_ready(
                    jitted(arrays, key)
                ),
            },
            n=100,
        )
    )


class Model(nnx.Module):
    """Two layers with dropout between them, whose keys are part of its state."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.second = nnx.Linear(WIDTH, N_CLASSES, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Logits f32[batch, classes]."""
        return self.second(self.dropout(nnx.relu(self.first(x))))


def nnx_step() -> None:
    """A training step of an NNX model, from its state to its state."""
    graphdef, weights, rest = nnx.split(Model(nnx.Rngs(0)), nnx.Param, ...)
    optimizer = optax.adam(RATE)
    random = np.random.default_rng(0)
    x = jnp.asarray(random.normal(size=(BATCH, WIDTH)), jnp.float32)
    labels = jnp.asarray(random.integers(0, N_CLASSES, BATCH))

    def step(weights: Any, rest: Any, moments: Any, x: jax.Array, labels: jax.Array) -> Any:
        def loss(weights: Any) -> Any:
            model = nnx.merge(graphdef, weights, rest, copy=True)
            value = optax.softmax_cross_entropy_with_integer_labels(model(x), labels).mean()
            return value, nnx.split(model, nnx.Param, ...)[2]

        (value, new_rest), slopes = jax.value_and_grad(loss, has_aux=True)(weights)
        updates, moments = optimizer.update(slopes, moments, weights)
        return optax.apply_updates(weights, updates), new_rest, moments, value

    def training(compiled: Callable[..., Any]) -> Callable[[], None]:
        state = weights, rest, optimizer.init(weights)

        def train() -> None:
            nonlocal state
            *state, value = compiled(*state, x, labels)
            np.asarray(value)

        return train

    tell(
        alternate(
            {
                "NNX training step": training(tf.function(step)),
                "jax.jit NNX training step": training(jax.jit(step)),
            },
            n=100,
        )
    )


if __name__ == "__main__":
    unused()
    with_a_key()
    nnx_step()
