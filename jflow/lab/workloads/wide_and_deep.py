"""W2: wide and deep, a model of categories with embedding tables of very different sizes.

Cheng et al., "Wide & deep learning for recommender systems", 2016.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

import jflow as tf
from jflow.lab.workloads.workload import Servers, Workload, apply, data, joined, layer, update

_RATE = 0.05


@dataclass(frozen=True)
class WideAndDeepScale:
    """The size of the model.

    Attributes:
      tables: rows of each embedding table.
      width: of an embedding.
      hidden: widths of the dense layers.
      batch: examples of a step; ids are Zipf distributed.
      dense: numbers of an example that are no ids.
    """

    tables: tuple[int, ...]
    width: int
    hidden: tuple[int, ...]
    batch: int
    dense: int = 16


def _rows(table: jax.Array, ids: jax.Array) -> jax.Array:
    return table[ids]


def _loss(wide: jax.Array, deep: jax.Array, last: jax.Array, clicked: jax.Array) -> jax.Array:
    """Returns the logistic loss; the wide part is one number of each embedding."""
    logits = (deep @ last)[:, 0] + wide.sum(axis=1)
    return jnp.mean(jax.nn.softplus(logits) - clicked * logits)


def _wide(*rows: jax.Array) -> jax.Array:
    return jnp.stack([row[:, 0] for row in rows], axis=1)


def _ids(seed: int, n_rows: int, batch: int) -> tf.Tensor:
    drawn = np.random.default_rng(seed).zipf(1.3, batch) % n_rows
    return tf.constant(drawn.astype(np.int32), name="ids")


def _graph(scale: WideAndDeepScale, servers: Servers) -> tuple[tf.Tensor, tf.Operation]:
    n_tables = len(scale.tables)
    tables, ids, rows = [], [], []
    for i, n_rows in enumerate(scale.tables):
        tables.append(servers.weights(i / n_tables, f"table_{i}", n_rows, scale.width))
        # A look-up beside its table, so that rows travel and not the table.
        with tf.colocate_with(tables[i]):
            ids.append(_ids(i, n_rows, scale.batch))
            rows.append(apply(_rows, tables[i], ids[i]))
    x = apply(joined, data(0, scale.batch, scale.dense), *rows)
    sizes = [scale.dense + n_tables * scale.width, *scale.hidden]
    dense: list[tf.Variable] = []
    for i, (n_in, n_out) in enumerate(pairwise(sizes)):
        own = servers.weights(0, f"weights_{i}", n_in, n_out), servers.zeros(0, f"b_{i}", n_out)
        dense += own
        x = apply(layer, x, *own)
    dense.append(servers.weights(0, "last", sizes[-1], 1))
    clicks = np.random.default_rng(1).integers(0, 2, scale.batch).astype(np.float32)
    loss = apply(_loss, apply(_wide, *rows), x, dense[-1], tf.constant(clicks))
    slopes = tf.gradients(loss, [*rows, *dense])
    touched = [
        tf.scatter_sub(table, chosen, _RATE * slope)
        for table, chosen, slope in zip(tables, ids, slopes[:n_tables], strict=True)
    ]
    return loss, update(dense, slopes[n_tables:], _RATE, *touched)


def _sizes(n: int, smallest: int, largest: int) -> tuple[int, ...]:
    return tuple(int(size) for size in np.geomspace(smallest, largest, n))


WIDE_AND_DEEP = Workload(
    "wide_and_deep",
    "W2: embedding tables of skewed sizes with Zipf ids; look-ups, memory, updates of rows",
    {
        "small": WideAndDeepScale(tables=(20, 50, 200), width=4, hidden=(16, 8), batch=8),
        "cpu": WideAndDeepScale(_sizes(8, 2_000, 200_000), 32, (256, 256, 256), 256),
        "large": WideAndDeepScale(_sizes(26, 1_000, 10_000_000), 64, (512, 512, 512), 2048),
    },
    _graph,
    is_one_program=False,
)
"""The workload."""
