"""Sparse tensors: those that are fed, as strings, and as dense tensors."""

# Arguments have TensorFlow's names, also where Python has them.

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jflow.base.values import (
    AbstractValue,
    HostArray,
    abstract,
    as_shape,
    host_abstract,
    host_dtype,
    is_switched_off,
    string,
    type_name,
    unknown_dim,
)
from jflow.client.ops.host_calls import (
    graph_for,
    host_array,
    invoke,
    is_symbolic,
    on_host,
    shape_of,
    sparse_avals,
)
from jflow.client.ops.math.sizes import sizes_of
from jflow.client.ops.slices import SparseTensor
from jflow.compiler.graph import Graph, Tensor, name_scope
from jflow.compiler.graph import get_default_graph as _default_graph
from jflow.compiler.graph.calls import call
from jflow.compiler.graph.primitives import placeholder_p

_INT64 = np.dtype(np.int64)


def sparse_placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> SparseTensor:
    """Returns a sparse tensor whose components must be fed, together or each for itself.

    A step feeds `{sparse: (indices, values, dense_shape)}`, or a `SparseTensor` of arrays.

    Args:
      dtype: dtype of the values.
      shape: shape of the dense tensor, with None for unknown sizes, of which the rank counts; None
        for any rank.
      name: the beginning of the names of the three operations.
    """
    graph = _default_graph()
    dims = as_shape(shape)
    rank = unknown_dim() if dims is None else len(dims)
    n, prefix = unknown_dim(), f"{name}/" if name else ""

    def fed(aval: Any, what: str) -> Tensor:
        tensor: Tensor = graph.add(placeholder_p, [], [aval], name=prefix + what).outputs[0]
        return tensor

    return SparseTensor(
        fed(host_abstract((n, rank), _INT64), "indices"),
        fed(host_abstract((n,), host_dtype(dtype)), "values"),
        fed(host_abstract((rank,), _INT64), "shape"),
    )


def serialize_sparse(sp_input: SparseTensor, name: str | None = None) -> Tensor:
    """Returns a sparse tensor as string[3], as which it can be queued."""
    return _serialized("serialize_sparse", sp_input, (3,), name or "SerializeSparse")


def serialize_many_sparse(sp_input: SparseTensor, name: str | None = None) -> Tensor:
    """Returns each row of a sparse tensor, sorted by rows, as a row of string[n, 3].

    Raises:
      InvalidArgumentError: in the step, if the indices are not sorted by rows, or more than a
        million rows have no values.
    """
    name, shape = name or "SerializeManySparse", (unknown_dim(), 3)
    return _serialized("serialize_many_sparse", sp_input, shape, name)


def deserialize_many_sparse(
    serialized_sparse: Any,
    dtype: Any,
    rank: int | None = None,
    name: str | None = None,
) -> SparseTensor:
    """Joins serialized sparse tensors to one of a rank more, whose rows they are.

    Args:
      serialized_sparse: string[n, 3], of `serialize_sparse`.
      dtype: dtype of the values.
      rank: rank of each sparse tensor; None for what it is, which the graph does not know then.
      name: name of the operation.

    Returns:
      A sparse tensor of n rows, each as large as the largest along each axis.

    Raises:
      InvalidArgumentError: in the step, if the strings are malformed, or of another dtype or rank.
    """
    rows = on_host(graph_for(serialized_sparse), serialized_sparse)
    known = unknown_dim() if rank is None else rank + 1
    attributes = {"dtype": type_name_of(dtype)} | ({} if rank is None else {"rank": rank})
    avals = sparse_avals(host_dtype(dtype), known)
    name = name or "DeserializeManySparse"
    parts = invoke("deserialize_many_sparse", [rows], lambda: avals, name, **attributes)
    return SparseTensor(*parts)


