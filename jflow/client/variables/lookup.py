"""Lookups of the rows of a table, which may be partitioned across tasks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from math import prod
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from jflow.base.values import as_dtype, assigned_parts, host_abstract, is_static, unknown_dim
from jflow.client.ops.lift import target_graph
from jflow.client.ops.math.sizes import sizes_of
from jflow.client.ops.slices import SparseTensor
from jflow.client.ops.sparse import small
from jflow.client.ops.variable import Variable, on_device_of, read
from jflow.client.variables.partitioned import PartitionedVariable
from jflow.client.variables.sharded import ShardedVariable
from jflow.compiler.graph import Graph, Symbolic, Tensor, name_scope
from jflow.compiler.graph.calls import call
from jflow.compiler.graph.row_parts import split_ids, stitch_rows

STRATEGIES = ("mod", "div")
Combiner = Literal["sum", "mean", "sqrtn"]
COMBINERS = get_args(Combiner)

_SMALL_BYTES = 1 << 18
"""The bytes of superfluous rows up to which ids are not divided among the parts."""


def embedding_lookup(
    params: Any,
    ids: Any,
    partition_strategy: str = "mod",
    name: str | None = None,
    max_norm: float | None = None,
) -> Any:
    """Returns the rows with these ids from a table, which may be partitioned.

    Rows are gathered on the device of their part, so that the table stays where it is. In graph
    code each part gathers only the rows of its own ids, and likewise their gradients. In functions
    that JAX traces, where sizes must be known, and for few rows, each part gathers a row for every
    id, and the result selects those that belong to it.

    Args:
      params: T[m, *row]: a tensor or variable; a partitioned or sharded variable; or a list of
        parts, of which part i has shape [m_i, *row].
      ids: integers of any shape.
      partition_strategy: how ids belong to n parts. "mod": id i is row i // n of part i % n.
        "div": the parts follow each other, as those of a sharded variable always do.
      name: scope of the operations.
      max_norm: rows with a larger L2 norm are scaled down to it; None for no limit.

    Returns:
      T[*ids.shape, *row], a tensor in graph code, otherwise an array; for an id that is out of
      range what `jax.numpy.take` gives: NaN, or an extreme integer.

    Raises:
      ValueError: if the strategy is another one, or there are no parts.
      TypeError: if the ids are not integers.
    """
    if partition_strategy not in STRATEGIES:
        raise ValueError(f"expected the partition strategy mod or div, got {partition_strategy!r}")
    if isinstance(params, ShardedVariable):
        partition_strategy = "div"
    is_in_parts = isinstance(params, PartitionedVariable | ShardedVariable | list | tuple)
    parts = [*params] if is_in_parts else [params]
    if not parts:
        raise ValueError("expected at least one part of the table, got none")
    graph = ids.graph if isinstance(ids, Tensor) else target_graph(parts)
    if graph is None:
        return _lookup_eagerly(parts, ids, partition_strategy, max_norm)
    with graph.as_default(), name_scope(name, "embedding_lookup"):
        at = _checked(graph.as_tensor(ids))
        rows = _rows(graph, parts, at, partition_strategy)
        if max_norm is None:
            return rows
        return graph.apply(_limited, (rows, at.ndim, max_norm), name="max_norm")


def _checked(ids: Any) -> Any:
    if not jnp.issubdtype(ids.dtype, jnp.integer):
        raise TypeError(f"ids must be integers, got {ids.dtype.name}")
    return ids


def _lookup_eagerly(
    parts: Sequence[Any], ids: Any, strategy: str, max_norm: float | None
) -> jax.Array:
    """Computes the lookup in a function that JAX traces, or on eager variables."""
    at = _checked(jnp.asarray(read(ids)))
    at = at.astype(jnp.int32) if at.dtype.itemsize < 4 else at  # for numbers of rows
    n_rows = tuple(int(part.shape[0]) for part in parts)
    local = _local(at, n_rows, strategy) if len(parts) > 1 else [at]
    rows = []
    for part, own in zip(parts, local, strict=True):
        with on_device_of(part) if isinstance(part, Variable) else nullcontext():
            rows.append(jnp.take(read(part), own, axis=0))
    result = _chosen(at, rows, n_rows, strategy) if len(parts) > 1 else rows[0]
    return result if max_norm is None else _limited(result, at.ndim, max_norm)


def _rows(graph: Graph, parts: Sequence[Any], ids: Tensor, strategy: str) -> Tensor:
    if len(parts) == 1:
        return _gather_rows(graph, parts[0], ids)
    sizes = tuple(int(part.shape[0]) for part in parts)
    if _is_small(parts, ids):
        local = graph.apply(_local, (ids, sizes, strategy), name="local_ids")
        rows = [_gather_rows(graph, part, at) for part, at in zip(parts, local, strict=True)]
        chosen: Tensor = graph.apply(_chosen, (ids, rows, sizes, strategy), name="rows")
        return chosen
    local, places = split_ids(graph, ids, sizes, strategy)
    rows = [_gather_rows(graph, part, at) for part, at in zip(parts, local, strict=True)]
    return stitch_rows(graph, ids, places, rows)


def _is_small(parts: Sequence[Any], ids: Tensor) -> bool:
    """Whether gathering every id from every part is cheaper than dividing ids on the host."""
    if not is_static(ids.shape):
        return False
    n_vain = prod(ids.shape) * (len(parts) - 1) * prod(parts[0].shape[1:])
    n_bytes: int = n_vain * as_dtype(parts[0].dtype).itemsize
    return n_bytes <= _SMALL_BYTES


def _gather_rows(graph: Graph, part: Any, ids: Tensor) -> Tensor:
    """Gathers rows of one part on the part's device."""
    if not isinstance(part, Symbolic):
        part = graph.constant(part)
    with on_device_of(part):
        rows: Tensor = graph.apply(jnp.take, (part, ids), {"axis": 0}, name="gather")
    return rows


