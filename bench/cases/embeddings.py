"""A step on a table of embeddings in two shards: of ten million rows and of a hundred thousand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax

import jflow as tf
from bench.timing import alternate, tell

SIZES = {"100 thousand rows": 100_000, "10 million rows": 10_000_000}
N_IDS, FEATURES, N_STEPS = 4096, 16, 50


def ids_of(rng: np.random.Generator, n_rows: int) -> Any:
    """Ids of a batch, i32[N_IDS], of which few are frequent."""
    return (rng.zipf(1.2, size=N_IDS) % n_rows).astype(np.int32)


def step_of(coordinator: tf.ClusterCoordinator, name: str, n_rows: int) -> Callable[[], Any]:
    """Returns a step of Adagrad by a loss of the rows of a batch, which waits for its end."""
    with coordinator.strategy.scope():
        table = tf.nn.Embedding(n_rows, FEATURES, name.replace(" ", "_"))
        weights = tf.Variable(np.ones((FEATURES, 1), np.float32), name=f"{n_rows}_weights")
        optimizer = tf.train.Optimizer(optax.adagrad(0.1), name=f"adagrad_{n_rows}")
        optimizer.build([table.table, weights])

    @tf.function
    def step(ids: Any, wanted: Any) -> Any:
        def loss() -> Any:
            return jnp.mean((table(ids) @ weights.value() - wanted) ** 2)

        return optimizer.minimize(loss, var_list=[table.table, weights])

    rng, wanted = np.random.default_rng(0), np.ones((N_IDS, 1), np.float32)
    return lambda: coordinator.schedule(step, args=(ids_of(rng, n_rows), wanted)).fetch()


def main() -> None:
    shards = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
    with tf.LocalCluster(ps=2, workers=1) as cluster:
        strategy = tf.distribute.ParameterServerStrategy(
            cluster.cluster_spec, variable_partitioner=shards
        )
        with tf.ClusterCoordinator(strategy) as coordinator:
            calls = {
                f"embedding step, {name}": step_of(coordinator, name, n_rows)
                for name, n_rows in SIZES.items()
            }
            tell(alternate(calls, N_STEPS, rounds=5))
        strategy.close()


if __name__ == "__main__":
    main()