def sparse_merge(
    sp_ids: SparseTensor | Sequence[SparseTensor],
    sp_values: SparseTensor,
    vocab_size: Any,
    name: str | None = None,
    already_sorted: bool = False,
) -> SparseTensor:
    """Makes a sparse tensor whose last positions are the values of other sparse tensors.

    Args:
      sp_ids: the positions along the last dimension; a list of them, one for each of the last
        dimensions, if these may be several.
      sp_values: the values. All have the same indices, which count the positions of each row.
      vocab_size: size of the last dimension, or a list of sizes if `sp_ids` is one.
      name: name of the operation.
      already_sorted: whether the indices that result are in order; else they are sorted.

    Returns:
      A sparse tensor of the shape of the ids, with these sizes in place of the last one. Positions
      that are out of range stay in it.

    Raises:
      TypeError: if one of `sp_ids` and `vocab_size` is a list and the other is not.
      ValueError: if the lists differ in length, or are empty.
      InvalidArgumentError: in the step, if the indices differ.
    """
    is_list = not isinstance(sp_ids, SparseTensor)
    if is_list != isinstance(vocab_size, list | tuple):
        wanted = "a list of sizes for a list of ids" if is_list else "one size for the ids"
        raise TypeError(f"expected {wanted}, got {vocab_size!r:.80}")
    all_ids: Sequence[Any] = sp_ids if is_list else [sp_ids]
    sizes: Sequence[Any] = vocab_size if is_list else [vocab_size]
    if len(all_ids) != len(sizes) or not sizes:
        raise ValueError(
            f"expected as many sizes as sparse tensors of ids, got {len(sizes)} and {len(all_ids)}"
        )
    graph = graph_for(*(part for sparse in (*all_ids, sp_values) for part in sparse))
    sparses = [_components(graph, sparse) for sparse in (*all_ids, sp_values)]
    parts = [part for indices, values, _ in sparses for part in (indices, values)]
    known = [None if is_symbolic(size) else operator.index(size) for size in sizes]
    computed = [on_host(graph, size) for size in sizes if is_symbolic(size)]
    inputs = [*parts, sparses[0][2], *computed]

    def avals() -> list[AbstractValue]:
        shape = shape_of(sparses[0][0])
        rank = unknown_dim() if shape is None else shape[1] - 1 + len(sizes)
        return sparse_avals(sparses[-1][1].dtype, rank)

    attributes = {"sizes": known, "already_sorted": already_sorted}
    name = name or "SparseMerge"
    return SparseTensor(*invoke("sparse_merge", inputs, avals, name, **attributes))


def sparse_tensor_to_dense(
    sp_input: SparseTensor,
    default_value: Any = None,
    validate_indices: bool = True,
    name: str | None = None,
) -> Tensor:
    """Returns a sparse tensor of numbers as a dense one, whose sizes a step finds out.

    Args:
      sp_input: the sparse tensor, of known rank.
      default_value: the value of the other elements; None for zero.
      validate_indices: without effect: elements that are out of range are left out, and of equal
        indices one counts.
      name: name of the operation.

    Raises:
      InvalidArgumentError: in the step, if a value, index or size needs 64 bits while
        `jax_enable_x64` is off.
    """
    return sparse_to_dense(
        sp_input.indices,
        sp_input.dense_shape,
        sp_input.values,
        0 if default_value is None else default_value,
        name=name or "SparseToDense",
    )


def sparse_to_dense(
    sparse_indices: Any,
    output_shape: Any,
    sparse_values: Any,
    default_value: Any = 0,
    validate_indices: bool = True,
    name: str | None = None,
) -> Tensor:
    """Returns a tensor with values at some positions and a default elsewhere.

    Args:
      sparse_indices: i[n, rank], i[n] for a vector, or i[] for one element.
      output_shape: i[rank], the shape, as `jflow.zeros` takes it.
      sparse_values: T[n], or T[] for the same value everywhere.
      default_value, validate_indices, name: as for `sparse_tensor_to_dense`.

    Returns:
      T[*output_shape].

    Raises:
      InvalidArgumentError: as for `sparse_tensor_to_dense`.
    """
    graph = _default_graph()
    indices = small(graph, sparse_indices)
    values = graph.as_tensor(sparse_values)
    if isinstance(values.aval, HostArray):
        values = _on_device(values)
    shape = output_shape if isinstance(output_shape, tuple | list) else small(graph, output_shape)
    given = {"shape": sizes_of(shape), "default": default_value}
    dense: Tensor = graph.apply(_dense, (indices, values), given, name=name or "SparseToDense")
    return dense


