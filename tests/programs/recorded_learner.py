"""A learner that trains a model with others, and records what it does.

It goes on until each fragment was merged as often as its arguments say, or it is killed: TARGET LOG
SEED N_MERGES PAUSE.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jflow as tf

EVERY = 5


def opened() -> tf.train.Decoupled:
    """The model, which the first program makes."""
    first = {"bias": np.zeros(3, np.float32), "weights": np.full((4, 3), 0.1, np.float32)}
    devices = ["/job:ps/task:0", "/job:ps/task:1"]
    return tf.train.Decoupled(
        first, "model", devices, fragments=2, every=EVERY, quorum=2, grace=0.05
    )


@jax.jit
def stepped(params: Any, x: Any, y: Any) -> Any:
    """A step of gradient descent."""

    def loss(params: Any) -> Any:
        return jnp.mean((x @ params["weights"] + params["bias"] - y) ** 2)

    return jax.tree.map(lambda value, grad: value - 0.05 * grad, params, jax.grad(loss)(params))


def main() -> None:
    target, log, seed, n_merges, pause = sys.argv[1:]
    rng = np.random.default_rng(int(seed))
    with tf.connect(target, tf.ConfigProto(record=log)):
        model = opened()
        with model.join() as learner:
            params = learner.params
            while min(model.n_merges()) < int(n_merges):
                for _ in range(EVERY):
                    x = rng.normal(size=(8, 4)).astype(np.float32)
                    y = rng.normal(size=(8, 3)).astype(np.float32)
                    params = learner.step(stepped(params, x, y), tokens=8)
                    time.sleep(float(pause))


if __name__ == "__main__":
    main()
