"""Asynchronous training: two workers classify digits, their variables are on parameter servers.

    python examples/digits_on_parameter_servers.py

It starts a cluster of processes on this machine, or trains on the one that TF_CONFIG describes, and
compares the accuracy with that of the same number of steps one after the other in this process.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from digits import Images, load_images

import jflow as tf

BATCH = 64


class Classifier:
    """A network of one hidden layer with its optimizer; the variables are those of the scope."""

    def __init__(self) -> None:
        first, second = jax.random.split(jax.random.key(0))
        self.params = {
            "hidden": tf.Variable(0.1 * jax.random.normal(first, (64, 64)), name="hidden"),
            "hidden_bias": tf.Variable(jnp.zeros(64), name="hidden_bias"),
            "out": tf.Variable(0.1 * jax.random.normal(second, (64, 10)), name="out"),
            "out_bias": tf.Variable(jnp.zeros(10), name="out_bias"),
        }
        self.optimizer = tf.train.Optimizer(optax.adam(2e-3))
        self.optimizer.build([*self.params.values()])

    def update(self, images: Images) -> Any:
        """Makes a training step; returns the loss. For use in a function."""
        loss, grads = tf.value_and_grad(loss_of)(self.params, images)
        pairs = [(grads[name], variable) for name, variable in self.params.items()]
        self.optimizer.apply_gradients(pairs)
        return loss

    def accuracy(self, images: Images) -> float:
        """The share of images whose digit is recognized."""
        params = {name: variable.numpy() for name, variable in self.params.items()}
        found = np.argmax(logits_of(params, images.pixels), axis=1)
        return float(np.mean(found == images.digits))


def logits_of(params: Any, pixels: Any) -> Any:
    hidden = jax.nn.relu(pixels @ params["hidden"] + params["hidden_bias"])
    return hidden @ params["out"] + params["out_bias"]


def loss_of(params: Any, images: Images) -> Any:
    logits = logits_of(params, images.pixels)
    return optax.softmax_cross_entropy_with_integer_labels(logits, images.digits).mean()


def batches(images: Images, n_shards: int = 1, shard: int = 0) -> tf.data.Dataset:
    """Batches without end; those of different shards have different images."""
    numbers = tf.data.Dataset.range(len(images.digits)).shard(n_shards, shard)
    chosen = numbers.shuffle(seed=shard).repeat().batch(BATCH, drop_remainder=True)
    return chosen.map(lambda rows: (images.pixels[rows], images.digits[rows]))


def train_one_by_one(images: Images, n_steps: int) -> Classifier:
    """Trains in this process."""
    model = Classifier()
    step = tf.function(lambda pixels, digits: model.update(Images(pixels, digits)))
    for _, (pixels, digits) in zip(range(n_steps), batches(images), strict=False):
        step(pixels, digits)
    return model


def train_on_workers(
    strategy: tf.distribute.ParameterServerStrategy,
    images: Images,
    n_steps: int,
    show: Callable[[str], None] = print,
) -> Classifier:
    """Trains on the workers of a cluster, which do not wait for each other."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = Classifier()

    def make_batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
        return batches(images, context.num_input_pipelines, context.input_pipeline_id)

    @tf.function
    def step(iterator: Any) -> Any:
        return strategy.run(lambda batch: model.update(Images(*batch)), args=(next(iterator),))

    iterator = iter(
        coordinator.create_per_worker_dataset(
            lambda: strategy.distribute_datasets_from_function(make_batches)
        )
    )
    losses = [coordinator.schedule(step, args=(iterator,)) for _ in range(n_steps)]
    coordinator.join()
    show(
        f"loss of the first step {losses[0].fetch():.3f}, of the last one {losses[-1].fetch():.3f}"
    )
    show(f"steps {int(model.optimizer.iterations.numpy())}")
    coordinator.close()
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    n_steps = parser.parse_args().steps
    trained, tested = load_images()
    with tf.connect():
        expected = train_one_by_one(trained, n_steps).accuracy(tested)
    print(f"accuracy of steps one after the other {expected:.3f}")
    if "TF_CONFIG" in os.environ:
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        run(tf.distribute.ParameterServerStrategy(resolver), trained, tested, n_steps)
        return
    with tf.LocalCluster(ps=1, workers=2) as cluster:
        strategy = tf.distribute.ParameterServerStrategy(cluster.cluster_spec)
        run(strategy, trained, tested, n_steps)


def run(
    strategy: tf.distribute.ParameterServerStrategy, trained: Images, tested: Images, n_steps: int
) -> None:
    model = train_on_workers(strategy, trained, n_steps)
    print(f"accuracy of steps of two workers {model.accuracy(tested):.3f}")
    strategy.close()


if __name__ == "__main__":
    main()
