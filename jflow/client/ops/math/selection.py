"""Rows and elements of tensors by index or mask, under TensorFlow's names."""

# Arguments have TensorFlow's names, also where Python has them.

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jflow.base.values import abstract, as_dtype, unknown_dim
from jflow.client.ops.lift import operation, target_graph
from jflow.client.ops.math.arrays import (
    check_batches,
    select,
    with_row,
    with_rows,
    without_rows,
)
from jflow.client.ops.math.conversions import limits_of
from jflow.client.ops.math.elementwise import equal
from jflow.client.ops.math.shapes import reshape
from jflow.client.ops.math.sizes import known_int, size_of, sizes_of
from jflow.compiler.graph import Graph, Tensor
from jflow.compiler.graph.calls import call
from jflow.errors import UnimplementedError


def gather(
    params: Any,
    indices: Any,
    validate_indices: bool | None = None,
    name: str | None = None,
    axis: Any = None,
    batch_dims: int = 0,
) -> Any:
    """Returns slices of a tensor by their indices along an axis.

    Args:
      params: T[*shape].
      indices: i[*n]; an index that is out of range, as negative ones are, gives NaN, or the
        smallest integer.
      validate_indices: without effect, as in TensorFlow.
      name: name of the operation.
      axis: the axis; None for the one behind the batch.
      batch_dims: the number of leading axes that both tensors share.
    """
    where = batch_dims if axis is None else known_int(axis, "axis")
    given = {"axis": where, "batch_dims": batch_dims}
    return _gather(params, indices, **given, name=name)


def batch_gather(params: Any, indices: Any, name: str | None = None) -> Any:
    """Returns slices by index, of batches: all axes of `indices` but the last are shared."""
    return gather(params, indices, name=name, batch_dims=np.ndim(indices) - 1)


def gather_nd(params: Any, indices: Any, name: str | None = None, batch_dims: int = 0) -> Any:
    """Returns slices of a tensor that are given by index vectors.

    Args:
      params: T[*batch, m1, …, mk, *rest].
      indices: i[*batch, *n, k], each vector an index into the first k axes behind the batch; one
        that is out of range gives NaN, or the smallest integer.
      name: name of the operation.
      batch_dims: the number of axes of the batch.

    Returns:
      T[*batch, *n, *rest].
    """
    return _gather_nd(params, indices, batch_dims=batch_dims, name=name)


def scatter_nd(indices: Any, updates: Any, shape: Any, name: str | None = None) -> Any:
    """Returns a tensor of zeros, to which updates at index vectors are added.

    Args:
      indices: i[*n, k]; updates of an index that is out of range are left out.
      updates: T[*n, *rest].
      shape: the shape of the result, (m1, …, mk, *rest), as `zeros` takes it.
      name: name of the operation.
    """
    return _scatter_nd(indices, updates, shape=sizes_of(shape), name=name)


def tensor_scatter_nd_update(
    tensor: Any, indices: Any, updates: Any, name: str | None = None
) -> Any:
    """Returns a tensor with other values at index vectors, as `scatter_nd` takes them."""
    return _tensor_scatter["set"](tensor, indices, updates, name=name)


def tensor_scatter_nd_add(tensor: Any, indices: Any, updates: Any, name: str | None = None) -> Any:
    """Returns a tensor to which updates at index vectors are added; see `scatter_nd`."""
    return _tensor_scatter["add"](tensor, indices, updates, name=name)


def tensor_scatter_nd_sub(tensor: Any, indices: Any, updates: Any, name: str | None = None) -> Any:
    """Returns a tensor from which updates at index vectors are subtracted; see `scatter_nd`."""
    return _tensor_scatter["subtract"](tensor, indices, updates, name=name)


def tensor_scatter_nd_max(tensor: Any, indices: Any, updates: Any, name: str | None = None) -> Any:
    """Returns a tensor with the maximum of it and updates at index vectors; see `scatter_nd`."""
    return _tensor_scatter["max"](tensor, indices, updates, name=name)


def tensor_scatter_nd_min(tensor: Any, indices: Any, updates: Any, name: str | None = None) -> Any:
    """Returns a tensor with the minimum of it and updates at index vectors; see `scatter_nd`."""
    return _tensor_scatter["min"](tensor, indices, updates, name=name)