def sparse_tensor_dense_matmul(
    sp_a: SparseTensor,
    b: Any,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    name: str | None = None,
) -> Tensor:
    """Returns the product of a sparse matrix and a dense one.

    Args:
      sp_a: T[n, m], sparse.
      b: T[m, k].
      adjoint_a, adjoint_b: whether to transpose, and conjugate, the matrix before.
      name: name of the operation.

    Returns:
      T[n, k].
    """
    graph = _default_graph()
    indices, shape = small(graph, sp_a.indices), small(graph, sp_a.dense_shape)
    sizes = sizes_of(shape)
    given = {"n": sizes[1 if adjoint_a else 0], "flags": (adjoint_a, adjoint_b)}
    args = (indices, graph.as_tensor(sp_a.values), graph.as_tensor(b))
    product: Tensor = graph.apply(_product, args, given, name=name or "SparseTensorDenseMatMul")
    return product


def small(graph: Graph, value: Any) -> Tensor:
    """Returns integers with a dtype that programs can use; those of sparse tensors have 64 bits.

    int64 becomes int32 while `jax_enable_x64` is off. A step with a number beyond 32 bits fails, so
    that no number becomes another one.
    """
    tensor = graph.as_tensor(value)
    if tensor.dtype != _INT64 or not is_switched_off(_INT64):
        return tensor
    with name_scope(None):
        avals = [abstract(tensor.aval.shape, np.dtype(np.int32))]
        return call(graph, "to_int32", [tensor], avals, name="Cast").outputs[0]


def type_name_of(dtype: Any) -> str:
    """Returns the name of a dtype of numbers or strings, as functions of the host take it."""
    known: Any = host_dtype(dtype)
    return "string" if known == string else type_name(np.zeros(0, known))


def _serialized(function: str, sparse: SparseTensor, shape: Sequence[Any], name: str) -> Tensor:
    parts = _components(graph_for(*sparse), sparse)
    return invoke(function, parts, lambda: [abstract(shape, string)], name)[0]


def _on_device(values: Tensor) -> Tensor:
    if values.dtype == string:
        raise TypeError(f"strings cannot be made dense, got {values!r}")
    return small(values.graph, values)


def _components(graph: Graph | None, sparse: SparseTensor) -> list[Any]:
    if not isinstance(sparse, SparseTensor):
        raise TypeError(f"expected a SparseTensor, got {sparse!r:.80}")
    if graph is None:
        return [host_array(part) for part in sparse]
    return [graph.as_tensor(part) for part in sparse]


def _dense(indices: jax.Array, values: jax.Array, shape: Any, default: Any) -> jax.Array:
    rank = len(shape)
    places = jnp.reshape(indices, (-1, rank)) if indices.ndim < 2 else indices
    # JAX counts negative indices from the end; this one is out of range along every axis.
    places = jnp.where(places < 0, np.iinfo(places.dtype).max, places)
    whole = jnp.full(shape, default, values.dtype)
    return whole.at[tuple(jnp.moveaxis(places, -1, 0))].set(values, mode="drop")


def _product(
    indices: jax.Array, values: jax.Array, b: jax.Array, n: Any, flags: tuple[bool, bool]
) -> jax.Array:
    rows, columns = jnp.moveaxis(indices, -1, 0)
    if flags[0]:
        rows, columns, values = columns, rows, jnp.conj(values)
    dense = jnp.conj(b.T) if flags[1] else b
    terms = values[:, None] * jnp.take(dense, columns, axis=0)
    return jax.ops.segment_sum(terms, rows, n)
