"""A module of Equinox, trained by two workers that do not wait for each other.

    python examples/train_equinox.py

It needs Equinox: `pip install equinox`. The trained module is written by Equinox itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax
from digits import Images, load_images

import jflow as tf

BATCH = 64


def initial_model() -> eqx.nn.MLP:
    return eqx.nn.MLP(64, 10, width_size=64, depth=2, key=jax.random.key(0))


def loss_of(model: eqx.nn.MLP, pixels: Any, digits: Any) -> Any:
    logits = jax.vmap(model)(pixels)
    return optax.softmax_cross_entropy_with_integer_labels(logits, digits).mean()


def train(
    coordinator: tf.ClusterCoordinator, images: Images, n_steps: int, show: Callable[..., Any]
) -> eqx.nn.MLP:
    """Trains on the workers of a coordinator; returns the module."""
    with coordinator.strategy.scope():
        state = tf.bind(initial_model(), "digits")
        optimizer = tf.train.Optimizer(optax.adamw(2e-3))
        optimizer.build(state.trainable_variables)

    @tf.function
    def step(pixels: Any, digits: Any) -> Any:
        loss, grads = tf.value_and_grad(loss_of)(state, pixels, digits)
        optimizer.apply_gradients(state.pairs(grads))
        return loss

    rng = np.random.default_rng(0)
    losses = []
    for _ in range(n_steps):
        rows = rng.choice(len(images.digits), BATCH)
        batch = images.pixels[rows], images.digits[rows]
        losses.append(coordinator.schedule(step, args=batch))
    coordinator.join()
    show(f"loss of the first step {losses[0].fetch():.3f}, of the last {losses[-1].fetch():.3f}")
    return state.value()


def accuracy(model: eqx.nn.MLP, images: Images) -> float:
    """The share of images whose digit is recognized."""
    found = np.argmax(jax.vmap(model)(images.pixels), axis=1)
    return float(np.mean(found == images.digits))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--path", type=Path, default=None, help="file to write the model to")
    options = parser.parse_args()
    trained, tested = load_images()
    with tf.LocalCluster(ps=1, workers=2) as cluster:
        strategy = tf.distribute.ParameterServerStrategy(cluster.cluster_spec)
        with tf.ClusterCoordinator(strategy) as coordinator:
            model = train(coordinator, trained, options.steps, print)
        strategy.close()
    if options.path is not None:
        eqx.tree_serialise_leaves(options.path, model)
        model = eqx.tree_deserialise_leaves(options.path, initial_model())
    print(f"accuracy {accuracy(model, tested):.3f}")


if __name__ == "__main__":
    main()
