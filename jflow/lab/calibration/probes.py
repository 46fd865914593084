"""The programs whose times tell what a kind of device does.

Most take several milliseconds of a core, so that the fixed cost of a step is little of their time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Probe:
    """A program that computes a scalar.

    Attributes:
      name: for messages.
      fun: the program.
      shapes: of its arguments, float32.
      is_quick: whether `jflow calibrate --quick` runs it.
    """

    name: str
    fun: Callable[..., Any]
    shapes: tuple[Shape, ...]
    is_quick: bool = False


def _dots(times: int) -> Callable[..., Any]:
    def fun(x: Any, w: Any) -> Any:
        for _ in range(times):
            x = x @ w
        return x[0, 0]

    return fun


def _chain(times: int, step: Callable[[Any], Any]) -> Callable[..., Any]:
    def fun(x: Any) -> Any:
        for _ in range(times):
            x = step(x)
        return x.sum()

    return fun


def _centred(x: Any) -> Any:
    """Two kernels: a reduction, and what uses its result."""
    return x - x.mean()


def _scaled(x: Any) -> Any:
    return x * 0.9 + 0.1


def _convolved(x: Any, w: Any) -> Any:
    y = jax.lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jax.nn.relu(y).sum()


def _rows(table: Any, x: Any) -> Any:
    return (table[_rows_of(table)] + x).sum()


def _scattered(table: Any, x: Any) -> Any:
    return jnp.zeros_like(table).at[_rows_of(table)].add(x)[0, 0]


def _rows_of(table: Any) -> Any:
    """Returns the same 16,384 rows each time, as a constant."""
    return np.random.default_rng(0).integers(table.shape[0], size=16_384)


def _recurrent(length: int) -> Callable[..., Any]:
    def fun(h: Any, w: Any) -> Any:
        return jax.lax.fori_loop(0, length, lambda _, h: jnp.tanh(h @ w), h).sum()

    return fun


def _perceptron(x: Any, w1: Any, w2: Any) -> Any:
    """Loss and gradient of a network of two layers."""

    def loss(weights: Any) -> Any:
        first, second = weights
        y = jax.nn.relu(x @ first) @ second
        return -jax.nn.log_softmax(y)[:, 0].mean()

    value, (d1, d2) = jax.value_and_grad(loss)((w1, w2))
    return value + d1[0, 0] + d2[0, 0]


def _attention(x: Any, w: Any) -> Any:
    q, k, v = (x @ w, x @ w.T, x)
    weights = jax.nn.softmax(q @ k.T / jnp.sqrt(1.0 * x.shape[-1]))
    return (weights @ v).sum()


def _normalized(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)


PROBES: tuple[Probe, ...] = (
    Probe("product 32, 64 times", _dots(64), ((32, 32), (32, 32))),
    Probe("product 128, 32 times", _dots(32), ((128, 128), (128, 128)), is_quick=True),
    Probe("product 256, 12 times", _dots(12), ((256, 256), (256, 256))),
    Probe("product 512, 3 times", _dots(3), ((512, 512), (512, 512)), is_quick=True),
    Probe("product 384, 4 times", _dots(4), ((384, 384), (384, 384))),
    Probe("product 8x1024x1024, 6 times", _dots(6), ((8, 1024), (1024, 1024))),
    Probe("product 128x512x512, 8 times", _dots(8), ((128, 512), (512, 512))),
    Probe("convolution 16", _convolved, ((32, 32, 32, 16), (3, 3, 16, 32)), is_quick=True),
    Probe("convolution 64", _convolved, ((16, 16, 16, 64), (3, 3, 64, 64))),
    Probe("convolution 1x1", _convolved, ((16, 32, 32, 64), (1, 1, 64, 64))),
    Probe("sums of 4k, 64 times", _chain(64, _centred), ((4096,),), is_quick=True),
    Probe("sums of 100k, 16 times", _chain(16, _centred), ((100_000,),)),
    Probe("sums of 1M, 4 times", _chain(4, _centred), ((1_000_000,),), is_quick=True),
    Probe("polynomials of 200k", _chain(48, _scaled), ((200_000,),)),
    Probe("polynomials of 1M", _chain(12, _scaled), ((1_000_000,),), is_quick=True),
    Probe("tanh of 200k, 16 times", _chain(16, jnp.tanh), ((200_000,),), is_quick=True),
    Probe("exp of 1M, 3 times", _chain(3, jnp.exp), ((1_000_000,),)),
    Probe("square roots of 200k", _chain(16, lambda x: 1.0 / jnp.sqrt(x * x + 1.0)), ((200_000,),)),
    Probe("softmax of 512x512", _chain(4, jax.nn.softmax), ((512, 512),)),
    Probe("normalization of 512x256", _chain(4, _normalized), ((512, 256),)),
    Probe("rows of a table", _rows, ((50_000, 64), (1, 64))),
    Probe("sums into a table", _scattered, ((10_000, 64), (1, 64))),
    Probe("loop of 800", _recurrent(800), ((16, 64), (64, 64)), is_quick=True),
    Probe("loop of 8000", _recurrent(8000), ((1, 8), (8, 8))),
    Probe("perceptron", _perceptron, ((256, 512), (512, 512), (512, 10)), is_quick=True),
    Probe("small perceptron", _perceptron, ((32, 64), (64, 64), (64, 10))),
    Probe("attention", _attention, ((512, 256), (256, 256))),
    Probe("small attention", _attention, ((64, 64), (64, 64))),
    Probe("a number", _chain(1, lambda x: x + 1.0), ((4,),), is_quick=True),
)
