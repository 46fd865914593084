"""TensorFlow's strategy with the program of `embeddings`; in an environment of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import tensorflow as tf

from bench.cases.tensorflow_coordinator import start_cluster
from bench.timing import alternate, tell

SIZES = {"100 thousand rows": 100_000, "10 million rows": 10_000_000}
N_IDS, FEATURES, N_STEPS = 4096, 16, 20


def step_of(strategy: Any, coordinator: Any, n_rows: int) -> Callable[[], Any]:
    """Returns a step of Adagrad by a loss of the rows of a batch, which waits for its end."""
    with strategy.scope():
        table = tf.Variable(tf.random.uniform((n_rows, FEATURES), -0.05, 0.05))
        weights = tf.Variable(tf.ones((FEATURES, 1)))
        variables = [*table.variables, *weights.variables]
        optimizer = tf.keras.optimizers.Adagrad(0.1)
        optimizer.build(variables)

    @tf.function
    def step(ids: Any, wanted: Any) -> Any:
        def update(ids: Any, wanted: Any) -> Any:
            with tf.GradientTape() as tape:
                rows = tf.nn.embedding_lookup(table, ids)
                loss = tf.reduce_mean((rows @ weights - wanted) ** 2)
            slopes = tape.gradient(loss, variables)
            optimizer.apply_gradients(zip(slopes, variables, strict=True))
            return loss

        return strategy.run(update, args=(ids, wanted))

    rng, wanted = np.random.default_rng(0), tf.ones((N_IDS, 1))

    def call() -> Any:
        ids = (rng.zipf(1.2, size=N_IDS) % n_rows).astype(np.int32)
        return coordinator.schedule(step, args=(tf.constant(ids), wanted)).fetch()

    return call


def main() -> None:
    with ExitStack() as stack:
        spec = start_cluster(stack, n_ps=2, n_workers=1)
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")
        strategy = tf.distribute.ParameterServerStrategy(
            resolver,
            variable_partitioner=tf.distribute.experimental.partitioners.FixedShardsPartitioner(2),
        )
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        calls = {
            f"TensorFlow embedding step, {name}": step_of(strategy, coordinator, n_rows)
            for name, n_rows in SIZES.items()
        }
        tell(alternate(calls, N_STEPS, rounds=3))
        sys.stdout.flush()
    os._exit(0)  # its threads would wait for the cluster


if __name__ == "__main__":
    main()
