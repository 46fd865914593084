"""A hundred steps of a learner that exchanges its model once in them, beside the steps alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jflow as tf
from bench.timing import alternate, tell

N_STEPS, BATCH, ROUNDS = 100, 1024, 11
INNER = optax.adam(1e-3)


def loss_of(params: Any, x: Any, y: Any) -> Any:
    logits = jax.nn.relu(x @ params["hidden"]) @ params["out"]
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1))


@jax.jit
def inner_step(params: Any, state: Any, x: Any, y: Any) -> Any:
    slopes = jax.grad(loss_of)(params, x, y)
    updates, state = INNER.update(slopes, state, params)
    return optax.apply_updates(params, updates), state


def steps(params: Any, after: Callable[[Any], Any]) -> Callable[[], None]:
    """Returns a function of a hundred steps, each followed by another function."""
    rng = np.random.default_rng(0)
    batch = rng.random((BATCH, 784), np.float32), rng.integers(0, 10, BATCH)
    held = [params, INNER.init(params)]

    def run() -> None:
        params, state = held
        for _ in range(N_STEPS):
            params, state = inner_step(params, state, *batch)
            params = after(params)
        jax.block_until_ready(params)
        held[:] = params, state

    return run


def main() -> None:
    rng = np.random.default_rng(0)
    params = {
        "hidden": 0.05 * rng.normal(size=(784, 256)).astype(np.float32),
        "out": 0.05 * rng.normal(size=(256, 10)).astype(np.float32),
    }
    with tf.LocalCluster(ps=1, workers=0) as cluster, tf.connect(cluster.target("ps", 0)):
        model = tf.train.Decoupled(params, "model", fragments=2, every=N_STEPS)
        with model.join() as learner:
            calls = {
                "steps of a learner": steps(learner.params, learner.step),
                "steps alone": steps(jax.tree.map(jnp.asarray, params), lambda params: params),
            }
            tell(alternate(calls, 1, rounds=ROUNDS))


if __name__ == "__main__":
    main()
