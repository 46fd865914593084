"""W5 and W6: the encoder of a transformer, and a layer of experts, as in switch transformers.

W5 has a graph operation for each head (Vaswani et al., "Attention is all you need", 2017). In W6
each token goes to one expert of a static capacity (Fedus, Zoph and Shazeer, "Switch transformers",
2022).
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

import jflow as tf
from jflow.lab.workloads.workload import Servers, Workload, apply, data, descend, error


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


def normalized(x: jax.Array) -> jax.Array:
    """Returns vectors of mean 0 and variance 1."""
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)


def _mixed(x: jax.Array, weights: jax.Array, *heads: jax.Array) -> jax.Array:
    return normalized(x + jnp.concatenate(heads, axis=-1) @ weights)


def fed_forward(x: jax.Array, weights: jax.Array, back: jax.Array) -> jax.Array:
    """Returns the second half of a layer of an encoder."""
    return normalized(x + jax.nn.gelu(x @ weights) @ back)


def _transformer_graph(scale: TransformerScale, servers: Servers) -> tuple[tf.Tensor, tf.Operation]:
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
            x = apply(fed_forward, x, wide, back)
        variables += [*of_heads, mixing, wide, back]
    return descend(apply(error, x, data(1, *shape)), variables, 0.01)


TRANSFORMER = Workload(
    "transformer",
    "W5: the encoder of a transformer with an operation for each head; nearly a chain",
    {
        "small": TransformerScale(layers=1, heads=2, width=8, tokens=4, batch=2),
        "cpu": TransformerScale(layers=4, heads=4, width=128, tokens=64, batch=8),
        "large": TransformerScale(layers=24, heads=16, width=1024, tokens=512, batch=8),
    },
    _transformer_graph,
    compiles_for_minutes=True,
)
"""The workload."""


@dataclass(frozen=True)
class MoeScale:
    """The size.

    Attributes:
      experts: how many.
      width: of a token.
      hidden: of an expert.
      tokens: of a step.
      capacity: tokens that an expert takes at most, as a multiple of its even share; further
        tokens pass by unchanged.
    """

    experts: int
    width: int
    hidden: int
    tokens: int
    capacity: float = 2.0

    @property
    def slots(self) -> int:
        """Tokens that an expert takes at most."""
        return int(self.capacity * self.tokens / self.experts)


def _route(
    x: jax.Array, gate: jax.Array, n_slots: int
) -> tuple[list[jax.Array], jax.Array, jax.Array]:
    """The tokens f32[slots, width] of each expert, and the slot and weight of each token."""
    n_experts = gate.shape[1]
    chances = jax.nn.softmax(x @ gate)
    expert = jnp.argmax(chances, axis=1)
    chosen = jax.nn.one_hot(expert, n_experts, dtype=jnp.int32)
    position = (jnp.cumsum(chosen, axis=0) * chosen).sum(axis=1) - 1
    has_slot = position < n_slots
    weight = jnp.where(has_slot, jnp.take_along_axis(chances, expert[:, None], axis=1)[:, 0], 0.0)
    # One slot more than there are, for what is not taken.
    slot = jnp.where(has_slot, expert * n_slots + position, n_experts * n_slots)
    filled = jnp.zeros((n_experts * n_slots + 1, x.shape[1])).at[slot].set(x)
    return list(jnp.split(filled[:-1], n_experts)), slot, weight


def _expert(x: jax.Array, weights: jax.Array, back: jax.Array) -> jax.Array:
    return jax.nn.relu(x @ weights) @ back


def _combined(x: jax.Array, slot: jax.Array, weight: jax.Array, *outputs: jax.Array) -> jax.Array:
    """Adds to each token the weighted output of its expert."""
    empty = jnp.zeros((1, x.shape[1]))
    return x + weight[:, None] * jnp.concatenate([*outputs, empty])[slot]


def _moe_graph(scale: MoeScale, servers: Servers) -> tuple[tf.Tensor, tf.Operation]:
    n, width = scale.experts, scale.width
    x = data(0, scale.tokens, width)
    gate = servers.weights(0.0, "gate", width, n)
    inputs, slot, weight = apply(_route, x, gate, scale.slots)
    outputs, variables = [], [gate]
    for i, tokens in enumerate(inputs):
        with tf.name_scope(f"expert_{i}"):
            wide = servers.weights(i / n, "wide", width, scale.hidden)
            back = servers.weights(i / n, "back", scale.hidden, width)
            outputs.append(apply(_expert, tokens, wide, back))
        variables += [wide, back]
    y = apply(_combined, x, slot, weight, *outputs)
    return descend(apply(error, y, data(1, scale.tokens, width)), variables, 0.1)


MOE = Workload(
    "moe",
    "W6: a layer of experts with top-1 routing and static capacity; fan-out, fan-in, skew",
    {
        "small": MoeScale(experts=2, width=8, hidden=16, tokens=16),
        "cpu": MoeScale(experts=8, width=128, hidden=512, tokens=1024),
        "large": MoeScale(experts=64, width=1024, hidden=4096, tokens=16_384),
    },
    _moe_graph,
)
"""The workload."""
