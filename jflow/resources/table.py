"""The memory of a queue: its elements by column, in places whose number follows theirs."""

from __future__ import annotations

from collections.abc import Sequence

from jflow.resources.column import Column, DenseColumn, RaggedColumn
from jflow.resources.component import Array, Component, n_bytes_of

Block = tuple[Array, ...]
"""Several elements: of each column the rows."""

KEPT_BYTES = 1 << 20
"""So much memory a table does not give back."""

_UNLIMITED = 1 << 60


class Table:
    """Elements in numbered places, stored by column.

    It grows and shrinks by factors of two, so that the work for an element is bounded, and never
    needs memory for more elements than its limit, not even while it grows.

    Args:
      components: what an element is made of.
      capacity: how many elements it is for; any number if negative.
      capacity_bytes: how much memory they take at most, None for any.
      kept_bytes: how much memory it may keep that it does not use.

    Attributes:
      n_places: how many places there are.
    """

    def __init__(
        self,
        components: Sequence[Component],
        capacity: int,
        capacity_bytes: int | None,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        self._columns: tuple[Column, ...] = tuple(
            (DenseColumn if component.is_static else RaggedColumn)(component)
            for component in components
        )
        self._with_objects: tuple[Column, ...] = ()
        self.n_places = self._n_least = 0
        row_bytes = sum([column.row_bytes for column in self._columns])
        varies = any(column.holds_objects for column in self._columns)
        self._fixed_bytes = None if varies else row_bytes
        by_number = capacity if capacity >= 0 else _UNLIMITED
        by_bytes = _UNLIMITED if capacity_bytes is None else capacity_bytes // max(1, row_bytes)
        self._limit = max(1, min(by_number, by_bytes))
        self._n_kept = max(1, kept_bytes // max(1, row_bytes))

    def put(self, place: int, element: Sequence[Array]) -> None:
        """Stores a copy of an element."""
        for column, array in zip(self._columns, element, strict=True):
            column.put(place, array)

    def take(self, place: int) -> tuple[Array, ...]:
        """Removes the element at a place."""
        element = tuple([column.get(place) for column in self._columns])
        for column in self._with_objects:
            column.clear(place)
        return element

    def put_many(self, places: Array, block: Block) -> None:
        """Stores copies of elements."""
        for column, rows in zip(self._columns, block, strict=True):
            column.put_rows(places, rows)

    def take_many(self, places: Array) -> Block:
        """Removes the elements at places; none if there is no memory for them."""
        block = tuple([column.get_rows(places) for column in self._columns])
        for column in self._with_objects:
            column.clear(places)
        return block

    def move(self, origin: int, place: int) -> None:
        """Moves an element to another place."""
        for column in self._columns:
            column.copy(origin, place)
        for column in self._with_objects:
            column.clear(origin)

    def move_many(self, origins: Array, places: Array) -> None:
        """Moves elements to other places."""
        for column in self._columns:
            column.copy_rows(origins, places)
        for column in self._with_objects:
            column.clear(origins)

    def suits(self, n: int) -> bool:
        """Whether n elements have a place, and do not leave most of the memory unused."""
        return self._n_least <= n <= self.n_places

    def resize(self, n: int, places: Array) -> None:
        """Changes the number of places to one that suits n elements.

        Args:
          n: how many there are or will be.
          places: where elements are now; they come to the first places, in this order.

        Raises:
          MemoryError: if there is too little memory; nothing has changed then.
        """
        n_places = self._limit
        # From the limit downwards: the last growth is from half of it.
        while n_places // 2 >= max(n, self._n_kept):
            n_places //= 2
        while n_places < n:
            n_places *= 2
        self._columns = tuple([column.resized(n_places, places) for column in self._columns])
        self._with_objects = tuple([c for c in self._columns if c.holds_objects])
        self.n_places = n_places
        self._n_least = 0 if n_places <= 4 * self._n_kept else n_places // 4

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
