"""`jflow.bind`: a large model made and found, and a step of it beside one written by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jflow as tf
from bench.timing import alternate, tell

N_LEAVES, LEAF = 1000, 64
WIDTH, BATCH, LAYERS = 256, 64, 4


def making(target: str) -> dict[str, Callable[[], Any]]:
    """A thousand small arrays as variables: bound, found, and by a step of a session."""
    tree = {f"layer_{i:04}": np.full(LEAF, i, np.float32) for i in range(N_LEAVES)}
    numbers = itertools.count()

    def bind() -> None:
        tf.bind(tree, f"bound_{next(numbers)}", "/job:ps")

    def find() -> None:
        tf.bind(tree, "found", "/job:ps")

    def by_session() -> None:
        prefix = f"session_{next(numbers)}"
        with tf.Graph().as_default(), tf.device("/job:ps"):
            for name, value in tree.items():
                tf.Variable(value, name=f"{prefix}/{name}")
            initializer = tf.global_variables_initializer()
            with tf.Session(target) as session:
                session.run(initializer)

    return {
        "bind of 1,000 arrays": bind,
        "bind of 1,000 arrays that are there": find,
        "1,000 variables initialized by a step of a session": by_session,
    }


def layers() -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {
        f"layer_{i}": random.normal(0, 0.05, (WIDTH, WIDTH)).astype(np.float32)
        for i in range(LAYERS)
    }


def loss(weights: Any, x: Any) -> Any:
    """The loss of a perceptron."""
    y = x
    for i in range(LAYERS):
        y = jnp.tanh(y @ weights[f"layer_{i}"])
    return jnp.mean((y - x) ** 2)


def steps() -> dict[str, Callable[[], Any]]:
    """A step of gradient descent on a bound model, and on variables that are written by hand."""
    x = np.random.default_rng(1).normal(size=(BATCH, WIDTH)).astype(np.float32)
    state = tf.bind(layers(), "perceptron", "/job:ps")
    with tf.device("/job:ps"):
        variables = {k: tf.Variable(v, name=f"hand/{k}") for k, v in layers().items()}

    @tf.function
    def bound(x: Any) -> Any:
        value, slopes = tf.value_and_grad(loss)(state, x)
        state.assign_sub(jax.tree.map(lambda slope: 0.1 * slope, slopes))
        return value

    @tf.function
    def by_hand(x: Any) -> Any:
        value, slopes = tf.value_and_grad(loss)(variables, x)
        for name, slope in slopes.items():
            variables[name].assign_sub(0.1 * slope)
        return value

    np.testing.assert_allclose(float(bound(x)), float(by_hand(x)), rtol=1e-6)
    return {
        "step of a bound model": lambda: float(bound(x)),
        "step of variables by hand": lambda: float(by_hand(x)),
    }


def main() -> None:
    """All figures."""
    with tf.LocalCluster(ps=1, workers=1) as cluster, tf.connect(cluster.target("worker", 0)):
        tell(alternate(making(cluster.target("worker", 0)), n=1))
        tell(alternate(steps(), n=20))


if __name__ == "__main__":
    main()