def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Any:
    """Returns elements of `x` where a condition holds and of `y` elsewhere; or where it holds.

    Args:
      condition: bool[*shape], or bool[n] to select rows.
      x, y: T[*shape]; None to get indices.
      name: name of the operation.

    Returns:
      T[*shape]; without x and y i32[m, rank], the positions of the m elements that are true, whose
      number a step finds out.

    Raises:
      ValueError: if one of x and y is None.
      UnimplementedError: without x and y in a function that JAX traces, where m must be known.
    """
    if (x is None) != (y is None):
        raise ValueError("x and y must both be given, or none of them")
    if x is not None:
        return select(condition, x, y, name=name)
    graph = _graph_for_sizes("jflow.where", "jax.numpy.nonzero(condition, size=…)", condition)
    return _true_indices(graph.as_tensor(condition), name or "Where")


def boolean_mask(
    tensor: Any, mask: Any, name: str | None = "boolean_mask", axis: Any = None
) -> Any:
    """Returns the slices of a tensor for which a mask is true; their number is found in a step.

    Args:
      tensor: T[*before, *masked, *rest].
      mask: bool[*masked], of known rank.
      name: name of the operation.
      axis: the number of axes before; None for 0. A negative one counts from the last axis.

    Returns:
      T[*before, m, *rest].

    Raises:
      ValueError: if the mask is a scalar, or does not fit the tensor.
      UnimplementedError: in a function that JAX traces, where m must be known.
    """
    instead = "jax.numpy.nonzero(mask, size=…) and jax.numpy.take"
    graph = _graph_for_sizes("jflow.boolean_mask", instead, (tensor, mask))
    values, chosen = graph.as_tensor(tensor), graph.as_tensor(mask)
    at = 0 if axis is None else known_int(axis, "axis")
    if not chosen.ndim:
        raise ValueError("mask cannot be scalar")
    rows = graph.apply(_joined_axes, (values, chosen), {"at": at}, name="Reshape")
    indices = _true_indices(reshape(chosen, [-1]), "Where")
    given = {"axis": at if at >= 0 else at + chosen.ndim - 1}
    return graph.apply(_take_first, (rows, indices), given, name=name or "boolean_mask")


def sequence_mask(
    lengths: Any, maxlen: Any = None, dtype: Any = bool, name: str | None = None
) -> Any:
    """Returns for each length a row that begins with as many true elements.

    Args:
      lengths: i[*n].
      maxlen: the number of elements of a row; None for the greatest length.
      dtype: dtype of the result.
      name: name of the operation.

    Returns:
      dtype[*n, maxlen].

    Raises:
      UnimplementedError: without `maxlen` in a function that JAX traces.
    """
    if maxlen is None:
        instead = "jflow.sequence_mask(lengths, maxlen=…)"
        graph = _graph_for_sizes("jflow.sequence_mask", instead, lengths)
        lengths = graph.as_tensor(lengths)
        maxlen = graph.apply(_longest, (lengths,), name="Max")
    return _sequence_mask(lengths, n=size_of(maxlen), dtype=as_dtype(dtype), name=name)


def dynamic_partition(
    data: Any, partitions: Any, num_partitions: int, name: str | None = None
) -> list[Any]:
    """Returns the slices of a tensor for each of several partitions, in their order.

    Args:
      data: T[*n, *rest].
      partitions: i[*n], the number of the partition of each slice.
      num_partitions: how many there are; slices of other partitions are left out.
      name: name of the operations.

    Returns:
      A list of T[m_i, *rest], whose sizes a step finds out.

    Raises:
      UnimplementedError: in a function that JAX traces.
    """
    instead = "jax.numpy.where for each partition"
    graph = _graph_for_sizes("jflow.dynamic_partition", instead, (data, partitions))
    numbers = graph.as_tensor(partitions)
    label = name or "DynamicPartition"
    return [boolean_mask(data, equal(numbers, i), label) for i in range(num_partitions)]


