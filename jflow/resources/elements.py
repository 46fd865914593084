"""In which order a queue's elements come out again: one class for each order."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from jflow.resources.component import Array
from jflow.resources.table import Block, Table


class Elements(ABC):
    """The elements of a queue in the order of its kind.

    What raises a MemoryError changes nothing.

    Args:
      table: where they are stored.

    Attributes:
      size: how many there are.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self.size = 0

    @abstractmethod
    def put(self, element: Sequence[Array]) -> None:
        """Adds a copy of an element."""

    @abstractmethod
    def take(self) -> tuple[Array, ...]:
        """Removes the next element; there must be one."""

    @abstractmethod
    def put_many(self, block: Block) -> None:
        """Adds copies of elements."""

    @abstractmethod
    def take_many(self, count: int) -> Block:
        """Removes the next elements; there must be so many, and one at least."""

    @abstractmethod
    def put_back(self, block: Block) -> None:
        """Adds elements that were taken, in that order, as if they had not been."""

    @abstractmethod
    def _places(self) -> Array:
        """Where the elements are."""

    @abstractmethod
    def _renumber(self) -> None:
        """Takes note that the elements have moved to places 0, 1, ... in the order of `_places`."""

    def _grow(self, count: int) -> None:
        """Makes places for more elements."""
        if not self._table.suits(self.size + count):
            self._resize(self.size + count)

    def _shrink(self) -> None:
        """Gives memory back that is not used any more."""
        if not self._table.suits(self.size):
            with suppress(MemoryError):
                self._resize(self.size)

    def _resize(self, n: int) -> None:
        self._table.resize(n, self._places())
        self._renumber()


class Line(Elements):
    """First in, first out: a ring of places."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._first = 0

    def put(self, element: Sequence[Array]) -> None:
        self._grow(1)
        self._table.put((self._first + self.size) % self._table.n_places, element)
        self.size += 1

    def take(self) -> tuple[Array, ...]:
        element = self._table.take(self._first)
        self._drop(1)
        return element

    def put_many(self, block: Block) -> None:
        count = len(block[0])
        self._grow(count)
        self._table.put_many(self._ring(self._first + self.size, count), block)
        self.size += count

    def take_many(self, count: int) -> Block:
        block = self._table.take_many(self._ring(self._first, count))
        self._drop(count)
        return block

    def put_back(self, block: Block) -> None:
        count = len(block[0])
        self._grow(count)
        self._first = (self._first - count) % self._table.n_places
        self._table.put_many(self._ring(self._first, count), block)
        self.size += count

    def _drop(self, count: int) -> None:
        self._first = (self._first + count) % self._table.n_places
        self.size -= count
        self._shrink()

    def _ring(self, first: int, count: int) -> Array:
        return np.arange(first, first + count) % self._table.n_places

    def _places(self) -> Array:
        return self._ring(self._first, self.size) if self.size else np.arange(0)

    def _renumber(self) -> None:
        self._first = 0


class Pool(Elements):
    """In the order of chance: the first places are taken, and the last ones fill the holes.

    Args:
      table: where they are stored.
      chance: decides which come out.
    """

    def __init__(self, table: Table, chance: np.random.Generator) -> None:
        super().__init__(table)
        self._chance = chance

    def put(self, element: Sequence[Array]) -> None:
        self._grow(1)
        self._table.put(self.size, element)
        self.size += 1

    def take(self) -> tuple[Array, ...]:
        place = int(self._chance.random() * self.size)
        element = self._table.take(place)
        self.size -= 1
        if place < self.size:
            self._table.move(self.size, place)
        self._shrink()
        return element

    def put_many(self, block: Block) -> None:
        count = len(block[0])
        self._grow(count)
        self._table.put_many(np.arange(self.size, self.size + count), block)
        self.size += count

    def take_many(self, count: int) -> Block:
        places = self._chance.choice(self.size, count, replace=False)
        block = self._table.take_many(places)
        self.size -= count
        is_last = places >= self.size
        stays = np.ones(count, bool)
        stays[places[is_last] - self.size] = False
        self._table.move_many(self.size + stays.nonzero()[0], places[~is_last])
        self._shrink()
        return block

    def put_back(self, block: Block) -> None:
        self.put_many(block)

    def _places(self) -> Array:
        return np.arange(self.size)

    def _renumber(self) -> None:
        """They have not moved."""


class Heap(Elements):
    """By priority, their first component, the smallest first; equal ones as they came."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._heap: list[tuple[int, int, int]] = []  # priority, number, place
        self._front = self._back = 0  # those put back are numbered downwards
        self._holes: list[int] = []  # free places below others that are not

    def put(self, element: Sequence[Array]) -> None:
        self._grow(1)
        self._table.put(self._enter(int(element[0]), self._back), element)
        self._back += 1

    def take(self) -> tuple[Array, ...]:
        element = self._table.take(self._heap[0][2])
        self._leave()
        self._shrink()
        return element

    def put_many(self, block: Block) -> None:
        self._put_many(block, self._back)
        self._back += len(block[0])

    def take_many(self, count: int) -> Block:
        left = [heapq.heappop(self._heap) for _ in range(count)]
        places = [place for _, _, place in left]
        try:
            block = self._table.take_many(np.array(places))
        except MemoryError:
            self._heap = left + self._heap
            heapq.heapify(self._heap)
            raise
        self.size -= count
        self._holes += places
        self._shrink()
        return block

    def put_back(self, block: Block) -> None:
        first = self._front - len(block[0])
        self._put_many(block, first)
        self._front = first

    def _put_many(self, block: Block, first: int) -> None:
        self._grow(len(block[0]))
        places = [self._enter(priority, first + i) for i, priority in enumerate(block[0].tolist())]
        self._table.put_many(np.array(places), block)

    def _enter(self, priority: int, number: int) -> int:
        place = self._holes.pop() if self._holes else self.size
        heapq.heappush(self._heap, (priority, number, place))
        self.size += 1
        return place

    def _leave(self) -> None:
        self._holes.append(heapq.heappop(self._heap)[2])
        self.size -= 1

    def _places(self) -> Array:
        return np.array([place for _, _, place in self._heap], np.intp)

    def _renumber(self) -> None:
        self._heap = [(prio, n, place) for place, (prio, n, _) in enumerate(self._heap)]
        self._holes = []
