"""The memory of a queue: a table with a row for each element and a column for each component."""

from __future__ import annotations

from collections.abc import Sequence

from jflow.resources.queue.column import ColumnStorage, DenseColumn, RaggedColumn
from jflow.resources.queue.snapshot import Rows
from jflow.resources.tensors import n_bytes_of
from jflow.values import Array, TensorSpec

Block = tuple[Array, ...]
"""Several elements: an array of rows for each column."""

KEPT_BYTES = 1 << 20
"""Unused memory up to this size is not freed."""

_UNLIMITED = 1 << 60


class Table:
    """Elements in numbered rows, stored by column.

    It grows and shrinks by factors of two, so that the work for an element is bounded, and never
    needs memory for more elements than its limit, not even while it grows.

    Args:
      components: what an element is made of.
      capacity: how many elements it is for; any number if negative.
      capacity_bytes: how much memory they take at most, None for any.
      kept_bytes: how much memory it may keep that it does not use.

    Attributes:
      n_rows: how many elements it has memory for.
    """

    def __init__(
        self,
        components: Sequence[TensorSpec],
        capacity: int,
        capacity_bytes: int | None,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        self._columns: tuple[ColumnStorage, ...] = tuple(
            (DenseColumn if component.is_static else RaggedColumn)(component)
            for component in components
        )
        self._with_objects: tuple[ColumnStorage, ...] = ()
        self.n_rows = self._n_least = 0
        row_bytes = sum([column.row_bytes for column in self._columns])
        varies = any(column.holds_objects for column in self._columns)
        self._fixed_bytes = None if varies else row_bytes
        by_number = capacity if capacity >= 0 else _UNLIMITED
        by_bytes = _UNLIMITED if capacity_bytes is None else capacity_bytes // max(1, row_bytes)
        self._limit = max(1, min(by_number, by_bytes))
        self._n_kept = max(1, kept_bytes // max(1, row_bytes))

    def put(self, index: int, element: Sequence[Array]) -> None:
        """Stores a copy of an element."""
        for column, array in zip(self._columns, element, strict=True):
            column.put(index, array)

    def take(self, index: int) -> tuple[Array, ...]:
        """Removes the element of a row."""
        element = tuple([column.get(index) for column in self._columns])
        for column in self._with_objects:
            column.clear(index)
        return element

    def put_many(self, indices: Array, block: Block) -> None:
        """Stores copies of elements."""
        for column, rows in zip(self._columns, block, strict=True):
            column.put_rows(indices, rows)

    def take_many(self, indices: Array) -> Block:
        """Removes the elements of rows; none if there is no memory for them."""
        block = tuple([column.get_rows(indices) for column in self._columns])
        for column in self._with_objects:
            column.clear(indices)
        return block

    def copies(self, indices: Array) -> Block:
        """The elements of rows, which stay in them."""
        return tuple([column.get_rows(indices) for column in self._columns])

    def saved(self, block: Block) -> tuple[Rows, ...]:
        """Elements that `copies` or `take_many` gave, for a snapshot."""
        return tuple([c.saved(rows) for c, rows in zip(self._columns, block, strict=True)])

    def loaded(self, elements: Sequence[Rows]) -> Block:
        """The elements of a snapshot as a block, for `put_many` only."""
        return tuple([c.loaded(rows) for c, rows in zip(self._columns, elements, strict=True)])

    def move(self, origin: int, index: int) -> None:
        """Moves an element to another row."""
        for column in self._columns:
            column.copy(origin, index)
        for column in self._with_objects:
            column.clear(origin)

    def move_many(self, origins: Array, indices: Array) -> None:
        """Moves elements to other rows."""
        for column in self._columns:
            column.copy_rows(origins, indices)
        for column in self._with_objects:
            column.clear(origins)

    def suits(self, n: int) -> bool:
        """Whether n elements have room, and do not leave most of the memory unused."""
        return self._n_least <= n <= self.n_rows

    def resize(self, n: int, indices: Array) -> None:
        """Changes the number of rows to one that suits n elements.

        Args:
          n: how many there are or will be.
          indices: the rows that elements are in; they move to the first rows, in this order.

        Raises:
          MemoryError: if there is too little memory; nothing has changed then.
        """
        n_rows = self._limit
        # Halved from the limit, so that the last growth ends exactly at it.
        while n_rows // 2 >= max(n, self._n_kept):
            n_rows //= 2
        while n_rows < n:
            n_rows *= 2
        self._columns = tuple([column.resized(n_rows, indices) for column in self._columns])
        self._with_objects = tuple([c for c in self._columns if c.holds_objects])
        self.n_rows = n_rows
        self._n_least = 0 if n_rows <= 4 * self._n_kept else n_rows // 4

    def row(self, element: Sequence[Array]) -> Block:
        """An element as a block."""
        return tuple(c.row(array) for c, array in zip(self._columns, element, strict=True))

    def rows(self, batches: Sequence[Array]) -> Block:
        """Stacked elements as a block, for `put_many` only."""
        return tuple([c.rows(batch) for c, batch in zip(self._columns, batches, strict=True)])

    def batches(self, blocks: Sequence[Block]) -> tuple[Array, ...]:
        """All elements of these blocks, stacked."""
        return tuple(
            column.batch([block[i] for block in blocks]) for i, column in enumerate(self._columns)
        )

    def element_bytes(self, element: Sequence[Array]) -> int:
        """How much memory an element takes."""
        fixed = self._fixed_bytes
        return sum(map(n_bytes_of, element)) if fixed is None else fixed

    def block_bytes(self, block: Block) -> int:
        """How much memory the elements of a block take."""
        if self._fixed_bytes is not None:
            return self._fixed_bytes * len(block[0])
        return sum([c.n_bytes(rows) for c, rows in zip(self._columns, block, strict=True)])
