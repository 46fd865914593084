"""What an accumulator is made as, and what a graph expects of one that exists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from jflow.errors import InvalidArgumentError
from jflow.resources.attributes import Attributes
from jflow.resources.component import Component, Shape, shape_text

MEAN = "MEAN"
SUM = "SUM"
REDUCTIONS = (MEAN, SUM)

_WIDE = (np.dtype(np.uint64), np.dtype(np.int64), np.dtype(np.float32))


@dataclass(frozen=True)
class AccumulatorSpec:
    """An accumulator's type, and what it makes of its gradients.

    Attributes:
      dtype: name of the gradients' dtype, such as "float32".
      shape: what their shapes must match; those of the whole tensor if they are sparse.
      reduction: one of `REDUCTIONS`.
      is_sparse: whether gradients are slices along the first dimension, with their indices.

    Raises:
      InvalidArgumentError: if there can be no such accumulator.
    """

    dtype: str
    shape: Shape
    reduction: str = MEAN
    is_sparse: bool = False

    def __post_init__(self) -> None:
        if self.gradient.numpy_dtype.kind in "bO":
            raise InvalidArgumentError(f"expected gradients of numbers, got dtype {self.dtype}")
        if self.reduction not in REDUCTIONS:
            raise InvalidArgumentError(
                f"expected one of {', '.join(REDUCTIONS)} as reduction, got {self.reduction!r}"
            )
        if self.is_sparse and self.shape == ():
            raise InvalidArgumentError("sparse gradients have a first dimension, got shape []")

    @property
    def kind(self) -> str:
        """What messages call such an accumulator."""
        return "sparse conditional accumulator" if self.is_sparse else "conditional accumulator"

    @cached_property
    def gradient(self) -> Component:
        """What its gradients are."""
        return Component(self.dtype, self.shape)

    @cached_property
    def slices(self) -> Component:
        """What the slices of a sparse gradient are."""
        return Component(self.dtype, self.shape and (None, *self.shape[1:]))

    @cached_property
    def total_dtype(self) -> np.dtype[Any]:
        """What gradients are added up in: sums of small types would lose too much, or overflow."""
        own = self.gradient.numpy_dtype
        return next((wide for wide in _WIDE if np.can_cast(own, wide)), own)

    def check_same(self, found: AccumulatorSpec, name: str) -> None:
        """Refuses an existing accumulator that is not what this graph expects.

        Args:
          found: what the accumulator was made as.
          name: its name, for the message.

        Raises:
          InvalidArgumentError: saying the first thing they differ in.
        """
        for (what, wanted), (_, present) in zip(self._facts(), found._facts(), strict=True):
            if wanted != present:
                raise InvalidArgumentError(
                    f"Shared accumulator {name!r} has another {what}. Expected {wanted}, found "
                    f"{present}; use another name or container, or reset the container"
                )

    def to_attributes(self) -> dict[str, Any]:
        """This as a record of plain values."""
        return {
            "dtype": self.dtype,
            "shape": None if self.shape is None else [*self.shape],
            "reduction": self.reduction,
            "is_sparse": self.is_sparse,
        }

    @classmethod
    def from_attributes(cls, record: object) -> AccumulatorSpec:
        """What `to_attributes` described. Raises InvalidArgumentError if it did not."""
        keys = ("dtype", "shape", "reduction", "is_sparse")
        found = Attributes(record, "accumulator", keys)
        return cls(
            dtype=found.text("dtype"),
            shape=found.shape("shape"),
            reduction=found.text("reduction"),
            is_sparse=found.flag("is_sparse"),
        )

    def _facts(self) -> Iterator[tuple[str, str]]:
        """What two accumulators may differ in, as messages say it."""
        yield "kind", self.kind
        yield "dtype", self.dtype
        yield "shape", shape_text(self.shape)
        yield "reduction", self.reduction
