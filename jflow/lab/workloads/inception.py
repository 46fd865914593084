"""W4: a convolutional network of blocks with four uneven branches.

Szegedy et al., "Going deeper with convolutions", 2015.
"""

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
    joined,
    labels,
)

_CLASSES = 10


@dataclass(frozen=True)
class InceptionScale:
    """The size: blocks, image height and width, channels of the widest branch, batch."""

    blocks: int
    image: int
    channels: int
    batch: int


def _convolved(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Returns a convolution of images f32[batch, height, width, channels], followed by ReLU."""
    numbers = ("NHWC", "HWIO", "NHWC")
    x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)
    return jax.nn.relu(x)


def _pooled(x: jax.Array) -> jax.Array:
    """Returns the mean of each three by three pixels."""
    total: jax.Array = jax.lax.reduce_window(
        x, 0.0, jax.lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME"
    )
    return total / 9.0


def _halved(x: jax.Array) -> jax.Array:
    """Returns the mean of each two by two pixels."""
    batch, height, width, channels = x.shape
    return x.reshape(batch, height // 2, 2, width // 2, 2, channels).mean((2, 4))


def _loss(x: jax.Array, weights: jax.Array, classes: jax.Array) -> jax.Array:
    return cross_entropy(x.mean((1, 2)) @ weights, classes)


class _Kernels:
    """Makes convolutions with kernels at one position of the servers."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self.variables: list[tf.Variable] = []

    def convolve(self, x: tf.Tensor, at: float, size: int, n_out: int) -> tf.Tensor:
        shape = (size, size, x.shape[-1], n_out)
        kernel = self._servers.weights(at, f"kernel_{len(self.variables)}", *shape)
        self.variables.append(kernel)
        convolved: tf.Tensor = apply(_convolved, x, kernel)
        return convolved


def _block(x: tf.Tensor, kernels: _Kernels, channels: int, blocks: tuple[int, int]) -> tf.Tensor:
    """Four branches, whose kernels are at different positions."""
    widest, narrow = channels, max(channels // 4, 1)
    branches = [
        kernels.convolve(x, 0.0, 1, narrow),
        kernels.convolve(kernels.convolve(x, 0.0, 1, widest // 2), 0.0, 3, widest),
        kernels.convolve(kernels.convolve(x, 0.5, 1, narrow), 0.5, 5, widest // 2),
        kernels.convolve(apply(_pooled, x), 0.5, 1, narrow),
    ]
    block: tf.Tensor = apply(joined, *branches)
    number, n_blocks = blocks
    return apply(_halved, block) if number == n_blocks // 2 else block


def _graph(scale: InceptionScale, servers: Servers) -> tuple[tf.Tensor, tf.Operation]:
    kernels = _Kernels(servers)
    x = data(0, scale.batch, scale.image, scale.image, 3)
    x = kernels.convolve(x, 0.0, 3, max(scale.channels // 4, 1))
    for block in range(scale.blocks):
        with tf.name_scope(f"block_{block}"):
            x = _block(x, kernels, scale.channels, (block, scale.blocks))
    last = servers.weights(0.0, "last", x.shape[-1], _CLASSES)
    loss = apply(_loss, x, last, labels(1, _CLASSES, scale.batch))
    return descend(loss, [*kernels.variables, last], 0.05)


INCEPTION = Workload(
    "inception",
    "W4: a convolutional network of blocks with four uneven branches; branch parallelism",
    {
        "small": InceptionScale(blocks=1, image=8, channels=8, batch=2),
        "cpu": InceptionScale(blocks=4, image=32, channels=64, batch=16),
        "large": InceptionScale(blocks=11, image=64, channels=256, batch=64),
    },
    _graph,
    compiles_for_minutes=True,
)
"""The workload."""
