"""The state of a queue: its elements, their order and the bounds on them."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence

import numpy as np

from jflow.base.values import Array
from jflow.errors import ResourceExhaustedError
from jflow.state.quotas import Allowance
from jflow.state.resources.charged import Charged
from jflow.state.resources.queue.snapshot import QueueSnapshot, Rows, rng_state, set_rng_state
from jflow.state.resources.queue.spec import PRIORITY, SHUFFLE, QueueSpec
from jflow.state.resources.queue.storage import (
    FifoStorage,
    PriorityStorage,
    ShuffleStorage,
    Storage,
)
from jflow.state.resources.queue.table import Block, Table
from jflow.state.resources.wait_queue import QueuedAttempt, QueuedResource


class QueueAttempt(QueuedAttempt["Queue"], ABC):
    """An attempt on a queue."""

    __slots__ = ()

    def taken_elements(self) -> Sequence[Block]:
        """The elements that the attempt has taken and holds while it waits for more."""
        return ()


class Queue(QueuedResource[QueueSnapshot], Charged):
    """Elements that steps pass to each other.

    Enqueues and requests to close wait in one wait queue, dequeues in another.

    Args:
      spec: its definition.
      name: its name in messages.
      rng: determines the order in which elements leave a shuffle queue.

    Attributes:
      size_bytes: the memory of its elements in bytes.
      held_bytes: the memory of those that a waiting dequeue has taken. No other one can: only the
        first acts.
      is_closed: whether no more elements can be added.
    """

    spec: QueueSpec
    saved_as = QueueSnapshot

    def __init__(self, spec: QueueSpec, name: str, rng: np.random.Generator) -> None:
        super().__init__(spec, name, QueueAttempt, n_wait_queues=2)  # type: ignore[type-abstract]
        self.is_closed = False
        self.allowance = Allowance()
        self._rng = rng
        self.clear()

    def __str__(self) -> str:
        return f"{self.spec.kind} {self.name!r}"

    @property
    def size(self) -> int:
        """The number of elements, excluding those that a waiting dequeue has taken."""
        return self._storage.size

    @property
    def fill(self) -> str:
        """The size and bounds of the queue, for messages."""
        spec, bounds = self.spec, []
        if spec.capacity >= 0:
            bounds.append(f"capacity {spec.capacity}")
        if spec.capacity_bytes is not None:
            bounds.append(f"{self.size_bytes} of {spec.capacity_bytes} bytes")
        if spec.min_after_dequeue:
            bounds.append(f"min_after_dequeue {spec.min_after_dequeue}")
        n = f"{self.size} element{'s' * (self.size != 1)}"
        return f"{n} ({', '.join(bounds)})" if bounds else n

    @property
    def n_available(self) -> int:
        """The number of elements that can be dequeued now."""
        size = self._storage.size
        return size if self.is_closed else max(0, size - self.spec.min_after_dequeue)

    def element_bytes(self, element: tuple[Array, ...]) -> int:
        """Returns the memory of an element in bytes."""
        return self._table.element_bytes(element)

    def has_room(self, n_bytes: int) -> bool:
        """Whether an element of this size can be enqueued now."""
        capacity = self.spec.capacity
        return (capacity < 0 or self.size < capacity) and self._has_bytes(n_bytes)

    def check_bytes(self, n_bytes: int) -> None:
        """Raises if no dequeue can ever make room for an element.

        An open shuffle queue keeps `min_after_dequeue` elements. If these leave too little of
        `capacity_bytes`, enqueues wait for memory and dequeues wait for elements: a deadlock.

        Raises:
          ResourceExhaustedError: in that case.
        """
        if not self._has_bytes(n_bytes) and self.size <= self.spec.min_after_dequeue:
            raise ResourceExhaustedError(
                f"{self} has no room for an element of {n_bytes} bytes: it has {self.size} "
                f"elements of {self.size_bytes} bytes and a capacity of "
                f"{self.spec.capacity_bytes} bytes, and keeps {self.spec.min_after_dequeue} "
                "elements while it is open; increase capacity_bytes or decrease min_after_dequeue"
            )

    def n_fitting(self, ends: Array, start: int) -> int:
        """Returns how many more elements of a batch can be enqueued now.

        Args:
          ends: the memory of the first 0, 1, 2, ... elements of the batch in bytes.
          start: the number of elements that have already entered.
        """
        spec, stop = self.spec, len(ends) - 1
        if spec.capacity >= 0:
            stop = min(stop, start + spec.capacity - self.size)
        if spec.capacity_bytes is not None:
            free = spec.capacity_bytes - self.size_bytes
            stop = min(stop, int(ends.searchsorted(ends[start] + free, "right")) - 1)
        return max(0, stop - start)

    def put(self, element: tuple[Array, ...], n_bytes: int) -> None:
        """Adds a copy of an element. Raises ResourceExhaustedError by a quota, or for memory."""
        if (kept := self.size_bytes + self.held_bytes + n_bytes) > self.allowance.most:
            self.allowance.cover(kept)
        try:
            self._storage.put(element)
        except MemoryError as error:
            raise self._no_memory("one more element", error) from error
        self.size_bytes += n_bytes

    def take(self) -> tuple[Array, ...]:
        """Removes the next element; one must be available."""
        element = self._storage.take()
        self.size_bytes -= self._table.element_bytes(element)
        if self.size_bytes < self.allowance.least:
            self._trim()
        return element

    def put_many(self, batches: Sequence[Array], n_bytes: int) -> None:
        """Adds copies of stacked elements. Raises as `put`."""
        if (kept := self.size_bytes + self.held_bytes + n_bytes) > self.allowance.most:
            self.allowance.cover(kept)
        try:
            self._storage.put_many(self._table.rows(batches))
        except MemoryError as error:
            raise self._no_memory(f"{len(batches[0])} more elements", error) from error
        self.size_bytes += n_bytes

    def take_many(self, count: int) -> Block:
        """Removes the next elements; `count`, at least 1, must be available."""
        if count == 1:
            return self._table.row(self.take())
        block = self._take_many(count)
        if self.size_bytes < self.allowance.least:
            self._trim()
        return block

    def hold_many(self, count: int) -> Block:
        """Like `take_many`, for an attempt that waits: they stay charged until `let_go`."""
        size_bytes = self.size_bytes
        block = self._take_many(count)
        self.held_bytes += size_bytes - self.size_bytes
        return block

    def let_go(self) -> None:
        """Notes that the attempt that held elements has passed them on or returned them."""
        self.held_bytes = 0
        if self.size_bytes < self.allowance.least:
            self._trim()

    def put_back(self, blocks: Sequence[Block]) -> None:
        """Puts elements back that were taken in this order."""
        for block in reversed(blocks):
            self._storage.put_back(block)
            self.size_bytes += self._table.block_bytes(block)
        self.allowance.cover_returned(self.charged_bytes)

    def put_back_one(self, element: tuple[Array, ...]) -> None:
        """Puts one taken element back."""
        self.put_back([self._table.row(element)])

    def batches(self, blocks: Sequence[Block]) -> tuple[Array, ...]:
        """Stacks taken elements, component by component."""
        return self._table.batches(blocks)

    def clear(self) -> None:
        self._table, self._storage = self._empty()
        self.size_bytes = self.held_bytes = 0
        self.allowance.trim(0)

    def save(self) -> QueueSnapshot:
        try:
            elements = self._saved_elements()
        except MemoryError as error:
            raise self._no_memory("a snapshot", error) from error
        rng = rng_state(self._rng) if self.spec.kind == SHUFFLE else None
        return QueueSnapshot(self.spec, elements, self.is_closed, rng)

    def load(self, snapshot: QueueSnapshot) -> None:
        snapshot.check(self)
        table, storage = self._empty()
        try:
            block = table.loaded(snapshot.elements)
            if len(block[0]):
                storage.put_many(block)
        except MemoryError as error:
            raise self._no_memory("a snapshot", error) from error
        self.allowance.cover(table.block_bytes(block))
        self._table, self._storage = table, storage
        self.size_bytes, self.held_bytes = table.block_bytes(block), 0
        self.allowance.trim(self.size_bytes)
        self.is_closed = snapshot.is_closed
        if snapshot.rng is not None:
            set_rng_state(self._rng, snapshot.rng)

    def _take_many(self, count: int) -> Block:
        try:
            block = self._storage.take_many(count)
        except MemoryError as error:
            raise self._no_memory(f"a batch of {count} elements", error) from error
        self.size_bytes -= self._table.block_bytes(block)
        return block

    def _trim(self) -> None:
        self.allowance.trim(self.charged_bytes)

    def _saved_elements(self) -> tuple[Rows, ...]:
        """Copies all elements, counting those that waiting dequeues have taken as not taken."""
        block = self._storage.contents()
        waiting = [a for queue in self._wait_queues for a in queue if isinstance(a, QueueAttempt)]
        elements = [one for attempt in waiting for one in attempt.taken_elements()]
        if elements:
            # Does to a copy what cancelling these dequeues would do to the queue.
            _, storage = self._empty()
            if len(block[0]):
                storage.put_many(block)
            for one in reversed(elements):
                storage.put_back(one)
            block = storage.contents()
        return self._table.saved(block)

    def _empty(self) -> tuple[Table, Storage]:
        spec = self.spec
        table = Table(spec.components, spec.capacity, spec.capacity_bytes)
        return table, _storage(spec.kind, table, self._rng)

    def _has_bytes(self, n_bytes: int) -> bool:
        capacity = self.spec.capacity_bytes
        return capacity is None or self.size_bytes + n_bytes <= capacity

    def _no_memory(self, what: str, error: Exception) -> ResourceExhaustedError:
        return ResourceExhaustedError(
            f"not enough memory for {what} of {self}, which has {self.size} elements of "
            f"{self.size_bytes} bytes: {error}; decrease its capacity or capacity_bytes"
        )


def _storage(kind: str, table: Table, rng: np.random.Generator) -> Storage:
    if kind == SHUFFLE:
        return ShuffleStorage(table, rng)
    return PriorityStorage(table) if kind == PRIORITY else FifoStorage(table)
