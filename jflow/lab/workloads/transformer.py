"""W5: the encoder of a transformer, with a graph operation for each head.

Vaswani et al., "Attention is all you need", 2017.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

import jflow as tf
from jflow.lab.workloads.workload import Servers, Workload, apply, data, descend


@dataclass(frozen=True)
class TransformerScale:
    """The size: layers, heads, width of the model, tokens of a sequence, sequences of a batch."""

    layers: int
    heads: int
    width: int
    tokens: int
    batch: int


def _head(x: jax.Array, weights: jax.Array) -> jax.Array:
    """Attention of one head; x f32[batch, tokens, width], weights f32[3, width, width / heads]."""
    query, key, value = jnp.einsum("btd,kdh->kbth", x, weights)
    scores = jnp.einsum("bth,bsh->bts", query, key) / query.shape[-1] ** 0.5
    return jnp.einsum("bts,bsh->bth", jax.nn.softmax(scores), value)


def _normalized(x: jax.Array) -> jax.Array:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)


def _mixed(x: jax.Array, weights: jax.Array, *heads: jax.Array) -> jax.Array:
    return _normalized(x + jnp.concatenate(heads, axis=-1) @ weights)


def _fed_forward(x: jax.Array, weights: jax.Array, back: jax.Array) -> jax.Array:
    return _normalized(x + jax.nn.gelu(x @ weights) @ back)


def _error(x: jax.Array, wanted: jax.Array) -> jax.Array:
    return jnp.mean((x - wanted) ** 2)


def _graph(scale: TransformerScale, servers: Servers) -> tuple[tf.Tensor, tf.Operation]:
    width, n_heads = scale.width, scale.heads
    shape = scale.batch, scale.tokens, width
    x, variables = data(0, *shape), []
    for layer in range(scale.layers):
        at = layer / scale.layers
        with tf.name_scope(f"layer_{layer}"):
            of_heads = [
                servers.weights(at, f"head_{i}", 3, width, width // n_heads) for i in range(n_heads)
            ]
            mixing = servers.weights(at, "mixing", width, width)
            wide = servers.weights(at, "wide", width, 4 * width)
            back = servers.weights(at, "back", 4 * width, width)
            x = apply(_mixed, x, mixing, *(apply(_head, x, weights) for weights in of_heads))
            x = apply(_fed_forward, x, wide, back)
        variables += [*of_heads, mixing, wide, back]
    return descend(apply(_error, x, data(1, *shape)), variables, 0.01)


TRANSFORMER = Workload(
    "transformer",
    "W5: the encoder of a transformer with an operation for each head; nearly a chain",
    {
        "small": TransformerScale(layers=1, heads=2, width=8, tokens=4, batch=2),
        "cpu": TransformerScale(layers=4, heads=4, width=128, tokens=64, batch=8),
        "large": TransformerScale(layers=24, heads=16, width=1024, tokens=512, batch=8),
    },
    _graph,
    compiles_for_minutes=True,
)
"""The workload."""
