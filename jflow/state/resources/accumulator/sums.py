"""Running sums of gradients, dense and sparse."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from jflow.base.values import Array, TensorSpec, is_compatible, shape_text
from jflow.errors import InvalidArgumentError
from jflow.state.resources.accumulator.snapshot import SumSnapshot
from jflow.state.resources.accumulator.spec import MEAN, AccumulatorSpec
from jflow.state.resources.tensors import check_fits

_VECTOR = TensorSpec((None,), "int64")


class GradientSum(ABC):
    """Base of the running sums of gradients.

    Args:
      spec: the definition of the accumulator.
      name: its name in messages.

    Attributes:
      n_gradients: the number of gradients added.
    """

    def __init__(self, spec: AccumulatorSpec, name: str) -> None:
        self._spec = spec
        self._name = f"{spec.kind} {name!r}"
        self.n_gradients = 0
        self.clear()

    @abstractmethod
    def clear(self) -> None:
        """Discards all gradients."""

    @abstractmethod
    def take_result(self) -> tuple[Array, ...]:
        """Returns the sum or mean of the gradients, at least one, and discards them."""

    @abstractmethod
    def save(self) -> SumSnapshot:
        """Returns a copy of the sum."""

    @abstractmethod
    def load(self, saved: SumSnapshot) -> None:
        """Replaces the sum with a copy of a saved one."""


class DenseSum(GradientSum):
    """The sum of gradients that are arrays of one shape."""

    def clear(self) -> None:
        self._sum: Array | None = None
        self.n_gradients = 0

    def check(self, gradient: Array) -> None:
        """Raises InvalidArgumentError if a gradient cannot be added."""
        spec = self._spec
        expected_spec = (
            spec.gradient if self._sum is None else TensorSpec(self._sum.shape, spec.dtype)
        )
        check_fits(expected_spec, gradient, "gradient", self._name)

    def add(self, gradient: Array) -> None:
        """Adds a gradient."""
        with np.errstate(all="ignore"):
            if self._sum is None:
                self._sum = gradient.astype(self._spec.sum_dtype)
            else:
                self._sum += gradient
        self.n_gradients += 1

    def take_result(self) -> tuple[Array, ...]:
        assert self._sum is not None
        gradient = _reduce(self._sum, self.n_gradients, self._spec)
        self.clear()
        return (gradient,)

    def save(self) -> SumSnapshot:
        return SumSnapshot(self.n_gradients, _copy(self._sum))

    def load(self, saved: SumSnapshot) -> None:
        self._sum, self.n_gradients = _copy(saved.sums), saved.n_gradients


@dataclass(frozen=True)
class Slices:
    """A sparse gradient: slices of a tensor along its first dimension.

    Attributes:
      indices: i64[n], the indices of the slices; slices with the same index are added.
      values: the slices, [n, ...].
      dense_shape: i64[rank], the shape of the tensor; None if unknown.
    """

    indices: Array
    values: Array
    dense_shape: Array | None


class SparseSum(GradientSum):
    """The sums of sparse gradients, separately for each index."""

    def clear(self) -> None:
        self.n_gradients = 0
        self._indices = np.empty(0, np.int64)  # ascending
        self._counts = np.empty(0, np.int64)  # how many gradients have each index
        self._sums: Array | None = None
        self._shape = self._spec.shape  # the dense shape, as far as it is known

    def check(self, gradient: Slices) -> None:
        """Raises InvalidArgumentError if a gradient cannot be added."""
        indices, values = gradient.indices, gradient.values
        check_fits(_VECTOR, indices, "indices", self._name)
        expected = self._shape or (None, *values.shape[1:])
        slices = TensorSpec((len(indices), *expected[1:]), self._spec.dtype)
        check_fits(slices, values, "values", self._name)
        self._check_range(indices, self._shape_with(gradient)[0])

    def add(self, gradient: Slices) -> None:
        """Adds a gradient."""
        self._shape = self._shape_with(gradient)
        with np.errstate(all="ignore"):
            indices, sums = _sum_by_index(
                gradient.indices, gradient.values.astype(self._spec.sum_dtype)
            )
            counts = np.ones(len(indices), np.int64)
            if self._sums is not None:
                indices = np.concatenate([self._indices, indices])
                counts = np.concatenate([self._counts, counts])
                sums = np.concatenate([self._sums, sums])
                _, counts = _sum_by_index(indices, counts)
                indices, sums = _sum_by_index(indices, sums)
        self._indices, self._counts, self._sums = indices, counts, sums
        self.n_gradients += 1

    def take_result(self) -> tuple[Array, ...]:
        """Returns the sum or mean for each index that occurred, and discards the gradients.

        Returns:
          Indices i64[n], ascending; slices [n, ...]; the shape of the tensor, i64[rank], with -1
          for the first size if it is unknown.
        """
        assert self._sums is not None
        counts = self._counts.reshape(-1, *[1] * (self._sums.ndim - 1))
        slices = _reduce(self._sums, counts, self._spec)
        n_slices = self._shape[0] if self._shape else None
        shape = (-1 if n_slices is None else n_slices, *slices.shape[1:])
        indices = self._indices
        self.clear()
        return indices, slices, np.array(shape, np.int64)

    def save(self) -> SumSnapshot:
        return SumSnapshot(
            self.n_gradients,
            _copy(self._sums),
            self._indices.copy(),
            self._counts.copy(),
            self._shape,
        )

    def load(self, saved: SumSnapshot) -> None:
        assert saved.indices is not None
        assert saved.counts is not None
        self.clear()
        if saved.sums is not None:
            self._sums, self._shape = saved.sums.copy(), saved.shape
            self._indices, self._counts = saved.indices.copy(), saved.counts.copy()
            self.n_gradients = saved.n_gradients

    def _shape_with(self, gradient: Slices) -> tuple[int | None, ...]:
        """Returns the shape of the tensor, refined by the shape of this gradient.

        Raises:
          InvalidArgumentError: if its dense shape contradicts its slices or earlier gradients.
        """
        known_shape = (self._shape[0] if self._shape else None, *gradient.values.shape[1:])
        if gradient.dense_shape is None:
            return known_shape
        check_fits(_VECTOR, gradient.dense_shape, "dense shape", self._name)
        shape = tuple(gradient.dense_shape.tolist())
        if not is_compatible(known_shape, shape):
            raise InvalidArgumentError(
                f"Shape mismatch in dense shape. Expected {shape_text(known_shape)}, "
                f"got {shape_text(shape)} ({self._name})"
            )
        return shape

    def _check_range(self, indices: Array, n_slices: int | None) -> None:
        low = indices.min(initial=0)
        high = max(indices.max(initial=-1), self._indices.max(initial=-1))
        if low < 0 or (n_slices is not None and high >= n_slices):
            raise InvalidArgumentError(
                "indices of sparse gradients are out of range. Expected 0 to "
                f"{'any' if n_slices is None else n_slices - 1}, got {low} to {high} "
                f"({self._name})"
            )


def _copy(array: Array | None) -> Array | None:
    return None if array is None else array.copy()


def _reduce(gradient_sum: Array, n_gradients: int | Array, spec: AccumulatorSpec) -> Array:
    """Returns the mean or the sum, by the spec, in the dtype of the gradients."""
    with np.errstate(all="ignore"):
        if spec.reduction != MEAN:
            reduced = gradient_sum
        elif gradient_sum.dtype.kind in "iu":
            n = np.asarray(n_gradients, gradient_sum.dtype)
            # TensorFlow rounds integer division towards zero.
            reduced = (gradient_sum - np.fmod(gradient_sum, n)) // n
        else:
            reduced = gradient_sum / n_gradients
        return np.asarray(reduced).astype(spec.gradient.numpy_dtype, copy=False)


def _sum_by_index(indices: Array, rows: Array) -> tuple[Array, Array]:
    """Sums rows by index; returns the distinct indices, ascending, and the sum for each."""
    order = np.argsort(indices, kind="stable")
    indices = indices[order]
    starts = np.flatnonzero(np.diff(indices, prepend=-1))  # no index is negative
    if not len(starts):
        return indices, rows
    return indices[starts], np.add.reduceat(rows[order], starts, axis=0, dtype=rows.dtype)
