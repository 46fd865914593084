"""W3: sequence to sequence with attention, unrolled in time.

LSTM: Hochreiter and Schmidhuber, "Long short-term memory", 1997; attention by dot products: Luong,
Pham and Manning, "Effective approaches to attention-based neural machine translation", 2015.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import jflow as tf
from jflow.lab.workloads.workload import (
    Servers,
    Workload,
    apply,
    cross_entropy,
    data,
    descend,
    labels,
    mean,
)


@dataclass(frozen=True)
class Seq2SeqScale:
    """The size: layers of encoder and decoder each, time steps, hidden width, batch, vocabulary."""

    layers: int
    steps: int
    hidden: int
    batch: int
    words: int


def _cell(
    x: jax.Array, h: jax.Array, c: jax.Array, weights: jax.Array, bias: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """One step of an LSTM; weights f32[2 hidden, 4 hidden]."""
    i, f, g, o = jnp.split(jnp.concatenate([x, h], axis=1) @ weights + bias, 4, axis=1)
    c = jax.nn.sigmoid(f + 1.0) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def _attended(h: jax.Array, memory: jax.Array, weights: jax.Array) -> jax.Array:
    """Combines h with its attention over memory f32[time, batch, hidden]."""
    scores = jax.nn.softmax(jnp.einsum("bh,tbh->bt", h, memory) / h.shape[1] ** 0.5)
    context = jnp.einsum("bt,tbh->bh", scores, memory)
    return jnp.tanh(jnp.concatenate([h, context], axis=1) @ weights)


def _loss(h: jax.Array, weights: jax.Array, words: jax.Array) -> jax.Array:
    return cross_entropy(h @ weights, words)


def _stacked(*rows: jax.Array) -> jax.Array:
    return jnp.stack(rows)


def _zeros(batch: int, hidden: int) -> jax.Array:
    return jnp.zeros((batch, hidden))


class _Layers:
    """The layers of an encoder or decoder, and their state."""

    def __init__(self, scale: Seq2SeqScale, servers: Servers, name: str, first: float) -> None:
        n, hidden = scale.layers, scale.hidden
        positions = [first + i / (2 * n) for i in range(n)]
        self.weights = [
            (
                servers.weights(at, f"{name}_weights_{i}", 2 * hidden, 4 * hidden),
                servers.zeros(at, f"{name}_bias_{i}", 4 * hidden),
            )
            for i, at in enumerate(positions)
        ]
        zeros = apply(_zeros, scale.batch, hidden)
        self.states: list[tuple[Any, Any]] = [(zeros, zeros)] * n

    def step(self, x: Any) -> Any:
        """Takes the input of a time step; the output of the last layer."""
        for i, weights in enumerate(self.weights):
            self.states[i] = apply(_cell, x, *self.states[i], *weights)
            x = self.states[i][0]
        return x


def _graph(scale: Seq2SeqScale, servers: Servers) -> tuple[tf.Tensor, tf.Operation]:
    hidden, batch = scale.hidden, scale.batch
    encoder = _Layers(scale, servers, "encoder", 0.0)
    decoder = _Layers(scale, servers, "decoder", 0.5)
    attention = servers.weights(0.99, "attention", 2 * hidden, hidden)
    output = servers.weights(0.99, "output", hidden, scale.words)
    memory = apply(_stacked, *(encoder.step(data(t, batch, hidden)) for t in range(scale.steps)))
    decoder.states = [*encoder.states]
    losses = []
    for t in range(scale.steps):
        h = decoder.step(data(1000 + t, batch, hidden))
        h = apply(_attended, h, memory, attention)
        losses.append(apply(_loss, h, output, labels(t, scale.words, batch)))
    weights = [each for layers in (encoder, decoder) for pair in layers.weights for each in pair]
    return descend(mean(losses), [*weights, attention, output], 0.1)


SEQ2SEQ = Workload(
    "seq2seq",
    "W3: LSTM sequence to sequence with attention, unrolled; a wavefront, a long critical path",
    {
        "small": Seq2SeqScale(layers=1, steps=2, hidden=8, batch=4, words=11),
        "cpu": Seq2SeqScale(layers=2, steps=16, hidden=256, batch=32, words=1000),
        "large": Seq2SeqScale(layers=4, steps=64, hidden=1024, batch=128, words=10_000),
    },
    _graph,
    compiles_for_minutes=True,
)
"""The workload."""