def _local(ids: jax.Array, n_rows: Sequence[int], strategy: str) -> list[jax.Array]:
    part, row = assigned_parts(ids, n_rows, strategy, jnp)
    # Where a part has no row for an id, the index is out of its range, so no row has a gradient.
    return [jnp.where(part == number, row, n) for number, n in enumerate(n_rows)]


def _chosen(
    ids: jax.Array, rows: Sequence[jax.Array], n_rows: Sequence[int], strategy: str
) -> jax.Array:
    part, _ = assigned_parts(ids, n_rows, strategy, jnp)
    part = part.reshape(*part.shape, *(1,) * (rows[0].ndim - part.ndim))
    nothing = jnp.full(part.shape, rows[0].size)  # out of range, for which `take` has its value
    result = jnp.take(rows[0].reshape(-1), nothing) + jnp.zeros_like(rows[0])
    for number, each in enumerate(rows):
        result = jnp.where(part == number, each, result)
    return result


def _limited(rows: jax.Array, n_dims: int, max_norm: float) -> jax.Array:
    axes = tuple(range(n_dims, rows.ndim))
    norm = jnp.sqrt(jnp.sum(rows * rows, axis=axes, keepdims=True))
    return rows * jnp.where(norm > max_norm, max_norm / norm, 1.0)


def embedding_lookup_sparse(
    params: Any,
    sp_ids: SparseTensor,
    sp_weights: SparseTensor | None,
    partition_strategy: str = "mod",
    name: str | None = None,
    combiner: str | None = None,
    max_norm: float | None = None,
) -> Tensor:
    """Returns for each row of a sparse matrix of ids a combination of the rows of a table.

    Args:
      params: T[m, *row], the table, as for `embedding_lookup`.
      sp_ids: i64[n, k], sparse: the ids of each row, sorted by row.
      sp_weights: T[n, k], sparse, a weight for each id; None for equal weights.
      partition_strategy, max_norm: as for `embedding_lookup`.
      name: scope of the operations.
      combiner: "sum", "mean" (the sum divided by that of the weights) or "sqrtn" (divided by the
        root of the sum of their squares); None for "mean".

    Returns:
      T[n, *row]; rows without ids are zero. TensorFlow leaves those at the end out.

    Raises:
      TypeError: if the ids or weights are not sparse.
      ValueError: if there is no such combiner.
      InvalidArgumentError: in the step, if an id needs 64 bits while `jax_enable_x64` is off.
    """
    kind = combiner or "mean"
    if kind not in COMBINERS:
        raise ValueError(f"combiner must be one of 'mean', 'sqrtn' or 'sum', got {kind!r}")
    for sparse in (sp_ids, *([] if sp_weights is None else [sp_weights])):
        if not isinstance(sparse, SparseTensor):
            raise TypeError(f"expected a SparseTensor of ids and of weights, got {sparse!r:.80}")
    graph: Graph = sp_ids.values.graph
    with graph.as_default(), name_scope(name, "embedding_lookup_sparse"):
        n = sizes_of(small(graph, sp_ids.dense_shape))[0]
        places, rows_of, ids = _padded(graph, sp_ids)
        rows = embedding_lookup(params, small(graph, ids), partition_strategy, max_norm=max_norm)
        weights = None if sp_weights is None else graph.as_tensor(sp_weights.values)
        args = (rows, places, small(graph, rows_of), weights)
        combined: Tensor = graph.apply(_combine, args, {"n": n, "kind": kind}, name=kind)
        return combined


def _padded(graph: Graph, sp_ids: SparseTensor) -> tuple[Tensor, ...]:
    """Returns the place, row and id of each element, and of others that are in no row.

    Batches seldom have equally many ids. With their number rounded up to a power of two, programs
    are compiled for a few sizes and not for each batch.
    """
    m = unknown_dim()
    parts = (sp_ids.indices, sp_ids.values, sp_ids.dense_shape)
    inputs = [graph.as_tensor(part) for part in parts]
    dtypes = (np.dtype(np.int32), inputs[0].dtype, inputs[1].dtype)
    avals = [host_abstract((m,), dtype) for dtype in dtypes]
    return tuple(call(graph, "pad_ids", inputs, avals, name="pad_ids").outputs)


def _combine(rows: Any, places: Any, rows_of: Any, weights: Any, n: Any, kind: str) -> Any:
    own = jnp.ones(rows_of.shape, rows.dtype) if weights is None else weights[places]
    own = own.astype(rows.dtype)
    ones = (1,) * (rows.ndim - 1)
    total = jax.ops.segment_sum(rows * own.reshape(-1, *ones), rows_of, n)
    if kind == "sum":
        return total
    norms = jax.ops.segment_sum(own if kind == "mean" else own**2, rows_of, n)
    norms = norms if kind == "mean" else jnp.sqrt(norms)
    is_empty = jax.ops.segment_sum(jnp.ones(rows_of.shape, jnp.int32), rows_of, n) == 0
    return total / jnp.where(is_empty, 1, norms).reshape(-1, *ones)
