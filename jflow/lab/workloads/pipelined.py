"""W8: a transformer in stages, whose weights are divided inside of each stage.

Microbatches pass the stages one after another, so that stages work on different ones at the same
time (Huang et al., "GPipe", 2019). If the device of a stage is a mesh, its weights are divided over
it by heads and by hidden units, which takes two all-reduces a layer and direction (Shoeybi et al.,
"Megatron-LM", 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

import jflow as tf
from jflow.lab.workloads.transformers import TransformerScale, fed_forward, normalized
from jflow.lab.workloads.workload import Servers, Workload, apply, data, error, update


@dataclass(frozen=True)
class PipelinedScale(TransformerScale):
    """The size; `batch` is the sequences of a microbatch, `microbatches` how many a step has."""

    microbatches: int


def _attended(x: jax.Array, weights: jax.Array, mixing: jax.Array, heads: int) -> jax.Array:
    """Attention of all heads; x f32[batch, tokens, width], weights f32[3, width, width]."""
    batch, tokens, _ = x.shape
    of_heads = (x @ weights[:, None]).reshape(3, batch, tokens, heads, -1)
    query, key, value = of_heads
    scores = jnp.einsum("bthn,bshn->bhts", query, key) / query.shape[-1] ** 0.5
    values = jnp.einsum("bhts,bshn->bthn", jax.nn.softmax(scores), value)
    return normalized(x + values.reshape(x.shape) @ mixing)


def _layer(
    x: jax.Array,
    heads: int,
    weights: jax.Array,
    mixing: jax.Array,
    wide: jax.Array,
    back: jax.Array,
) -> jax.Array:
    return fed_forward(_attended(x, weights, mixing, heads), wide, back)


def _pipelined_graph(scale: PipelinedScale, servers: Servers) -> tuple[tf.Tensor, tf.Operation]:
    width, layers = scale.width, []
    positions = [layer / scale.layers for layer in range(scale.layers)]
    for layer, at in enumerate(positions):
        with tf.name_scope(f"layer_{layer}"):
            layers.append(
                [
                    servers.weights(at, "heads", 3, width, width, divided=2),
                    servers.weights(at, "mixing", width, width, divided=0),
                    servers.weights(at, "wide", width, 4 * width, divided=1),
                    servers.weights(at, "back", 4 * width, width, divided=0),
                ]
            )

    def loss_of(layers: Sequence[Sequence[jax.Array]], x: jax.Array, y: jax.Array) -> jax.Array:
        for at, weights in zip(positions, layers, strict=True):
            with servers.at(at):
                x = _layer(x, scale.heads, *weights)
        with servers.at(positions[-1]):
            return error(x, y)

    def slopes_of(batches: Any, *variables: jax.Array) -> Any:
        n = len(layers[0])
        by_layer = [variables[i : i + n] for i in range(0, len(variables), n)]

        def add(total: Any, batch: Any) -> Any:
            found = jax.value_and_grad(loss_of)(by_layer, *batch)
            return jax.tree.map(jnp.add, total, found), None

        nothing = jnp.float32(0), jax.tree.map(jnp.zeros_like, by_layer)
        (loss, slopes), _ = jax.lax.scan(add, nothing, batches)
        return loss / scale.microbatches, *jax.tree.leaves(slopes)

    shape = scale.microbatches, scale.batch, scale.tokens, width
    every = [variable for weights in layers for variable in weights]
    loss, *slopes = apply(slopes_of, (data(0, *shape), data(1, *shape)), *every)
    return loss, update(every, slopes, 0.01 / scale.microbatches)


PIPELINED = Workload(
    "pipelined",
    "W8: a transformer in stages with microbatches; its weights are divided over the mesh of a "
    "stage, if it has one",
    {
        "small": PipelinedScale(layers=2, heads=2, width=8, tokens=4, batch=2, microbatches=2),
        "cpu": PipelinedScale(layers=4, heads=4, width=256, tokens=64, batch=4, microbatches=4),
        "large": PipelinedScale(
            layers=24, heads=16, width=1024, tokens=512, batch=2, microbatches=8
        ),
    },
    _pipelined_graph,
)
"""The workload."""
