"""Sparse values: `IndexedSlices`, some rows of a tensor; `SparseTensor`, some of its elements."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jflow.base.values import Dtype, TensorShape, declared
from jflow.compiler.graph import Graph, Operation, Symbolic, Tensor, colocate_with


class IndexedSlices(Symbolic):
    """Rows of a tensor that is zero elsewhere, such as the gradient of a gather.

    Rows of equal index add up, and rows whose index is out of range do not count. Wherever a tensor
    is expected it stands for the whole tensor, T[*shape]. Outside of graph code it consists of
    arrays; `to_tensor` returns the whole array.

    Args:
      values: T[n, *row], the rows: a tensor or an array.
      indices: i[n], their indices.
      shape: shape of the whole tensor, (m, *row).

    Raises:
      ValueError: if the shapes do not fit.
    """

    __slots__ = ("_dense", "dense_shape", "indices", "values")

    def __init__(self, values: Any, indices: Any, shape: tuple[int, ...]) -> None:
        if not isinstance(values, Symbolic):
            values, indices = jnp.asarray(values), jnp.asarray(indices)
        if indices.ndim != 1 or tuple(values.shape) != (indices.shape[0], *shape[1:]):
            raise ValueError(
                f"expected rows of a tensor of shape {shape} and an index for each, got values of "
                f"shape {declared(values.shape)} and indices of shape {declared(indices.shape)}"
            )
        self.values = values
        self.indices = indices
        self.dense_shape = shape
        self._dense: Any = None

    @property
    def shape(self) -> TensorShape:
        """The shape of the whole tensor."""
        return TensorShape.of(self.dense_shape)

    @property
    def dtype(self) -> Dtype:
        """The dtype of the elements."""
        return self.values.dtype

    @property
    def graph(self) -> Graph:
        """The graph that the tensors belong to."""
        graph: Graph = self.values.graph
        return graph

    @property
    def op(self) -> Operation:
        """The operation that computes the values."""
        op: Operation = self.values.op
        return op

    @property
    def device(self) -> str:
        """The device that is requested for the values."""
        device: str = self.values.device
        return device

    @property
    def is_array(self) -> bool:
        """Whether the components are arrays rather than tensors of a graph."""
        return not isinstance(self.values, Symbolic)

    def to_tensor(self) -> Any:
        if self.is_array:
            return _dense(self.values, self.indices, self.dense_shape[0])
        if self._dense is None:
            with colocate_with(self.values, ignore_existing=True):
                args = (self.values, self.indices, self.dense_shape[0])
                self._dense = self.graph.apply(_dense, args, name="dense")
        return self._dense

    def _apply(self, fun: Callable[..., Any], *args: Any) -> Any:
        if self.is_array:
            return fun(*(x.to_tensor() if isinstance(x, IndexedSlices) else x for x in args))
        return self.graph.apply(fun, args)

    def _value_for(self, use: str) -> Any:
        return self.to_tensor() if self.is_array else super()._value_for(use)

    def __repr__(self) -> str:
        n_rows = declared(self.indices.shape)[0]  # type: ignore[index]
        text = f"{n_rows} rows of shape={self.shape} dtype={self.dtype.name}"
        if not self.is_array:
            text += f" values={self.values.name!r} indices={self.indices.name!r}"
        return f"<jflow.IndexedSlices {text}>"


def _dense(values: jax.Array, indices: jax.Array, n_rows: int) -> jax.Array:
    zeros = jnp.zeros((n_rows, *values.shape[1:]), values.dtype)
    return zeros.at[jnp.where(indices < 0, n_rows, indices)].add(values, mode="drop")


class SparseTensor(NamedTuple):
    """A sparse tensor in coordinate format.

    Attributes:
      indices: i64[n, rank], the positions of the elements, on the host.
      values: dtype[n], the elements.
      dense_shape: i64[rank], the shape of the dense tensor, on the host.
    """

    indices: Tensor
    values: Tensor
    dense_shape: Tensor


def refuse_sparse(values: Iterable[Any], what: object) -> None:
    """Raises TypeError if one of the values is a `SparseTensor`, which cannot be batched.

    Args:
      values: arguments of a function.
      what: the function or queue, for the message.
    """
    for value in values:
        if isinstance(value, SparseTensor):
            raise TypeError(
                f"{what} does not accept a SparseTensor, because its parts differ in size between "
                f"elements (made by operation {value.values.op.name!r} at "
                f"{value.values.op.origin}); batch the serialized Examples and parse the batch "
                "with jflow.parse_example, or read the feature as a FixedLenFeature or "
                "FixedLenSequenceFeature"
            )
