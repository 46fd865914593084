"""How the elements of a queue are stored: the same component of all of them in one array."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from jflow.resources.batch import row_of, stack
from jflow.resources.component import Array, Component, n_bytes_of

_COPIED_BYTES = 1 << 18
"""About as much is copied at once as a cache holds, and little memory may be there."""

Place = int | Array
"""The number of a place, or those of several."""


class Column(ABC):
    """One component of elements in numbered places.

    Several elements are handed over as rows: an array of them along a first dimension.

    Args:
      component: what it is.
      n_places: how many elements have a place.

    Attributes:
      row_bytes: the least memory that the component takes in an element.
      holds_objects: whether places have to be cleared for what they held to be freed.
    """

    row_bytes = 0

    def __init__(self, component: Component, n_places: int = 0) -> None:
        self._component = component
        self._array = self._empty(n_places)
        self.holds_objects = self._array.dtype == object

    @abstractmethod
    def put(self, place: int, array: Array) -> None:
        """Stores the component of an element."""

    @abstractmethod
    def get(self, place: int) -> Array:
        """What one place holds; nobody else changes it."""

    @abstractmethod
    def row(self, array: Array) -> Array:
        """The rows of a single element."""

    @abstractmethod
    def rows(self, batch: Array) -> Array:
        """The rows of stacked elements, for `put_rows`."""

    @abstractmethod
    def batch(self, blocks: Sequence[Array]) -> Array:
        """All of these rows, stacked."""

    @abstractmethod
    def n_bytes(self, rows: Array) -> int:
        """How much memory rows take."""

    @abstractmethod
    def _empty(self, n_places: int) -> Array: ...

    def put_rows(self, places: Array, rows: Array) -> None:
        """Stores a row in each place."""
        self._array[places] = rows

    def get_rows(self, places: Array) -> Array:
        """What places hold."""
        rows: Array = self._array.take(places, axis=0)
        return rows

    def clear(self, places: Place) -> None:
        """Lets go of the objects that places hold."""
        self._array[places] = None

    def copy(self, origin: int, place: int) -> None:
        """Stores what a place holds in another one, too."""
        self._array[place] = self._array[origin]

    def copy_rows(self, origins: Array, places: Array) -> None:
        """Stores what some places hold in others, too; none may be among both."""
        step = max(1, _COPIED_BYTES // max(1, self.row_bytes))
        for i in range(0, len(origins), step):
            self._array[places[i : i + step]] = self._array[origins[i : i + step]]

    def resized(self, n_places: int, places: Array) -> Self:
        """A column that holds in its first places what this one does in those given."""
        column = type(self)(self._component, n_places)
        # A mode that cannot fail needs no buffer.
        self._array.take(places, axis=0, out=column._array[: len(places)], mode="clip")
        return column


class DenseColumn(Column):
    """Of a component with a static shape: its numbers or strings, all in one array."""

    def __init__(self, component: Component, n_places: int = 0) -> None:
        super().__init__(component, n_places)
        self.row_bytes = math.prod(self._array.shape[1:]) * self._array.itemsize

    def put(self, place: int, array: Array) -> None:
        # The dots make NumPy take a scalar string out of its array and not put the array in.
        self._array[place, ...] = array

    def get(self, place: int) -> Array:
        array: Array = self._array[place, ...].copy()
        return array

    def row(self, array: Array) -> Array:
        return array[None]

    def rows(self, batch: Array) -> Array:
        return batch

    def batch(self, blocks: Sequence[Array]) -> Array:
        return np.concatenate(blocks) if len(blocks) > 1 else (*blocks, self._empty(0))[0]

    def n_bytes(self, rows: Array) -> int:
        return n_bytes_of(rows)

    def _empty(self, n_places: int) -> Array:
        shape: Any = self._component.shape
        return np.empty((n_places, *shape), self._component.numpy_dtype)


class RaggedColumn(Column):
    """Of a component whose shape varies: an array in each place, and a row is one of them."""

    def put(self, place: int, array: Array) -> None:
        # A view may keep more memory alive than it shows.
        self._array[place] = array if array.base is None else array.copy()

    def get(self, place: int) -> Array:
        array: Array = self._array[place]
        return array

    def row(self, array: Array) -> Array:
        return _objects([array])

    def rows(self, batch: Array) -> Array:
        return _objects([row_of(batch, i) for i in range(len(batch))])

    def batch(self, blocks: Sequence[Array]) -> Array:
        return stack([array for block in blocks for array in block], self._component)

    def n_bytes(self, rows: Array) -> int:
        return sum(map(n_bytes_of, rows))

    def _empty(self, n_places: int) -> Array:
        return np.empty(n_places, object)


def _objects(arrays: Sequence[Array]) -> Array:
    """An array of arrays."""
    objects = np.empty(len(arrays), object)
    for i, array in enumerate(arrays):
        objects[i] = array
    return objects
