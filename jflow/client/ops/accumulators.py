"""Conditional accumulators: sum gradients, which can be taken once enough have been applied."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jflow.base.values import (
    abstract,
    as_dtype,
    as_shape,
    declared,
    is_compatible,
    is_static,
    unknown_dim,
)
from jflow.client.ops.slices import IndexedSlices
from jflow.client.stateful import Handle
from jflow.compiler.graph import Operation, Symbolic, Tensor
from jflow.state.resources.accumulator import AccumulatorSpec

_INT32 = np.dtype(np.int32)


class _AccumulatorBase(Handle):
    """Base of dense and sparse accumulators."""

    _instead_of_value = "take its gradient first: accumulator.take_grad(n)"

    def __init__(
        self,
        dtype: Any,
        shape: Any,
        shared_name: str | None,
        name: str,
        reduction_type: str,
        *,
        is_sparse: bool,
    ) -> None:
        self._dtype = as_dtype(dtype)
        self._shape = declared(as_shape(shape))
        spec = AccumulatorSpec(self._dtype.name, self._shape, reduction_type, is_sparse)
        super().__init__("accumulator", spec, shared_name, name)

    @property
    def dtype(self) -> Any:
        """The dtype of the gradients."""
        return self._dtype

    def _details(self) -> dict[str, Any]:
        return {"dtype": self._dtype.name, "shape": self._shape}

    def num_accumulated(self, name: str | None = None) -> Tensor:
        """Returns the number of gradients applied since the last take, i32[]."""
        aval = abstract((), _INT32)
        name = name or f"{self._title}_num_accumulated"
        op = self._calls.call("accumulator.num_accumulated", [], [aval], name, is_blocking=False)
        return op.outputs[0]

    def set_global_step(self, new_global_step: Any, name: str | None = None) -> Operation:
        """Returns an operation that sets the step; gradients of earlier steps become stale.

        Args:
          new_global_step: an integer scalar.
          name: name of the operation.

        Raises:
          TypeError: if it is not an integer.
        """
        step = self._integer(new_global_step)
        return self._calls.call(
            "accumulator.set_global_step", [step], [], name or f"{self._title}_SetGlobalStep"
        )

    def _check_shape(self, gradient: Any, shape: Any) -> None:
        if not is_compatible(self._shape, shape):
            raise ValueError(
                f"expected a gradient of shape {self._shape} for {self!r}, got {gradient!r}"
            )

    def _integer(self, value: Any) -> Tensor:
        """Returns a value as a tensor, which must have an integer dtype."""
        if not isinstance(value, Symbolic):
            return self._graph.constant(value, _INT32, on_host=True)
        tensor = self._graph.as_tensor(value)
        if not isinstance(tensor.dtype, np.dtype) or tensor.dtype.kind not in "iu":
            raise TypeError(f"{self!r} requires integers here, got {tensor!r}")
        return tensor


class ConditionalAccumulator(_AccumulatorBase):
    """Sums dense gradients; taking the result blocks until enough have been applied.

    Each gradient carries the step that it was computed for. If that is before the accumulator's
    step, the gradient is stale and is dropped silently. Each take begins the next step.

    Args:
      dtype: dtype of the gradients; gradients of 16 bits are summed in float32.
      shape: shape of the gradients, with None for each unknown size; None for any shape.
      shared_name: name in the container, by which sessions share it; None for one per session.
      name: name of its handle op.
      reduction_type: result of a take, "MEAN" or "SUM".

    Raises:
      InvalidArgumentError: if the reduction is unknown, or the dtype cannot be summed.
      TypeError: if `dtype` or `shape` is not one.
    """

    def __init__(
        self,
        dtype: Any,
        shape: Any = None,
        shared_name: str | None = None,
        name: str = "conditional_accumulator",
        reduction_type: str = "MEAN",
    ) -> None:
        super().__init__(dtype, shape, shared_name, name, reduction_type, is_sparse=False)

    def apply_grad(self, grad: Any, local_step: Any = 0, name: str | None = None) -> Operation:
        """Returns an operation that adds a gradient, or drops it if it is stale.

        Args:
          grad: dtype[*shape], the gradient.
          local_step: integer scalar, the step that the gradient was computed for.
          name: name of the operation.

        Raises:
          TypeError: if the gradient has another dtype.
          ValueError: if the gradient has another shape.
        """
        gradient = self._calls.operand(grad, self._dtype)
        self._check_shape(gradient, gradient.shape)
        inputs = [gradient, self._integer(local_step)]
        return self._calls.call("accumulator.apply", inputs, [], name or f"{self._title}_ApplyGrad")

    def take_grad(self, num_required: Any, name: str | None = None) -> Tensor:
        """Returns the mean or sum of the gradients applied, dtype[*shape], and resets the sum.

        The step blocks until `num_required` gradients that are not stale have been applied.

        Args:
          num_required: integer scalar, at least 1.
          name: name of the operation.
        """
        aval = abstract(as_shape(self._shape), self._dtype)
        inputs = [self._integer(num_required)]
        name = name or f"{self._title}_TakeGrad"
        return self._calls.call("accumulator.take", inputs, [aval], name).outputs[0]


class SparseConditionalAccumulator(_AccumulatorBase):
    """Sums sparse gradients; taking the result blocks until enough have been applied.

    A sparse gradient holds some slices of a tensor along its first dimension. The result has, for
    each slice, the mean or sum over the gradients that contain it.

    Args:
      dtype, shared_name, name, reduction_type: as for a `ConditionalAccumulator`.
      shape: shape of the dense tensor, with None for each unknown size; None for any shape.

    Raises:
      InvalidArgumentError, TypeError: as `ConditionalAccumulator`.
    """

    def __init__(
        self,
        dtype: Any,
        shape: Any = None,
        shared_name: str | None = None,
        name: str = "sparse_conditional_accumulator",
        reduction_type: str = "MEAN",
    ) -> None:
        super().__init__(dtype, shape, shared_name, name, reduction_type, is_sparse=True)

    def apply_grad(
        self,
        grad_indices: Any,
        grad_values: Any,
        grad_shape: Any = None,
        local_step: Any = 0,
        name: str | None = None,
    ) -> Operation:
        """Returns an operation that adds a sparse gradient, or drops it if it is stale.

        Args:
          grad_indices: i[n], the positions of the slices along the first dimension.
          grad_values: dtype[n, ...], the slices.
          grad_shape: i[rank], the shape of the dense tensor, if it is known.
          local_step: integer scalar, the step that the gradient was computed for.
          name: name of the operation.

        Raises:
          TypeError: if the gradient has another dtype, or indices that are not integers.
        """
        return self._apply((grad_indices, grad_values, grad_shape), local_step, name)

    def apply_indexed_slices_grad(
        self, grad: IndexedSlices, local_step: Any = 0, name: str | None = None
    ) -> Operation:
        """Returns an operation that adds a gradient that is rows, or drops it if it is stale.

        Args:
          grad: the gradient; rows whose index is out of range do not count, as in all its uses.
          local_step, name: as for `apply_grad`.

        Raises:
          TypeError: if it is not an `IndexedSlices`, or has another dtype.
          ValueError: if the gradient has another shape.
        """
        if not isinstance(grad, IndexedSlices):
            raise TypeError(f"{self!r} expected an IndexedSlices, got {grad!r}")
        self._check_shape(grad, grad.dense_shape)
        shape = grad.dense_shape if is_static(grad.dense_shape) else None
        return self._apply(
            (grad.indices, grad.values, shape), local_step, name, {"drops_out_of_range": True}
        )

    def _apply(
        self,
        grad: tuple[Any, Any, Any],
        local_step: Any,
        name: str | None,
        attributes: dict[str, Any] | None = None,
    ) -> Operation:
        """Adds a gradient, given by indices, values and dense shape, which may be None."""
        indices, values, shape = grad
        inputs = [
            self._integer(local_step),
            self._integer(indices),
            self._calls.operand(values, self._dtype),
        ]
        if shape is not None:
            inputs.append(self._integer(shape))
        name = name or f"{self._title}_ApplySparseGrad"
        return self._calls.call("accumulator.apply_sparse", inputs, [], name, attributes)

    def take_grad(self, num_required: Any, name: str | None = None) -> tuple[Tensor, ...]:
        """Returns the mean or sum of the gradients applied, and resets the sum.

        The step blocks until `num_required` gradients that are not stale have been applied.

        Args:
          num_required: integer scalar, at least 1.
          name: name of the operation.

        Returns:
          Indices i[n] in ascending order, values dtype[n, ...], and the dense shape i[rank].
        """
        return self._take(num_required, name)

    def take_indexed_slices_grad(
        self, num_required: Any, name: str | None = None, *, is_padded: bool = False
    ) -> IndexedSlices:
        """Returns the mean or sum of the gradients applied as rows, and resets the sum.

        Args:
          num_required, name: as for `take_grad`.
          is_padded: whether there are as many rows as a power of two, by rows that do not count, so
            that programs that use them are compiled for few sizes.

        Raises:
          ValueError: if a size of the accumulator's shape is unknown.
        """
        shape = tuple(size for size in self._shape or () if size is not None)
        if self._shape != shape:
            raise ValueError(
                f"an IndexedSlices has a shape without unknown sizes, got {self!r}; give the "
                "accumulator the shape, or use take_grad"
            )
        indices, values, _ = self._take(num_required, name, is_padded=is_padded)
        return IndexedSlices(values, indices, shape)

    def _take(
        self, num_required: Any, name: str | None, *, is_padded: bool = False
    ) -> tuple[Tensor, ...]:
        index = jax.dtypes.canonicalize_dtype(np.int64)
        n_slices = unknown_dim()
        shape = self._shape
        avals = [
            abstract((n_slices,), index),
            abstract(None if shape is None else as_shape((n_slices, *shape[1:])), self._dtype),
            abstract((unknown_dim() if shape is None else len(shape),), index),
        ]
        name = name or f"{self._title}_TakeSparseGrad"
        attributes = {"index_dtype": index.name, "is_padded": is_padded}
        inputs = [self._integer(num_required)]
        op = self._calls.call("accumulator.take_sparse", inputs, avals, name, attributes)
        return op.outputs
