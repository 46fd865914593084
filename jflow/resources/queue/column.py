"""Columns of a table: one component of all elements, in one array."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from jflow.resources.queue.batch import row_of, stack
from jflow.resources.queue.snapshot import Rows
from jflow.resources.tensors import n_bytes_of
from jflow.values import Array, TensorSpec

_COPIED_BYTES = 1 << 18
"""How much is copied at once: about the size of a cache, because little memory may be free."""

Index = int | Array
"""The number of a row, or of several."""


class ColumnStorage(ABC):
    """One component of elements in numbered rows.

    Several rows are handed over in one array, along its first dimension.

    Args:
      component: what it is.
      n_rows: how many elements it has memory for.

    Attributes:
      row_bytes: the least memory that the component takes in an element.
      holds_objects: whether rows must be cleared to free what they held.
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
        """What one row holds, as an array that nothing else changes."""

    @abstractmethod
    def row(self, array: Array) -> Array:
        """The component of a single element as rows."""

    @abstractmethod
    def rows(self, batch: Array) -> Array:
        """The component of stacked elements as rows, for `put_rows`."""

    @abstractmethod
    def batch(self, blocks: Sequence[Array]) -> Array:
        """All of these rows, stacked."""

    @abstractmethod
    def saved(self, rows: Array) -> Rows:
        """Rows for a snapshot, which shares no memory with them; `rows` may be kept."""

    @abstractmethod
    def loaded(self, saved: Rows) -> Array:
        """What `saved` gave as rows for `put_rows`; likewise."""

    @abstractmethod
    def n_bytes(self, rows: Array) -> int:
        """How much memory rows take."""

    @abstractmethod
    def _empty(self, n_rows: int) -> Array: ...

    def put_rows(self, indices: Array, rows: Array) -> None:
        """Stores rows at indices."""
        self._array[indices] = rows

    def get_rows(self, indices: Array) -> Array:
        """What rows hold."""
        rows: Array = self._array.take(indices, axis=0)
        return rows

    def clear(self, indices: Index) -> None:
        """Drops the references to objects that rows hold."""
        self._array[indices] = None

    def copy(self, origin: int, index: int) -> None:
        """Copies a row to another one."""
        self._array[index] = self._array[origin]

    def copy_rows(self, origins: Array, indices: Array) -> None:
        """Copies rows to others; the two sets must be disjoint."""
        step = max(1, _COPIED_BYTES // max(1, self.row_bytes))
        for i in range(0, len(origins), step):
            self._array[indices[i : i + step]] = self._array[origins[i : i + step]]

    def resized(self, n_rows: int, indices: Array) -> Self:
        """A column whose first rows hold what the given rows of this one do."""
        column = type(self)(self._component, n_rows)
        # A mode that cannot fail needs no buffer.
        self._array.take(indices, axis=0, out=column._array[: len(indices)], mode="clip")
        return column


class DenseColumn(ColumnStorage):
    """A column of a component with a static shape: numbers or strings, all in one array."""

    def __init__(self, component: TensorSpec, n_rows: int = 0) -> None:
        super().__init__(component, n_rows)
        self.row_bytes = math.prod(self._array.shape[1:]) * self._array.itemsize

    def put(self, index: int, array: Array) -> None:
        # The dots make NumPy take a scalar string out of its array and not put the array in.
        self._array[index, ...] = array

    def get(self, index: int) -> Array:
        array: Array = self._array[index, ...].copy()
        return array

    def row(self, array: Array) -> Array:
        return array[None]

    def rows(self, batch: Array) -> Array:
        return batch

    def batch(self, blocks: Sequence[Array]) -> Array:
        return np.concatenate(blocks) if len(blocks) > 1 else (*blocks, self._empty(0))[0]

    def saved(self, rows: Array) -> Rows:
        return rows

    def loaded(self, saved: Rows) -> Array:
        return np.asarray(saved)  # `put_rows` copies it

    def n_bytes(self, rows: Array) -> int:
        return n_bytes_of(rows)

    def _empty(self, n_rows: int) -> Array:
        shape: Any = self._component.shape
        return np.empty((n_rows, *shape), self._component.numpy_dtype)


class RaggedColumn(ColumnStorage):
    """A column of a component whose shape varies: each row is an array of its own."""

    def put(self, index: int, array: Array) -> None:
        # A view may keep more memory alive than it shows.
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
        return sum(map(n_bytes_of, rows))

    def _empty(self, n_rows: int) -> Array:
        return np.empty(n_rows, object)


def _objects(arrays: Sequence[Array]) -> Array:
    """An array of arrays."""
    objects = np.empty(len(arrays), object)
    for i, array in enumerate(arrays):
        objects[i] = array
    return objects
