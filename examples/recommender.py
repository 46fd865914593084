"""A wide and deep recommender: tables of embeddings on two parameter servers, two workers.

    pip download --no-deps recbole==1.2.1
    python examples/recommender.py --data recbole-1.2.1-py3-none-any.whl

It predicts ratings of MovieLens 100K (F. M. Harper and J. A. Konstan, 2015, GroupLens), which may
be used for research and not be passed on; the package RecBole ships it. Without `--data` it trains
on ratings that it makes up.
"""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jflow as tf

BATCH = 128
N_GENRES, MOST_GENRES = 64, 4
N_ROWS, N_CROSSED, FEATURES = 4096, 8192, 16


class Ratings(NamedTuple):
    """Ratings of items by users.

    Attributes:
      users, items: rows of tables, i32[n].
      genres: rows of a table, i32[n, MOST_GENRES]; -1 where an item has fewer.
      crossed: a row for each pair of what a user does and a genre of the item, as `genres`.
      stars: f32[n], from 1 to 5.
    """

    users: Any
    items: Any
    genres: Any
    crossed: Any
    stars: Any

    def rows(self, which: Any) -> Ratings:
        return Ratings(*(column[which] for column in self))


def read_ratings(wheel: Path) -> Ratings:
    """Reads MovieLens 100K from the package that ships it; keys become rows by hashing."""
    with zipfile.ZipFile(wheel) as archive:

        def table(name: str) -> list[list[str]]:
            text = archive.read(f"recbole/dataset_example/ml-100k/ml-100k.{name}").decode()
            return [line.split("\t") for line in text.splitlines()[1:]]

        jobs = {user: f"{gender} {job}" for user, _, gender, job, _ in table("user")}
        genres = {item: words.split()[:MOST_GENRES] for item, _, _, words in table("item")}
        inter = table("inter")
    users, items, stars = ([row[column] for row in inter] for column in range(3))
    crossed = [
        [f"{jobs[u]} {word}" for word in genres[i]] for u, i in zip(users, items, strict=True)
    ]
    return Ratings(
        tf.nn.hash_ids(users, N_ROWS),
        tf.nn.hash_ids(items, N_ROWS),
        bags([genres[item] for item in items], N_GENRES),
        bags(crossed, N_CROSSED),
        np.float32(stars),
    )


def bags(words: list[list[str]], n_rows: int) -> Any:
    """Rows of words, with -1 where there are fewer than MOST_GENRES."""
    rows = np.full((len(words), MOST_GENRES), -1, np.int32)
    for number, own in enumerate(words):
        rows[number, : len(own)] = tf.nn.hash_ids(own, n_rows) if own else []
    return rows


def made_up_ratings(n: int = 20_000) -> Ratings:
    """Ratings by more or less severe users, of more or less good items."""
    rng = np.random.default_rng(0)
    taste, quality = rng.normal(size=200), rng.normal(size=100)
    users, items = rng.integers(0, 200, n), rng.zipf(1.3, n) % 100
    stars = np.clip(3 + taste[users] + quality[items] + 0.3 * rng.normal(size=n), 1, 5)
    genres = np.full((n, MOST_GENRES), -1, np.int32)
    genres[:, 0] = items % 7
    return Ratings(np.int32(users), np.int32(items), genres, genres, np.float32(stars))