def dynamic_stitch(indices: Sequence[Any], data: Sequence[Any], name: str | None = None) -> Any:
    """Returns a tensor of slices of several tensors, each at its index.

    Args:
      indices: a list of i[*n_i]; slices of negative ones are left out.
      data: a list of T[*n_i, *rest], as many.
      name: name of the operation.

    Returns:
      T[m, *rest], for the greatest index m - 1. If an index occurs several times the last slice
      counts; one that does not occur is undefined in TensorFlow, and zero here.

    Raises:
      UnimplementedError: in a function that JAX traces.
    """
    instead = "jax.numpy.zeros(…).at[indices].set(data)"
    graph = _graph_for_sizes("jflow.dynamic_stitch", instead, (indices, data))
    numbers = [graph.as_tensor(one) for one in indices]
    values = [graph.as_tensor(one) for one in data]
    n = graph.apply(_greatest, (numbers,), name="size") + 1
    given = {"n": size_of(n)}
    return graph.apply(_stitched, (numbers, values), given, name=name or "DynamicStitch")


class Unique(NamedTuple):
    """The different elements of a vector.

    Attributes:
      y: T[m], in the order of their first occurrence.
      idx: i32[n], the position in y of each element.
    """

    y: Any
    idx: Any


class UniqueWithCounts(NamedTuple):
    """The different elements of a vector, and how often each occurs.

    Attributes:
      y: T[m], in the order of their first occurrence.
      idx: i32[n], the position in y of each element.
      count: i32[m], how often it occurs.
    """

    y: Any
    idx: Any
    count: Any


def unique(x: Any, out_idx: Any = np.int32, name: str | None = None) -> Unique:
    """Returns the different elements of a vector, whose number a step finds out.

    Args:
      x: T[n], also strings.
      out_idx: dtype of the positions; int32.
      name: name of the operation.

    Raises:
      ValueError: if it is not a vector.
      UnimplementedError: in a function that JAX traces, where their number must be known.
    """
    return Unique(*_uniques(x, "jflow.unique", name or "Unique")[:2])


def unique_with_counts(
    x: Any, out_idx: Any = np.int32, name: str | None = None
) -> UniqueWithCounts:
    """Returns the different elements of a vector, and how often each occurs; see `unique`."""
    return UniqueWithCounts(*_uniques(x, "jflow.unique_with_counts", name or "UniqueWithCounts"))


def _uniques(x: Any, what: str, name: str) -> Sequence[Tensor]:
    graph = _graph_for_sizes(what, "jax.numpy.unique(x, size=…)", x)
    vector = graph.as_tensor(x)
    if vector.ndim != 1:
        raise ValueError(f"expected a vector, got {vector!r}")
    m, kind = unknown_dim(), np.dtype(np.int32)
    avals = [
        abstract((m,), vector.dtype),
        abstract(vector.aval.shape, kind),
        abstract((m,), kind),
    ]
    return call(graph, "unique", [vector], avals, name=name).outputs


def _graph_for_sizes(what: str, instead: str, arguments: Any) -> Graph:
    """Returns the graph of a call whose result has a size that only a step knows."""
    graph = target_graph(arguments)
    if graph is None:
        raise UnimplementedError(
            f"{what} gives as many rows as the values say, and JAX traces functions for known "
            f"sizes; use the form that bounds them, {instead}"
        )
    return graph


def _true_indices(mask: Tensor, name: str) -> Tensor:
    aval = abstract((unknown_dim(), mask.ndim), np.dtype(np.int32))
    return call(mask.graph, "true_indices", [mask], [aval], name=name).outputs[0]


def _joined_axes(x: Any, mask: Any, at: int) -> Any:
    at = at + x.ndim if at < 0 else at
    masked = x.shape[at : at + mask.ndim]
    fits = len(masked) == mask.ndim and at >= 0
    if not fits or any(size != other for size, other in zip(masked, mask.shape, strict=True)):
        raise ValueError(f"a mask of shape {mask.shape} does not fit the axes {masked}")
    return jnp.reshape(x, (*x.shape[:at], -1, *x.shape[at + mask.ndim :]))


def _take_first(rows: Any, indices: Any, axis: int) -> Any:
    return _gathered(rows, indices[:, 0], axis, 0)


