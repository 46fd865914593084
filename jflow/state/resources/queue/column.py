"""Columns of a queue's table: one component of all its elements, in one array."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from jflow.base.values import Array, TensorSpec, memory_bytes
from jflow.state.resources.queue.snapshot import Rows


def row_of(batch: Array, index: int) -> Array:
    """Copies one row of a batch; a view would keep the whole batch alive."""
    row: Array = batch[index, ...].copy()
    return row


def ends_in_bytes(batches: Sequence[Array]) -> Array:
    """Returns the cumulative size of the rows of all batches in bytes, i64[n + 1]."""
    n_rows = len(batches[0])
    ends: Array = np.arange(n_rows + 1)
    ends *= sum([batch.nbytes for batch in batches]) // max(1, n_rows)
    for batch in batches:
        if batch.dtype == object:
            lengths = np.fromiter(map(len, batch.flat), np.int64, batch.size)
            ends[1:] += lengths.reshape(n_rows, math.prod(batch.shape[1:])).sum(axis=1).cumsum()
    return ends


def stack(rows: Sequence[Array], component: TensorSpec) -> Array:
    """Stacks the arrays of a component along a new first dimension.

    Arrays of different shapes are padded at their ends, with zeros or empty strings, to the largest
    size in each dimension. Without arrays the sizes are those of the component, 0 if unknown.
    """
    shapes = {row.shape for row in rows} or {tuple(size or 0 for size in component.shape or ())}
    if len(shapes) == 1 and not component.is_string and rows:
        return np.array(rows, component.numpy_dtype)
    sizes = tuple(map(max, zip(*shapes, strict=True)))
    fill: Any = b"" if component.is_string else 0
    batch: Array = np.full((len(rows), *sizes), fill, component.numpy_dtype)
    for i, row in enumerate(rows):
        # The ellipsis makes NumPy store the string of a 0-d array and not the array itself.
        corner: tuple[Any, ...] = (i, *map(slice, row.shape), ...)
        batch[corner] = row
    return batch


_COPIED_BYTES = 1 << 18
"""The size of a single copy: about that of a cache, because little memory may be free."""

Index = int | Array
"""The index of a row, or an array of indices."""


class ColumnStorage(ABC):
    """Base of columns: one component of all elements, in numbered rows.

    Several rows are passed as one array, along its first dimension.

    Args:
      component: the type of the component.
      n_rows: the number of elements that it has memory for.

    Attributes:
      row_bytes: the least memory of the component in an element.
      holds_objects: whether rows must be cleared to free the objects that they refer to.
    """

    row_bytes = 0

    def __init__(self, component: TensorSpec, n_rows: int = 0) -> None:
        self._component = component
        self._array = self._empty(n_rows)
        self.holds_objects = self._array.dtype == object

    @abstractmethod
    def put(self, index: int, array: Array) -> None:
        """Stores the component of an element."""

    @abstractmethod
    def get(self, index: int) -> Array:
        """Returns a row as an array that is never modified."""

    @abstractmethod
    def row(self, array: Array) -> Array:
        """Converts the component of one element to a block of one row."""

    @abstractmethod
    def rows(self, batch: Array) -> Array:
        """Converts the component of stacked elements to rows, for `put_rows`."""

    @abstractmethod
    def batch(self, blocks: Sequence[Array]) -> Array:
        """Stacks the rows of several blocks."""

    @abstractmethod
    def saved(self, rows: Array) -> Rows:
        """Converts rows for a snapshot, which may keep them without copying."""

    @abstractmethod
    def loaded(self, saved: Rows) -> Array:
        """Converts saved rows for `put_rows`, sharing no memory with the snapshot."""

    @abstractmethod
    def n_bytes(self, rows: Array) -> int:
        """Returns the memory of rows in bytes."""

    @abstractmethod
    def _empty(self, n_rows: int) -> Array: ...

    def put_rows(self, indices: Array, rows: Array) -> None:
        """Stores rows at indices."""
        self._array[indices] = rows

    def get_rows(self, indices: Array) -> Array:
        """Returns a copy of rows."""
        rows: Array = self._array.take(indices, axis=0)
        return rows

    def clear(self, indices: Index) -> None:
        """Clears rows of Python objects, so that the objects can be freed."""
        self._array[indices] = None

    def copy(self, origin: int, index: int) -> None:
        """Copies one row to another."""
        self._array[index] = self._array[origin]

    def copy_rows(self, origins: Array, indices: Array) -> None:
        """Copies rows to other rows; the two sets must be disjoint."""
        step = max(1, _COPIED_BYTES // max(1, self.row_bytes))
        for i in range(0, len(origins), step):
            self._array[indices[i : i + step]] = self._array[origins[i : i + step]]

    def resized(self, n_rows: int, indices: Array) -> Self:
        """Returns a copy of the column with `n_rows` rows, beginning with the given rows."""
        column = type(self)(self._component, n_rows)
        # With mode="raise", the default, NumPy would need a buffer of the size of the output.
        self._array.take(indices, axis=0, out=column._array[: len(indices)], mode="clip")
        return column


class DenseColumn(ColumnStorage):
    """A column of a component with a static shape: numbers or strings, all in one array."""

    def __init__(self, component: TensorSpec, n_rows: int = 0) -> None:
        super().__init__(component, n_rows)
        self.row_bytes = math.prod(self._array.shape[1:]) * self._array.itemsize

    def put(self, index: int, array: Array) -> None:
        # The ellipsis makes NumPy store the string of a 0-d array and not the array itself.
        self._array[index, ...] = array

    def get(self, index: int) -> Array:
        array: Array = self._array[index, ...].copy()
        return array

    def row(self, array: Array) -> Array:
        return array[None]

    def rows(self, batch: Array) -> Array:
        return batch

    def batch(self, blocks: Sequence[Array]) -> Array:
        if len(blocks) == 1:
            return blocks[0]
        return np.concatenate(blocks) if blocks else self._empty(0)

    def saved(self, rows: Array) -> Rows:
        return rows

    def loaded(self, saved: Rows) -> Array:
        return np.asarray(saved)  # `put_rows` copies it

    def n_bytes(self, rows: Array) -> int:
        return memory_bytes(rows)

    def _empty(self, n_rows: int) -> Array:
        shape: Any = self._component.shape
        return np.empty((n_rows, *shape), self._component.numpy_dtype)


class RaggedColumn(ColumnStorage):
    """A column of a component whose shape varies: each row is an array of its own."""

    def put(self, index: int, array: Array) -> None:
        # A view may keep more memory alive than it needs.
        self._array[index] = array if array.base is None else array.copy()

    def get(self, index: int) -> Array:
        array: Array = self._array[index]
        return array

    def row(self, array: Array) -> Array:
        return _objects([array])

    def rows(self, batch: Array) -> Array:
        return _objects([row_of(batch, i) for i in range(len(batch))])

    def batch(self, blocks: Sequence[Array]) -> Array:
        return stack([array for block in blocks for array in block], self._component)

    def saved(self, rows: Array) -> Rows:
        return tuple([array.copy() for array in rows])

    def loaded(self, saved: Rows) -> Array:
        return _objects([array.copy() for array in saved])

    def n_bytes(self, rows: Array) -> int:
        return sum(map(memory_bytes, rows))

    def _empty(self, n_rows: int) -> Array:
        return np.empty(n_rows, object)


def _objects(arrays: Sequence[Array]) -> Array:
    """Wraps arrays in an object array, one per element."""
    objects = np.empty(len(arrays), object)
    for i, array in enumerate(arrays):
        objects[i] = array
    return objects
