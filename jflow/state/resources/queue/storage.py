"""Storages of a queue's elements, one class for each dequeue order."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from jflow.base.values import Array
from jflow.state.resources.queue.table import Block, Table


class Storage(ABC):
    """Base of storages: the elements of a queue, in rows of a table.

    A method that raises a MemoryError has changed nothing: memory is allocated before the state
    changes, and shrinking, which comes last, may fail silently.

    Args:
      table: where the elements are stored.

    Attributes:
      size: the number of elements.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self.size = 0

    @abstractmethod
    def put(self, element: Sequence[Array]) -> None:
        """Adds a copy of an element."""

    @abstractmethod
    def take(self) -> tuple[Array, ...]:
        """Removes and returns the next element; the storage must not be empty."""

    @abstractmethod
    def put_many(self, block: Block) -> None:
        """Adds copies of elements."""

    @abstractmethod
    def take_many(self, count: int) -> Block:
        """Removes and returns the next `count` elements, at least 1; there must be that many."""

    @abstractmethod
    def put_back(self, block: Block) -> None:
        """Puts elements back, which were taken in this order, as if they had not been taken."""

    def contents(self) -> Block:
        """Copies all elements, in an order from which `put_many` rebuilds an equal storage."""
        return self._table.copies(self._in_order())

    def _in_order(self) -> Array:
        """Returns the rows of the elements, in the order of `contents`."""
        return self._indices()

    @abstractmethod
    def _indices(self) -> Array:
        """Returns the rows of the elements."""

    @abstractmethod
    def _renumber(self) -> None:
        """Notes that the elements have moved to rows 0, 1, ... in the order of `_indices`."""

    def _grow(self, count: int) -> None:
        """Makes room for `count` more elements."""
        if not self._table.suits(self.size + count):
            self._resize(self.size + count)

    def _shrink(self) -> None:
        """Frees unused memory, unless there is too little memory to move the elements."""
        if not self._table.suits(self.size):
            with suppress(MemoryError):
                self._resize(self.size)

    def _resize(self, n: int) -> None:
        self._table.resize(n, self._indices())
        self._renumber()


class FifoStorage(Storage):
    """A first-in, first-out storage: a ring buffer.

    The elements are in rows `_first`, `_first` + 1, ..., modulo the number of rows.
    """

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._first = 0

    def put(self, element: Sequence[Array]) -> None:
        self._grow(1)
        self._table.put((self._first + self.size) % self._table.n_rows, element)
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
        self._grow(count)  # first, because it may move the elements and so change `_first`
        self._first = (self._first - count) % self._table.n_rows
        self._table.put_many(self._ring(self._first, count), block)
        self.size += count

    def _drop(self, count: int) -> None:
        self._first = (self._first + count) % self._table.n_rows
        self.size -= count
        self._shrink()

    def _ring(self, first: int, count: int) -> Array:
        return np.arange(first, first + count) % self._table.n_rows

    def _indices(self) -> Array:
        return self._ring(self._first, self.size) if self.size else np.arange(0)

    def _renumber(self) -> None:
        self._first = 0


