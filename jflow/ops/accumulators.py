"""Conditional accumulators: sums of gradients, taken when enough have been applied."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jflow.graph import Operation, Tensor
from jflow.resources.accumulator import AccumulatorSpec
from jflow.stateful import Handle
from jflow.values import abstract, as_dtype, as_shape, declared, is_compatible, unknown_dim

_INT32 = np.dtype(np.int32)


class _AccumulatorBase(Handle):
    """Base of dense and sparse accumulators."""

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
        """How many gradients have been applied since the last take, as an int32 scalar."""
        aval = abstract((), _INT32)
        name = name or f"{self._title}_num_accumulated"
        op = self._calls.call("accumulator.num_accumulated", [], [aval], name, is_blocking=False)
        return op.outputs[0]

    def set_global_step(self, new_global_step: Any, name: str | None = None) -> Operation:
        """An operation that sets the step; gradients of earlier ones are dropped from then on."""
        step = self._integer(new_global_step)
        return self._calls.call(
            "accumulator.set_global_step", [step], [], name or f"{self._title}_SetGlobalStep"
        )

    def _integer(self, value: Any) -> Tensor:
        """A scalar of some integer type."""
        if getattr(value, "to_tensor", None) is None:
            return self._graph.constant(value, _INT32, on_host=True)
        tensor = self._graph.as_tensor(value)
        if not isinstance(tensor.dtype, np.dtype) or tensor.dtype.kind not in "iu":
            raise TypeError(f"{self!r} counts in integers, got {tensor!r}")
        return tensor


class ConditionalAccumulator(_AccumulatorBase):
    """Adds up gradients; taking the result blocks until enough have been applied.

    Each gradient has a step. One with a step before the accumulator's is stale and is dropped
    silently. Each take begins the next step.

    Args:
      dtype: of the gradients; those of 16 bits are added up in float32.
      shape: of the gradients, None where a size is not known; None for any.
      shared_name: its name in the container; without one each session has its own.
      name: name of the operation that stands for it.
      reduction_type: what is taken, "MEAN" or "SUM".

    Raises:
      InvalidArgumentError, TypeError: if there can be no such accumulator.
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
        """An operation that adds a gradient of a step, or drops it if it is stale.

        Raises:
          TypeError, ValueError: if it has another dtype or shape.
        """
        gradient = self._calls.operand(grad, self._dtype)
        if not is_compatible(self._shape, gradient.shape):
            raise ValueError(
                f"expected a gradient of shape {self._shape} for {self!r}, got {gradient!r}"
            )
        inputs = [gradient, self._integer(local_step)]
        return self._calls.call("accumulator.apply", inputs, [], name or f"{self._title}_ApplyGrad")

    def take_grad(self, num_required: Any, name: str | None = None) -> Tensor:
        """The mean, or sum, of all gradients; it waits until there are `num_required` of them."""
        aval = abstract(as_shape(self._shape), self._dtype)
        inputs = [self._integer(num_required)]
        name = name or f"{self._title}_TakeGrad"
        return self._calls.call("accumulator.take", inputs, [aval], name).outputs[0]


class SparseConditionalAccumulator(_AccumulatorBase):
    """As `ConditionalAccumulator`, for gradients that are slices of a tensor.

    The result has, for each slice, the mean or sum of the gradients that contain it.

    Args:
      dtype, shared_name, name, reduction_type: as for a `ConditionalAccumulator`.
      shape: of the whole tensor, None where a size is not known; None for any.

    Raises:
      InvalidArgumentError, TypeError: if there can be no such accumulator.
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
        """An operation that adds a sparse gradient of a step, or drops it if it is stale.

        Args:
          grad_indices: i[n], which slices they are.
          grad_values: dtype[n, ...], the slices.
          grad_shape: i[rank], the shape of the whole tensor, if it is known.
          local_step: the step.
          name: name of the operation.

        Raises:
          TypeError: if it has another dtype.
        """
        inputs = [
            self._integer(local_step),
            self._integer(grad_indices),
            self._calls.operand(grad_values, self._dtype),
        ]
        if grad_shape is not None:
            inputs.append(self._integer(grad_shape))
        name = name or f"{self._title}_ApplySparseGrad"
        return self._calls.call("accumulator.apply_sparse", inputs, [], name)

    def take_grad(self, num_required: Any, name: str | None = None) -> tuple[Tensor, ...]:
        """Indices i[n] in ascending order, values dtype[n, ...], and the whole shape i[rank].

        It waits until there are `num_required` gradients.
        """
        index = jax.dtypes.canonicalize_dtype(np.int64)
        n_slices = unknown_dim()
        shape = self._shape
        avals = [
            abstract((n_slices,), index),
            abstract(None if shape is None else as_shape((n_slices, *shape[1:])), self._dtype),
            abstract((unknown_dim() if shape is None else len(shape),), index),
        ]
        name = name or f"{self._title}_TakeSparseGrad"
        attributes = {"index_dtype": index.name}
        inputs = [self._integer(num_required)]
        op = self._calls.call("accumulator.take_sparse", inputs, avals, name, attributes)
        return op.outputs
