"""Snapshots of accumulators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from jflow.base.packing import Record
from jflow.base.values import Array, Shape, TensorSpec, is_compatible, shape_text
from jflow.state.resources.accumulator.spec import AccumulatorSpec
from jflow.state.resources.snapshot import PackedSnapshot, check_count, inconsistent
from jflow.state.resources.tensors import check_fits


@dataclass(frozen=True, eq=False)
class SumSnapshot:
    """The saved sum of an accumulator's gradients.

    Attributes:
      n_gradients: the number of gradients added.
      sums: the sum, in `AccumulatorSpec.sum_dtype`; for sparse gradients [n, ...], the sum for each
        index. None if there are no gradients.
      indices: i64[n], ascending, the indices that occurred; None if the gradients are dense.
      counts: i64[n], the number of gradients with each index; None if the gradients are dense.
      shape: the shape of the tensor that sparse gradients are slices of, as far as it is known.
    """

    n_gradients: int
    sums: Array | None
    indices: Array | None = None
    counts: Array | None = None
    shape: Shape = None


class _Packed(Record, frozen=True):
    """The record of an accumulator's snapshot: everything except its arrays.

    Attributes:
      present: whether the sum has sums, indices and counts.
    """

    what = "snapshot of an accumulator"

    spec: AccumulatorSpec
    global_step: int
    n_dropped: int
    n_gradients: int
    shape: Shape
    present: tuple[bool, bool, bool]


@dataclass(frozen=True, eq=False)
class AccumulatorSnapshot:
    """The saved state of an accumulator: its gradients, its step and its counters.

    Attributes:
      spec: the definition of the accumulator.
      global_step: gradients of smaller steps are dropped.
      n_dropped: the number of gradients that have been dropped.
      gradient_sum: the gradients since the last take.
    """

    spec: AccumulatorSpec
    global_step: int
    n_dropped: int
    gradient_sum: SumSnapshot

    def packed(self) -> PackedSnapshot:
        """See `Snapshot`."""
        saved = self.gradient_sum
        arrays = (saved.sums, saved.indices, saved.counts)
        sums, indices, counts = (array is not None for array in arrays)
        record = _Packed(
            self.spec,
            self.global_step,
            self.n_dropped,
            saved.n_gradients,
            saved.shape,
            (sums, indices, counts),
        )
        return PackedSnapshot(
            record.to_bytes(), tuple(array for array in arrays if array is not None)
        )

    @classmethod
    def unpacked(cls, packed: PackedSnapshot) -> Self:
        """See `Snapshot`."""
        record = _Packed.from_bytes(packed.record)
        check_count(packed.arrays, sum(record.present), record.what)
        remaining_arrays = iter(packed.arrays)
        sums, indices, counts = (
            next(remaining_arrays) if there else None for there in record.present
        )
        gradient_sum = SumSnapshot(record.n_gradients, sums, indices, counts, record.shape)
        return cls(record.spec, record.global_step, record.n_dropped, gradient_sum)

    def check(self, accumulator: object) -> None:
        """Raises InvalidArgumentError if the sums do not match the spec."""
        spec, saved = self.spec, self.gradient_sum
        if saved.n_gradients < 0 or (saved.sums is None) != (saved.n_gradients == 0):
            has = "no sum" if saved.sums is None else "a sum"
            raise inconsistent(accumulator, f"{saved.n_gradients} gradients with {has}")
        if spec.is_sparse:
            _check_slices(spec, saved, accumulator)
        elif saved.sums is not None:
            expected = TensorSpec(spec.shape, spec.sum_dtype)
            check_fits(expected, saved.sums, "sum of the snapshot", accumulator)


def _check_slices(spec: AccumulatorSpec, saved: SumSnapshot, accumulator: object) -> None:
    indices, counts, sums, shape = saved.indices, saved.counts, saved.sums, saved.shape
    if indices is None or counts is None:
        raise inconsistent(accumulator, "sparse gradients have indices and counts")
    n = len(indices)
    vector = TensorSpec((n,), "int64")
    check_fits(vector, indices, "indices of the snapshot", accumulator)
    check_fits(vector, counts, "counts of the snapshot", accumulator)
    if sums is None:
        if n:
            raise inconsistent(accumulator, f"{n} indices without gradients")
        return
    if not shape or not is_compatible(spec.shape, shape):
        raise inconsistent(
            accumulator, f"shape {shape_text(shape)}, expected {shape_text(spec.shape)}"
        )
    expected = TensorSpec((n, *shape[1:]), spec.sum_dtype)
    check_fits(expected, sums, "sums of the snapshot", accumulator)
    end = np.inf if shape[0] is None else shape[0]
    if n and not (indices[0] >= 0 and indices[-1] < end and (np.diff(indices) > 0).all()):
        raise inconsistent(accumulator, f"indices {indices} of a tensor of {shape_text(shape)}")
