"""Runs that are recorded for a replay, beside the same runs without it."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jflow as tf
from bench.perceptron import BASE, N_IN, N_OUT
from bench.timing import alternate, tell

N_CLOSURES, N_BATCHES = 60, 20


def closures(
    cluster: tf.LocalCluster, stack: ExitStack, config: tf.ConfigProto | None
) -> Callable[[], None]:
    """Returns a function that trains a perceptron by closures, on batches that come again."""
    strategy = tf.distribute.ParameterServerStrategy(cluster.cluster_spec, config=config)
    stack.callback(strategy.close)
    coordinator = stack.enter_context(
        tf.distribute.coordinator.ClusterCoordinator(strategy, name=None)
    )
    with strategy.scope():
        weights = [tf.Variable(value) for value in BASE.weights()]
        optimizer = tf.train.AdamOptimizer(1e-3)

    @tf.function
    def step(x: Any, y: Any) -> Any:
        def loss(values: Any) -> Any:
            logits = jax.nn.relu(x @ values[0]) @ values[1]
            return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * y, -1))

        value, slopes = jax.value_and_grad(loss)([one.value() for one in weights])
        optimizer.apply_gradients(zip(slopes, weights, strict=True))
        return value

    random = np.random.default_rng(1)
    classes = np.eye(N_OUT, dtype=np.float32)
    batches = itertools.cycle(
        [
            (
                random.random((BASE.batch, N_IN), np.float32),
                classes[random.integers(0, N_OUT, BASE.batch)],
            )
            for _ in range(N_BATCHES)
        ]
    )

    def run() -> None:
        for _ in range(N_CLOSURES):
            coordinator.schedule(step, next(batches))
        coordinator.join()

    return run


def additions(target: str, stack: ExitStack, config: tf.ConfigProto | None) -> Callable[[], None]:
    """Returns a function of one of the smallest steps, which adds a fed number to a variable."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [])
        with tf.device("/job:worker/task:0"):
            variable = tf.Variable(0.0, name=f"counter_{config is None}")
        step = variable.assign_add(x)
    session = stack.enter_context(tf.Session(target, graph, config))
    session.run(variable.initializer)
    return lambda: session.run(step, {x: 1.0})


def main() -> None:
    """All figures."""
    with (
        tempfile.TemporaryDirectory() as directory,
        tf.LocalCluster(ps=1, workers=1) as cluster,
        ExitStack() as stack,
    ):
        config = tf.ConfigProto(record=str(Path(directory) / "run.jlog"))
        target = cluster.target("worker", 0)
        training = {
            "recorded closures of an MLP": closures(cluster, stack, config),
            "closures of an MLP": closures(cluster, stack, None),
        }
        for _ in range(2):
            for run in training.values():
                run()
        tell(alternate(training, 1, rounds=31, items=N_CLOSURES))
        steps = {
            "recorded step that adds to a variable": additions(target, stack, config),
            "step that adds to a variable": additions(target, stack, None),
        }
        tell(alternate(steps, 200))


if __name__ == "__main__":
    main()