class ShuffleStorage(Storage):
    """A storage from which elements leave in random order.

    Invariant: the elements are in rows 0 to `size` - 1. The last elements therefore move to the
    rows of those that leave. Which row an element is in depends on the calls and on `rng` alone,
    and not on when the table grows, so that a seed determines the order.

    Args:
      table: where the elements are stored.
      rng: determines the elements that leave.
    """

    def __init__(self, table: Table, rng: np.random.Generator) -> None:
        super().__init__(table)
        self._rng = rng

    def put(self, element: Sequence[Array]) -> None:
        self._grow(1)
        self._table.put(self.size, element)
        self.size += 1

    def take(self) -> tuple[Array, ...]:
        index = int(self._rng.random() * self.size)
        element = self._table.take(index)
        self.size -= 1
        if index < self.size:
            self._table.move(self.size, index)
        self._shrink()
        return element

    def put_many(self, block: Block) -> None:
        count = len(block[0])
        self._grow(count)
        self._table.put_many(np.arange(self.size, self.size + count), block)
        self.size += count

    def take_many(self, count: int) -> Block:
        indices = self._rng.choice(self.size, count, replace=False)
        block = self._table.take_many(indices)
        self.size -= count
        # The `count` rows from the new size on must become free. Those of them that were not taken
        # hold elements that stay, and these move to the taken rows below the new size. There are as
        # many of one as of the other, because `count` rows were taken in total.
        is_last = indices >= self.size
        stays = np.ones(count, bool)
        stays[indices[is_last] - self.size] = False
        self._table.move_many(self.size + stays.nonzero()[0], indices[~is_last])
        self._shrink()
        return block

    def put_back(self, block: Block) -> None:
        self.put_many(block)

    def _indices(self) -> Array:
        return np.arange(self.size)

    def _renumber(self) -> None:
        """Does nothing: no state depends on rows."""


class PriorityStorage(Storage):
    """Dequeues the element with the smallest first component first; ties are first in, first out.

    Invariant: the rows of the elements and `_holes` together are rows 0, 1, ... without a gap. A
    new element takes a hole; without holes the rows of the elements are 0 to `size` - 1, so that
    row `size` is free.

    Ties are broken by a number: new elements get ascending numbers from `_back`, elements that are
    returned get numbers below all others, from `_front` downwards, because they were taken first.
    """

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._heap: list[tuple[int, int, int]] = []  # priority, number, row
        self._front = self._back = 0
        self._holes: list[int] = []  # free rows among used ones

    def put(self, element: Sequence[Array]) -> None:
        self._grow(1)
        (row,) = rows = self._free_rows(1)
        self._table.put(row, element)
        self._enter([int(element[0])], self._back, rows)
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
        taken_entries = [heapq.heappop(self._heap) for _ in range(count)]
        indices = [index for _, _, index in taken_entries]
        try:
            block = self._table.take_many(np.array(indices))
        except MemoryError:
            self._heap = taken_entries + self._heap
            heapq.heapify(self._heap)
            raise
        self.size -= count
        self._holes += indices
        self._shrink()
        return block

    def put_back(self, block: Block) -> None:
        first = self._front - len(block[0])
        self._put_many(block, first)
        self._front = first

    def _put_many(self, block: Block, first: int) -> None:
        self._grow(len(block[0]))
        rows = self._free_rows(len(block[0]))
        self._table.put_many(np.array(rows), block)
        self._enter(block[0].tolist(), first, rows)

    def _free_rows(self, count: int) -> list[int]:
        """Returns the rows of the next elements: the last holes, then those after all rows."""
        holes = self._holes[: -count - 1 : -1]
        first = self.size + len(holes)
        return [*holes, *range(first, first + count - len(holes))]

    def _enter(self, priorities: Sequence[int], first: int, rows: Sequence[int]) -> None:
        """Adds elements, which are in these rows by now, with numbers from `first` on."""
        for number, (priority, row) in enumerate(zip(priorities, rows, strict=True), first):
            heapq.heappush(self._heap, (priority, number, row))
        del self._holes[max(0, len(self._holes) - len(rows)) :]
        self.size += len(rows)

    def _leave(self) -> None:
        self._holes.append(heapq.heappop(self._heap)[2])
        self.size -= 1

    def _in_order(self) -> Array:
        # `put_many` numbers elements in order, so that equal priorities keep their order.
        return np.array([index for _, _, index in sorted(self._heap)], np.intp)

    def _indices(self) -> Array:
        return np.array([index for _, _, index in self._heap], np.intp)

    def _renumber(self) -> None:
        self._heap = [(prio, n, index) for index, (prio, n, _) in enumerate(self._heap)]
        self._holes = []
