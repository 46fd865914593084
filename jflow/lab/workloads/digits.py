"""The classifier of `make demo`: small enough that a message takes longer than the step."""

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
    labels,
)

_CLASSES = 10


@dataclass(frozen=True)
class DigitsScale:
    """The size: pixels of an image, neurons of the hidden layer, batch."""

    pixels: int
    hidden: int
    batch: int


def _layer(x: jax.Array, weights: jax.Array, bias: jax.Array) -> jax.Array:
    return jax.nn.relu(x @ weights + bias)


def _loss(x: jax.Array, weights: jax.Array, bias: jax.Array, classes: jax.Array) -> jax.Array:
    return cross_entropy(x @ weights + bias, classes)


def _graph(scale: DigitsScale, servers: Servers) -> tuple[tf.Tensor, tf.Operation]:
    hidden = (
        servers.weights(0.0, "hidden_w", scale.pixels, scale.hidden),
        servers.zeros(0.0, "hidden_b", scale.hidden),
    )
    output = (
        servers.weights(0.5, "output_w", scale.hidden, _CLASSES),
        servers.zeros(0.5, "output_b", _CLASSES),
    )
    x = apply(_layer, data(0, scale.batch, scale.pixels), *hidden)
    loss = apply(_loss, x, *output, labels(1, _CLASSES, scale.batch))
    return descend(loss, [*hidden, *output], 0.5)


DIGITS = Workload(
    "digits",
    "the classifier of `make demo`; so small that no second device is worth a message",
    {
        "small": DigitsScale(pixels=64, hidden=16, batch=8),
        "cpu": DigitsScale(pixels=64, hidden=64, batch=64),
        "large": DigitsScale(pixels=784, hidden=1024, batch=1024),
    },
    _graph,
)
"""The workload."""
