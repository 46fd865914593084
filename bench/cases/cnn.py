"""A training step of a convolutional network that is cut over two workers, against `jax.jit`.

Its parameters are on the workers that use them, or on a parameter server.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jflow as tf
from bench.timing import alternate, tell

IMAGE, BATCH, FEW, N_CLASSES, RATE = (28, 28, 1), 64, 2, 10, 0.01
N_FILTERS, N_HIDDEN = (16, 32), 128
FIRST, SECOND, PS = "/job:worker/task:0", "/job:worker/task:1", "/job:ps/task:0"
TRANSPORTS = {"unix": "", "grpc": "grpc: "}
"""What their figures begin with."""


def initial() -> list[np.ndarray]:
    """Two convolutions and two dense layers."""
    random = np.random.default_rng(0)
    shapes = [
        (3, 3, IMAGE[-1], N_FILTERS[0]),
        (3, 3, *N_FILTERS),
        (7 * 7 * N_FILTERS[1], N_HIDDEN),
        (N_HIDDEN, N_CLASSES),
    ]
    return [random.normal(0, 0.05, shape).astype(np.float32) for shape in shapes]


def convolved(x: Any, kernel: Any) -> Any:
    """A convolution, and the maximum of each two by two pixels."""
    x = jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    window = (1, 2, 2, 1)
    return jax.lax.reduce_window(jax.nn.relu(x), -jnp.inf, jax.lax.max, window, window, "VALID")


def loss(weights: list[Any], images: Any, labels: Any) -> Any:
    """Convolutions on one worker, dense layers on the other; so are their derivatives."""
    with tf.device(FIRST):
        features = convolved(convolved(images, weights[0]), weights[1])
    with tf.device(SECOND):
        hidden = jax.nn.relu(features.reshape(len(images), -1) @ weights[2])
        logits = hidden @ weights[3]
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def training(devices: list[str]) -> Callable[[Any, Any], Any]:
    """A step whose parameters are on some devices, one for each."""
    weights = []
    for device, value in zip(devices, initial(), strict=True):
        with tf.device(device):
            weights.append(tf.Variable(value))

    @tf.function
    def train(images: Any, labels: Any) -> Any:
        values = [w.value() for w in weights]
        value, slopes = jax.value_and_grad(loss)(values, images, labels)
        for w, slope in zip(weights, slopes, strict=True):
            w.assign_sub(RATE * slope)
        return value

    return train


def alone(images: Any, labels: Any) -> Callable[[], Any]:
    """All that a step computes, as one program of one process."""

    @jax.jit
    def plain(weights: list[Any], images: Any, labels: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(weights, images, labels)
        return [w - RATE * s for w, s in zip(weights, slopes, strict=True)], value

    state = [jnp.asarray(value) for value in initial()]

    def train_plain() -> None:
        nonlocal state
        state, value = plain(state, images, labels)
        np.asarray(value)

    return train_plain


def main() -> None:
    """All of them, in turn with `jax.jit`; with few images most of a step is between the tasks."""
    random = np.random.default_rng(1)
    images = random.normal(size=(BATCH, *IMAGE)).astype(np.float32)
    labels = random.integers(0, N_CLASSES, BATCH).astype(np.int32)
    few = images[:FEW], labels[:FEW]
    for transport, prefix in TRANSPORTS.items():
        os.environ["JFLOW_TRANSPORT"] = transport
        with tf.LocalCluster(ps=1, workers=2) as cluster, tf.connect(cluster.target("worker", 0)):
            near = training([FIRST, FIRST, SECOND, SECOND])
            far = training([PS] * len(initial()))
            step = f"{prefix}CNN step over two workers"
            calls = {
                step: lambda train=near: np.asarray(train(images, labels)),
                f"{step} and a ps": lambda train=far: np.asarray(train(images, labels)),
                "jax.jit CNN step": alone(images, labels),
            }
            tell(alternate(calls, n=10, rounds=3))
            calls = {
                f"{step} and a ps, two images": lambda train=far: np.asarray(train(*few)),
                "jax.jit CNN step, two images": alone(*few),
            }
            tell(alternate(calls, n=30, rounds=5))


if __name__ == "__main__":
    main()
