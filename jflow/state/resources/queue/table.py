"""The table of a queue: a row for each element and a column for each component."""

from __future__ import annotations

from collections.abc import Sequence

from jflow.base.values import Array, TensorSpec, memory_bytes
from jflow.state.resources.queue.column import ColumnStorage, DenseColumn, RaggedColumn
from jflow.state.resources.queue.snapshot import Rows

Block = tuple[Array, ...]
"""Several elements: an array of rows for each column."""

KEPT_BYTES = 1 << 20
"""Unused memory up to this size is not freed."""

_UNLIMITED = 1 << 60


class Table:
    """Elements in numbered rows, stored by column.

    It grows and shrinks by factors of two, so that the amortized cost of an element is constant,
    and it shrinks only below a quarter, so that it does not grow again at once. It allocates
    memory for more elements than its limit only if that many are returned to it.

    Args:
      components: the types of the components of an element.
      capacity: the number of elements that it is for; negative for any number.
      capacity_bytes: the largest memory of all elements in bytes, None for no limit.
      kept_bytes: the unused memory that it may keep, in bytes.

    Attributes:
      n_rows: the number of elements that it has memory for.
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
        """Removes and returns the element of a row."""
        element = tuple([column.get(index) for column in self._columns])
        for column in self._with_objects:
            column.clear(index)
        return element

    def put_many(self, indices: Array, block: Block) -> None:
        """Stores copies of elements."""
        for column, rows in zip(self._columns, block, strict=True):
            column.put_rows(indices, rows)

    def take_many(self, indices: Array) -> Block:
        """Removes and returns the elements of rows; after a MemoryError they are still there."""
        block = tuple([column.get_rows(indices) for column in self._columns])
        for column in self._with_objects:
            column.clear(indices)
        return block

    def copies(self, indices: Array) -> Block:
        """Returns copies of the elements of several rows."""
        return tuple([column.get_rows(indices) for column in self._columns])

    def saved(self, block: Block) -> tuple[Rows, ...]:
        """Converts elements from `copies` or `take_many` for a snapshot."""
        return tuple([c.saved(rows) for c, rows in zip(self._columns, block, strict=True)])

    def loaded(self, elements: Sequence[Rows]) -> Block:
        """Converts the elements of a snapshot to a block, to be passed to `put_many` only."""
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
        """Whether the table has room for `n` elements without wasting most of its memory."""
        return self._n_least <= n <= self.n_rows

    def resize(self, n: int, indices: Array) -> None:
        """Resizes the table for `n` elements and moves the elements to its first rows.

        Args:
          n: the number of elements, including those about to be added.
          indices: the rows of the elements, which move to the first rows in this order.

        Raises:
          MemoryError: if there is not enough memory; nothing has changed then.
        """
        n_rows = self._limit
        # The sizes are the limit halved repeatedly, so that the last growth ends exactly at it.
        while n_rows // 2 >= max(n, self._n_kept):
            n_rows //= 2
        while n_rows < n:
            n_rows *= 2
        self._columns = tuple([column.resized(n_rows, indices) for column in self._columns])
        self._with_objects = tuple([c for c in self._columns if c.holds_objects])
        self.n_rows = n_rows
        self._n_least = 0 if n_rows <= 4 * self._n_kept else n_rows // 4

    def row(self, element: Sequence[Array]) -> Block:
        """Converts one element to a block."""
        return tuple(c.row(array) for c, array in zip(self._columns, element, strict=True))

    def rows(self, batches: Sequence[Array]) -> Block:
        """Converts stacked elements to a block, to be passed to `put_many` only."""
        return tuple([c.rows(batch) for c, batch in zip(self._columns, batches, strict=True)])

    def batches(self, blocks: Sequence[Block]) -> tuple[Array, ...]:
        """Stacks the elements of several blocks."""
        return tuple(
            column.batch([block[i] for block in blocks]) for i, column in enumerate(self._columns)
        )

    def element_bytes(self, element: Sequence[Array]) -> int:
        """Returns the memory of an element in bytes."""
        fixed = self._fixed_bytes
        return sum(map(memory_bytes, element)) if fixed is None else fixed

    def block_bytes(self, block: Block) -> int:
        """Returns the memory of the elements of a block in bytes."""
        if self._fixed_bytes is not None:
            return self._fixed_bytes * len(block[0])
        return sum([c.n_bytes(rows) for c, rows in zip(self._columns, block, strict=True)])
