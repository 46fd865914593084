"""A function that nests all that could say who wrote it, and the digests of its programs.

`test_digests.py` reads this file, runs copies of it from elsewhere and in other processes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp

import jflow as tf
from jflow.compiler.pipeline import pipeline
from tests.clusters import in_process


@jax.custom_jvp
def bent(x: Any) -> Any:
    return jnp.tanh(x) * 0.5


bent.defjvp(lambda primals, tangents: (bent(*primals), tangents[0] * jnp.cos(*primals)))


@jax.jit
def inner(x: Any) -> Any:
    return jax.jit(lambda y: bent(y) + 1)(x) * 2


def whole(x: Any, factor: float = 2.0) -> Any:
    """A loop, a branch, a checkpoint and a gradient."""

    def step(carry: Any, row: Any) -> Any:
        return inner(carry + row) * factor, jnp.sum(carry)

    def total(y: Any) -> Any:
        with jax.named_scope("a name that says nothing"):
            carried, sums = jax.lax.scan(jax.checkpoint(step), y[0], y)
        return jnp.sum(jax.lax.cond(sums[0] > 0, inner, jnp.sin, carried))

    return jax.value_and_grad(total)(x)


def digests(fun: Callable[..., Any] = whole, device: str = "", factor: float = 2.0) -> list[str]:
    """The digests of the programs that a function is shipped as."""
    found: list[str] = []
    original = pipeline.digest_of

    def digest_of(array: Any) -> str:
        found.append(original(array))
        return found[-1]

    def call(x: Any) -> Any:
        with tf.device(device) if device else nullcontext():
            return fun(x, factor)

    patch = mock.patch.object(pipeline, "digest_of", digest_of)
    with in_process() as backend, tf.connect(backend.targets[0]), patch:
        tf.function(call)(jnp.ones((2, 3)))
    # The server takes them too, of what it got.
    return sorted(set(found))
