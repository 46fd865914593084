"""`IndexedSlices`: rows of a tensor that is zero elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jflow.graph import Graph, Operation, Symbolic, Tensor, colocate_with
from jflow.values import Dtype, declared


class IndexedSlices(Symbolic):
    """Rows of a tensor that is zero elsewhere, such as the gradient of a gather.

    Rows of equal index add up, and rows whose index is out of range do not count. Wherever a tensor
    is expected it stands for the whole tensor, T[*shape].

    Args:
      values: T[n, *row], the rows.
      indices: i[n], their indices.
      shape: shape of the whole tensor, (m, *row).

    Raises:
      ValueError: if the shapes do not fit.
    """

    __slots__ = ("_dense", "dense_shape", "indices", "values")

    def __init__(self, values: Tensor, indices: Tensor, shape: tuple[int, ...]) -> None:
        if indices.ndim != 1 or tuple(values.shape) != (indices.shape[0], *shape[1:]):
            raise ValueError(
                f"expected rows of a tensor of shape {shape} and an index for each, got values of "
                f"shape {declared(values.shape)} and indices of shape {declared(indices.shape)}"
            )
        self.values = values
        self.indices = indices
        self.dense_shape = shape
        self._dense: Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole tensor."""
        return self.dense_shape

    @property
    def dtype(self) -> Dtype:
        """The dtype of the elements."""
        return self.values.dtype

    @property
    def graph(self) -> Graph:
        """The graph it belongs to."""
        return self.values.graph

    @property
    def op(self) -> Operation:
        """The operation that computes the values."""
        return self.values.op

    @property
    def device(self) -> str:
        """The device that is requested for the values."""
        return self.values.device

    def to_tensor(self) -> Tensor:
        if self._dense is None:
            with colocate_with(self.values, ignore_existing=True):
                args = (self.values, self.indices, self.dense_shape[0])
                self._dense = self.graph.apply(_dense, args, name="dense")
        assert self._dense is not None
        return self._dense

    def _apply(self, fun: Callable[..., Any], *args: Any) -> Any:
        return self.graph.apply(fun, args)

    def __repr__(self) -> str:
        n_rows = declared(self.indices.shape)[0]  # type: ignore[index]
        return (
            f"<jflow.IndexedSlices {n_rows} rows of shape={self.shape} dtype={self.dtype.name} "
            f"values={self.values.name!r} indices={self.indices.name!r}>"
        )


def _dense(values: jax.Array, indices: jax.Array, n_rows: int) -> jax.Array:
    zeros = jnp.zeros((n_rows, *values.shape[1:]), values.dtype)
    return zeros.at[jnp.where(indices < 0, n_rows, indices)].add(values, mode="drop")