@dataclass
class Recommender:
    """A linear model of rare pairs beside a network of dense features (Cheng et al., 2016)."""

    wide: dict[str, tf.nn.Embedding]
    deep: dict[str, tf.nn.Embedding]
    network: Any

    @classmethod
    def make(cls) -> Recommender:
        """Makes the variables, in the scope of a strategy."""
        sizes = {"users": N_ROWS, "items": N_ROWS, "genres": N_GENRES}
        first, second = jax.random.split(jax.random.key(0))
        layers = {
            "hidden": 0.1 * jax.random.normal(first, (3 * FEATURES, 32)),
            "out": 0.1 * jax.random.normal(second, (32,)),
            "bias": jnp.float32(3.5),
        }
        return cls(
            {
                name: tf.nn.Embedding(size, 1, f"wide_{name}", initializer=tf.initializers.zeros())
                for name, size in {"users": N_ROWS, "items": N_ROWS, "crossed": N_CROSSED}.items()
            },
            {name: tf.nn.Embedding(n, FEATURES, f"deep_{name}") for name, n in sizes.items()},
            tf.bind(layers, "network"),
        )

    @property
    def variables(self) -> list[Any]:
        tables = [*self.wide.values(), *self.deep.values()]
        return [*(each.table for each in tables), *self.network.trainable_variables]

    def __call__(self, ratings: Ratings) -> Any:
        """Predicts the stars, f32[n]. For use in a function."""
        wide = (
            self.wide["users"](ratings.users)
            + self.wide["items"](ratings.items)
            + self.wide["crossed"](ratings.crossed, combiner="sqrtn")
        )
        users, items = self.deep["users"](ratings.users), self.deep["items"](ratings.items)
        genres = self.deep["genres"](ratings.genres, combiner="mean")
        layers = self.network.value()
        dense = jnp.concatenate([users * items, items, genres], 1)
        deep = jax.nn.relu(dense @ layers["hidden"]) @ layers["out"]
        return wide[:, 0] + deep + layers["bias"]


def train(
    coordinator: tf.ClusterCoordinator,
    trained: Ratings,
    tested: Ratings,
    n_epochs: int,
    path: Path | None = None,
    show: Callable[[str], None] = print,
) -> float:
    """Trains on the workers of a coordinator; returns the error of what is tested, in stars."""
    with coordinator.strategy.scope():
        model = Recommender.make()
        optimizer = tf.train.Optimizer(optax.adagrad(0.05))
        optimizer.build(model.variables)

    @tf.function
    def step(batch: Ratings) -> Any:
        def loss() -> Any:
            return jnp.mean((model(batch) - batch.stars) ** 2)

        optimizer.minimize(loss, var_list=model.variables)
        return loss()

    @tf.function
    def errors(batch: Ratings) -> Any:
        return jnp.mean((jnp.clip(model(batch), 1, 5) - batch.stars) ** 2)

    for epoch in range(n_epochs):
        order = np.random.default_rng(epoch).permutation(len(trained.stars))
        batches = order[: len(order) // BATCH * BATCH].reshape(-1, BATCH)
        losses = [coordinator.schedule(step, args=(trained.rows(rows),)) for rows in batches]
        coordinator.join()
        error = float(np.sqrt(coordinator.schedule(errors, args=(tested,)).fetch()))
        show(f"epoch {epoch}: loss {np.mean(coordinator.fetch(losses)):.3f}, error {error:.3f}")
        if path is not None:
            tables = {"wide": model.wide, "deep": model.deep}
            with coordinator.strategy.scope():
                state = {**tables, "network": model.network, "optimizer": optimizer}
                tf.checkpoint.save(path, state)
    return error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=None, help="the wheel of RecBole")
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    ratings = read_ratings(options.data) if options.data else made_up_ratings()
    order = np.random.default_rng(0).permutation(len(ratings.stars))
    n_tested = len(order) // 10
    trained, tested = ratings.rows(order[n_tested:]), ratings.rows(order[:n_tested])
    mean = float(np.sqrt(np.mean((tested.stars - trained.stars.mean()) ** 2)))
    print(f"error of the mean {mean:.3f}")
    shards = tf.distribute.experimental.partitioners.MinSizePartitioner(1 << 10, max_shards=2)
    with tf.LocalCluster(ps=2, workers=2) as cluster:
        strategy = tf.distribute.ParameterServerStrategy(
            cluster.cluster_spec, variable_partitioner=shards
        )
        with tf.ClusterCoordinator(strategy) as coordinator:
            train(coordinator, trained, tested, options.epochs)
        strategy.close()


if __name__ == "__main__":
    main()
