"""Multilayer perceptrons: W1, and a classifier of handwritten digits."""

from __future__ import annotations

from dataclasses import dataclass

import jax

import jflow as tf
from jflow.lab.workloads.workload import (
    Servers,
    Workload,
    apply,
    cross_entropy,
    data,
    descend,
    error,
    labels,
    layer,
    mean,
    update,
)


@dataclass(frozen=True)
class MlpScale:
    """The size of the model: square layers, and a batch of its own for each replica."""

    replicas: int
    layers: int
    width: int
    batch: int


def _graph(scale: MlpScale, servers: Servers) -> tuple[tf.Tensor, tf.Operation]:
    n, width = scale.layers, scale.width
    weights = [servers.weights(i / n, f"weights_{i}", width, width) for i in range(n)]
    biases = [servers.zeros(i / n, f"bias_{i}", width) for i in range(n)]
    losses, slopes = [], []
    for replica in range(scale.replicas):
        with tf.name_scope(f"replica_{replica}"):
            x = data(2 * replica, scale.batch, width)
            wanted = data(2 * replica + 1, scale.batch, width)
            for parameters in zip(weights, biases, strict=True):
                x = apply(layer, x, *parameters)
            losses.append(apply(error, x, wanted))
            slopes.append(tf.gradients(losses[-1], [*weights, *biases]))
    averages = [mean(of_replicas) for of_replicas in zip(*slopes, strict=True)]
    return mean(losses), update([*weights, *biases], averages, 0.1)


MLP = Workload(
    "mlp",
    "W1: replicas of an MLP with shared parameters; what parameter servers receive and send",
    {
        "small": MlpScale(replicas=2, layers=1, width=16, batch=8),
        "cpu": MlpScale(replicas=2, layers=4, width=512, batch=128),
        "large": MlpScale(replicas=6, layers=4, width=512, batch=128),
    },
    _graph,
)
"""The workload."""


_CLASSES = 10


@dataclass(frozen=True)
class DigitsScale:
    """The size: pixels of an image, neurons of the hidden layer, batch."""

    pixels: int
    hidden: int
    batch: int


def _class_loss(x: jax.Array, weights: jax.Array, bias: jax.Array, classes: jax.Array) -> jax.Array:
    return cross_entropy(x @ weights + bias, classes)


def _digits_graph(scale: DigitsScale, servers: Servers) -> tuple[tf.Tensor, tf.Operation]:
    hidden = (
        servers.weights(0.0, "hidden_w", scale.pixels, scale.hidden),
        servers.zeros(0.0, "hidden_b", scale.hidden),
    )
    output = (
        servers.weights(0.5, "output_w", scale.hidden, _CLASSES),
        servers.zeros(0.5, "output_b", _CLASSES),
    )
    x = apply(layer, data(0, scale.batch, scale.pixels), *hidden)
    loss = apply(_class_loss, x, *output, labels(1, _CLASSES, scale.batch))
    return descend(loss, [*hidden, *output], 0.5)


DIGITS = Workload(
    "digits",
    "a classifier of handwritten digits; so small that no second device is worth a message",
    {
        "small": DigitsScale(pixels=64, hidden=16, batch=8),
        "cpu": DigitsScale(pixels=64, hidden=64, batch=64),
        "large": DigitsScale(pixels=784, hidden=1024, batch=1024),
    },
    _digits_graph,
)
"""The workload."""
