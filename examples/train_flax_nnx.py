"""A module of Flax NNX, trained by two workers that do not wait for each other.

    python examples/train_flax_nnx.py

Each step reads the module, with its statistics and random state, from the parameter servers. Its
gradients are applied there; the statistics and the random state are written beside them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import optax
from digits import Images, load_images
from flax import nnx

import jflow as tf

BATCH = 64


class Network(nnx.Module):
    """A small convolutional network: float32[n, 64] pixels to float32[n, 10] logits."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.conv = nnx.Conv(1, 16, kernel_size=(3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(16, momentum=0.9, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.out = nnx.Linear(16 * 16, 10, rngs=rngs)

    def __call__(self, pixels: Any) -> Any:
        x = nnx.relu(self.norm(self.conv(pixels.reshape(-1, 8, 8, 1))))
        x = nnx.avg_pool(x, (2, 2), strides=(2, 2)).reshape(len(pixels), -1)
        return self.out(self.dropout(x))


def train(
    coordinator: tf.ClusterCoordinator, images: Images, n_steps: int, show: Callable[..., Any]
) -> Network:
    """Trains on the workers of a coordinator; returns the module."""
    with coordinator.strategy.scope():
        state = tf.bind(Network(nnx.Rngs(0)), "digits")
        optimizer = tf.train.Optimizer(optax.adam(2e-3))
        optimizer.build(state.trainable_variables)

    @tf.function
    def step(pixels: Any, digits: Any) -> Any:
        def loss_of(network: Network) -> Any:
            logits = network(pixels)
            loss = optax.softmax_cross_entropy_with_integer_labels(logits, digits).mean()
            return loss, network

        (loss, network), grads = tf.value_and_grad(loss_of, has_aux=True)(state)
        optimizer.apply_gradients(state.pairs(grads))
        # Parameters belong to the optimizer: another worker may have changed them meanwhile.
        state.assign(nnx.state(network, (nnx.BatchStat, nnx.RngState)))
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


def accuracy(network: Network, images: Images) -> float:
    """The share of images whose digit is recognized."""
    network.eval()
    return float(np.mean(np.argmax(network(images.pixels), axis=1) == images.digits))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    trained, tested = load_images()
    with tf.LocalCluster(ps=1, workers=2) as cluster:
        strategy = tf.distribute.ParameterServerStrategy(cluster.cluster_spec)
        with tf.ClusterCoordinator(strategy) as coordinator:
            network = train(coordinator, trained, parser.parse_args().steps, print)
        strategy.close()
    print(f"accuracy {accuracy(network, tested):.3f}")


if __name__ == "__main__":
    main()