def _gathered(params: Any, indices: Any, axis: int, batch_dims: int) -> Any:
    params, indices = jnp.asarray(params), jnp.asarray(indices)
    check_batches(params.shape[:batch_dims], indices.shape[:batch_dims])
    along = axis if axis >= 0 else axis + params.ndim
    longer = with_row(with_rows(params, batch_dims), along)
    taken = _taken(longer, with_rows(indices, batch_dims), along, batch_dims)
    return without_rows(taken, indices.shape[:batch_dims])


def _taken(params: Any, indices: Any, axis: int, batch_dims: int) -> Any:
    if not batch_dims:
        return jnp.take(params, _from_start(indices), axis, mode="fill")
    one: Any = jax.vmap(lambda x, i: _taken(x, i, axis - 1, batch_dims - 1))
    return one(params, indices)


def _gathered_nd(params: Any, indices: Any, batch_dims: int) -> Any:
    params, indices = jnp.asarray(params), jnp.asarray(indices)
    check_batches(params.shape[:batch_dims], indices.shape[:batch_dims])
    longer = with_rows(params, batch_dims + indices.shape[-1])
    found = _found(longer, with_rows(indices, batch_dims), batch_dims)
    return without_rows(found, indices.shape[:batch_dims])


def _found(params: Any, indices: Any, batch_dims: int) -> Any:
    if batch_dims:
        return jax.vmap(lambda x, i: _found(x, i, batch_dims - 1))(params, indices)
    if not indices.shape[-1]:
        return jnp.broadcast_to(params, (*indices.shape[:-1], *params.shape))
    return params.at[_positions(indices)].get(mode="fill")


def _positions(indices: Any) -> tuple[Any, ...]:
    return tuple(jnp.moveaxis(_from_start(indices), -1, 0))


def _from_start(indices: Any) -> Any:
    """Returns indices of which the negative are out of range, where JAX counts from the end."""
    wide = indices.astype(jnp.int32) if indices.dtype.itemsize < 4 else indices
    return jnp.where(wide < 0, limits_of(wide.dtype)[1], wide)


def _scattered(method: str, tensor: Any, indices: Any, updates: Any) -> Any:
    positions = _positions(indices)
    return getattr(tensor.at[positions], method)(updates, mode="drop")


def _scattered_in_zeros(indices: Any, updates: Any, shape: Any) -> Any:
    indices, updates = jnp.asarray(indices), jnp.asarray(updates)
    return _scattered("add", jnp.zeros(shape, updates.dtype), indices, updates)


def _mask_of(lengths: Any, n: Any, dtype: Any) -> Any:
    return (jnp.arange(n) < jnp.expand_dims(lengths, -1)).astype(dtype)


def _longest(lengths: Any) -> Any:
    return jnp.max(lengths, initial=0)


def _greatest(indices: Sequence[Any]) -> Any:
    return jnp.max(jnp.concatenate([jnp.ravel(one) for one in indices]), initial=-1)


def _stitched(indices: Sequence[Any], data: Sequence[Any], n: Any) -> Any:
    first, of_first = data[0], indices[0]
    rest = first.shape[of_first.ndim :]
    whole = jnp.zeros((n, *rest), first.dtype)
    for positions, values in zip(indices, data, strict=True):
        rows = jnp.reshape(values, (-1, *rest))
        whole = whole.at[_from_start(jnp.ravel(positions))].set(rows, mode="drop")
    return whole


_gather = operation(_gathered, "GatherV2")
_gather_nd = operation(_gathered_nd, "GatherNd")
_scatter_nd = operation(_scattered_in_zeros, "ScatterNd")
_sequence_mask = operation(_mask_of, "SequenceMask")


def _tensor_scatter_of(method: str, op_name: str) -> Any:
    def scattered(tensor: Any, indices: Any, updates: Any) -> Any:
        arrays = jnp.asarray(tensor), jnp.asarray(indices), jnp.asarray(updates)
        return _scattered(method, *arrays)

    return operation(scattered, op_name)


_tensor_scatter = {
    "set": _tensor_scatter_of("set", "TensorScatterUpdate"),
    "add": _tensor_scatter_of("add", "TensorScatterAdd"),
    "subtract": _tensor_scatter_of("subtract", "TensorScatterSub"),
    "max": _tensor_scatter_of("max", "TensorScatterMax"),
    "min": _tensor_scatter_of("min", "TensorScatterMin"),
}
