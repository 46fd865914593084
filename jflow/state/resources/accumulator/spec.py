"""The definition of accumulators."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from jflow.base.values import Shape, TensorSpec, shape_text
from jflow.errors import InvalidArgumentError
from jflow.state.resources.spec import Spec
from jflow.state.resources.tensors import checked_spec

MEAN = "MEAN"
SUM = "SUM"
REDUCTIONS = (MEAN, SUM)

_WIDE = (np.dtype(np.uint64), np.dtype(np.int64), np.dtype(np.float32))


class AccumulatorSpec(Spec, frozen=True, dict=True):
    """The definition of an accumulator: dtype and shape of its gradients, and how they are reduced.

    Attributes:
      dtype: the name of the gradients' dtype, such as "float32".
      shape: the shape of the gradients; if they are sparse, that of the whole tensor.
      reduction: one of `REDUCTIONS`.
      is_sparse: whether gradients are slices along the first dimension, with their indices.

    Raises:
      InvalidArgumentError: if the definition is not valid.
    """

    what = "accumulator"

    dtype: str
    shape: Shape
    reduction: str = MEAN
    is_sparse: bool = False

    def __post_init__(self) -> None:
        if self.gradient.numpy_dtype.kind in "bO":
            raise InvalidArgumentError(f"expected gradients with a numeric dtype, got {self.dtype}")
        if self.reduction not in REDUCTIONS:
            raise InvalidArgumentError(
                f"expected one of {', '.join(REDUCTIONS)} as reduction, got {self.reduction!r}"
            )
        if self.is_sparse and self.shape == ():
            raise InvalidArgumentError(
                "sparse gradients need a shape of at least one dimension, got ()"
            )

    @property
    def kind(self) -> str:
        """The kind of accumulator, for messages."""
        return "sparse conditional accumulator" if self.is_sparse else "conditional accumulator"

    @cached_property
    def gradient(self) -> TensorSpec:
        """The dtype and shape of a gradient."""
        return checked_spec(self.shape, self.dtype)

    @cached_property
    def sum_dtype(self) -> np.dtype[Any]:
        """The dtype of sums: wider than small dtypes, which lose precision or overflow."""
        own = self.gradient.numpy_dtype
        return next((wide for wide in _WIDE if np.can_cast(own, wide)), own)

    def facts(self) -> Iterator[tuple[str, Any]]:
        yield "kind", self.kind
        yield "dtype", self.dtype
        yield "shape", shape_text(self.shape)
        yield "reduction", self.reduction
