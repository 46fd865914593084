"""Queues, and what steps want of them.

The rules are TensorFlow's, with one exception: a dequeue that is given up loses nothing, what it
had taken goes back to where it came from.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jflow.errors import (
    CancelledError,
    InvalidArgumentError,
    OutOfRangeError,
    ResourceExhaustedError,
)
from jflow.resources.batch import ends_in_bytes
from jflow.resources.component import Array
from jflow.resources.elements import Elements, Heap, Line, Pool
from jflow.resources.line import LinedAttempt, LinedResource
from jflow.resources.queue_spec import PRIORITY, SHUFFLE, QueueSpec
from jflow.resources.table import Block, Table

_ENQUEUES, _DEQUEUES = range(2)


class Queue(LinedResource):
    """Elements that steps hand to each other.

    Enqueues stand in one line, and closing among them; dequeues stand in another.

    Args:
      spec: what it is made as.
      name: what messages call it.
      chance: decides which elements come out of a shuffle queue.

    Attributes:
      size_bytes: the memory that its elements take.
      is_closed: whether nothing can be added any more.
    """

    def __init__(self, spec: QueueSpec, name: str, chance: np.random.Generator) -> None:
        super().__init__(Enqueue, EnqueueMany, Dequeue, DequeueMany, Close)
        self.spec = spec
        self.name = name
        self.is_closed = False
        self._chance = chance
        self.clear()

    def __str__(self) -> str:
        return f"{self.spec.kind} {self.name!r}"

    @property
    def size(self) -> int:
        """How many elements it holds; a waiting dequeue has taken its own out already."""
        return self._elements.size

    @property
    def n_available(self) -> int:
        """How many elements can be taken now."""
        size = self._elements.size
        return size if self.is_closed else max(0, size - self.spec.min_after_dequeue)

    def element_bytes(self, element: tuple[Array, ...]) -> int:
        """How much memory an element takes."""
        return self._table.element_bytes(element)

    def has_room(self, n_bytes: int) -> bool:
        """Whether an element may enter now."""
        capacity = self.spec.capacity
        return (capacity < 0 or self.size < capacity) and self._has_bytes(n_bytes)

    def check_bytes(self, n_bytes: int) -> None:
        """Refuses an element that no dequeue can ever make room for.

        Raises:
          ResourceExhaustedError: if it has to wait for more memory, and those who take elements
            have to wait for more elements.
        """
        if not self._has_bytes(n_bytes) and self.size <= self.spec.min_after_dequeue:
            raise ResourceExhaustedError(
                f"{self} has no room for an element of {n_bytes} bytes: it holds {self.size} "
                f"elements of {self.size_bytes} bytes, may hold {self.spec.capacity_bytes} bytes, "
                f"and keeps {self.spec.min_after_dequeue} elements while it is open; make it "
                "with a larger capacity_bytes or a smaller min_after_dequeue"
            )

    def n_fitting(self, ends: Array, start: int) -> int:
        """How many more elements of a batch may enter now.

        Args:
          ends: how much memory the first 0, 1, 2, ... elements of the batch take.
          start: how many of them have entered.
        """
        spec, stop = self.spec, len(ends) - 1
        if spec.capacity >= 0:
            stop = min(stop, start + spec.capacity - self.size)
        if spec.capacity_bytes is not None:
            free = spec.capacity_bytes - self.size_bytes
            stop = min(stop, int(ends.searchsorted(ends[start] + free, "right")) - 1)
        return max(0, stop - start)

    def put(self, element: tuple[Array, ...], n_bytes: int) -> None:
        """Adds a copy of an element."""
        try:
            self._elements.put(element)
        except MemoryError as error:
            raise self._no_memory("one more element", error) from error
        self.size_bytes += n_bytes

    def take(self) -> tuple[Array, ...]:
        """Removes the next element; one must be available."""
        element = self._elements.take()
        self.size_bytes -= self._table.element_bytes(element)
        return element

    def put_many(self, batches: Sequence[Array], n_bytes: int) -> None:
        """Adds copies of stacked elements."""
        try:
            self._elements.put_many(self._table.rows(batches))
        except MemoryError as error:
            raise self._no_memory(f"{len(batches[0])} more elements", error) from error
        self.size_bytes += n_bytes

    def take_many(self, count: int) -> Block:
        """Removes the next elements; so many must be available, and one at least."""
        if count == 1:
            return self._table.row(self.take())
        try:
            block = self._elements.take_many(count)
        except MemoryError as error:
            raise self._no_memory(f"{count} elements outside", error) from error
        self.size_bytes -= self._table.block_bytes(block)
        return block

    def put_back(self, blocks: Sequence[Block]) -> None:
        """Gives elements back that were taken, in that order."""
        for block in reversed(blocks):
            self._elements.put_back(block)
            self.size_bytes += self._table.block_bytes(block)

    def put_back_one(self, element: tuple[Array, ...]) -> None:
        """Gives an element back that was taken."""
        self.put_back([self._table.row(element)])

    def batches(self, blocks: Sequence[Block]) -> tuple[Array, ...]:
        """Elements that were taken, stacked."""
        return self._table.batches(blocks)

    def clear(self) -> None:
        spec = self.spec
        self._table = Table(spec.components, spec.capacity, spec.capacity_bytes)
        self._elements = _elements(spec.kind, self._table, self._chance)
        self.size_bytes = 0

    def _has_bytes(self, n_bytes: int) -> bool:
        capacity = self.spec.capacity_bytes
        return capacity is None or self.size_bytes + n_bytes <= capacity

    def _no_memory(self, what: str, error: Exception) -> ResourceExhaustedError:
        return ResourceExhaustedError(
            f"no memory for {what} of {self}, which holds {self.size} elements of "
            f"{self.size_bytes} bytes: {error}; make it with a smaller capacity or capacity_bytes"
        )


class Enqueue(LinedAttempt[Queue]):
    """Adds a copy of an element.

    Args:
      components: its arrays, which nobody may change before it is in.
    """

    __slots__ = ("_element", "_n_bytes")
    line = _ENQUEUES
    can_be_undone = False

    def __init__(self, components: tuple[Array, ...]) -> None:
        super().__init__()
        self._element = components
        self._n_bytes = 0

    def start(self, state: Queue) -> None:
        _check_number(self._element, state)
        for i, component in enumerate(state.spec.components):
            array = self._element[i]
            if not component.fits(array):
                raise component.mismatch(array, f"tuple component {i}", state)
        self._n_bytes = state.element_bytes(self._element)
        _check_size(self._n_bytes, state)

    def advance(self, state: Queue) -> bool:
        if state.is_closed:
            raise _closed(state)
        if state.has_room(self._n_bytes):
            state.put(self._element, self._n_bytes)
            self.succeed()
        else:
            state.check_bytes(self._n_bytes)
        return self.is_settled


class EnqueueMany(LinedAttempt[Queue]):
    """Adds copies of the rows of a batch, each as soon as there is room.

    Args:
      components: arrays with one row for each element.
    """

    __slots__ = ("_batches", "_ends", "_n_entered")
    line = _ENQUEUES
    can_be_undone = False

    def __init__(self, components: tuple[Array, ...]) -> None:
        super().__init__()
        self._batches = components
        self._n_entered = 0

    def start(self, state: Queue) -> None:
        _check_number(self._batches, state)
        for i, component in enumerate(state.spec.components):
            batch = self._batches[i]
            if batch.ndim == 0 or not component.batch.fits(batch):
                raise component.batch.mismatch(batch, f"tuple component {i}", state)
        self._check_n_rows()
        self._ends = ends_in_bytes(self._batches)
        if len(self._ends) == 1:
            self.succeed()
        elif state.spec.capacity_bytes is not None:
            _check_size(int(np.diff(self._ends).max()), state)

    def advance(self, state: Queue) -> bool:
        start, n_rows = self._n_entered, len(self._ends) - 1
        if state.is_closed:
            raise _closed(state, f"; {start} of {n_rows} had entered")
        n_new = state.n_fitting(self._ends, start)
        self._n_entered += n_new
        if n_new:
            rows = [batch[start : self._n_entered] for batch in self._batches]
            state.put_many(rows, self._n_bytes(start, self._n_entered))
        if self._n_entered == n_rows:
            self.succeed()
        else:
            state.check_bytes(self._n_bytes(self._n_entered, self._n_entered + 1))
        return n_new > 0

    def _n_bytes(self, start: int, stop: int) -> int:
        return int(self._ends[stop] - self._ends[start])

    def _check_n_rows(self) -> None:
        n_rows = len(self._batches[0])
        for i, batch in enumerate(self._batches):
            if len(batch) != n_rows:
                raise InvalidArgumentError(
                    "All components of a batch must have the same size in their first dimension. "
                    f"Component {i} has {len(batch)}, and should have {n_rows}"
                )


class Dequeue(LinedAttempt[Queue]):
    """Takes an element; its values are the components."""

    __slots__ = ("_taken",)
    line = _DEQUEUES

    def __init__(self) -> None:
        super().__init__()
        self._taken: tuple[Array, ...] | None = None

    def advance(self, state: Queue) -> bool:
        if state.n_available:
            self._taken = state.take()
            self.succeed(self._taken)
        elif state.is_closed:
            raise _insufficient(state, 1)
        return self.is_settled

    def undo(self, state: Queue) -> None:
        if self._taken is not None:
            state.put_back_one(self._taken)
        self._taken = None


class DequeueMany(LinedAttempt[Queue]):
    """Takes elements as they come until it has enough; its values are the components, stacked.

    Args:
      count: how many elements to take.
      up_to: whether fewer will do, but one at least, once the queue is closed.
      minimum: how many will do if no more are there at once; None if only `count` will do.
    """

    __slots__ = ("_count", "_minimum", "_n_taken", "_taken", "_up_to")
    line = _DEQUEUES

    def __init__(self, count: int, up_to: bool = False, minimum: int | None = None) -> None:
        super().__init__()
        self._count = count
        self._up_to = up_to
        self._minimum = count if minimum is None else minimum
        self._taken: list[Block] = []
        self._n_taken = 0

    def start(self, state: Queue) -> None:
        if self._count < 0:
            raise InvalidArgumentError(
                f"cannot dequeue {self._count} elements from {state}; expected 0 or more"
            )
        if not min(1, self._count) <= self._minimum <= self._count:
            raise InvalidArgumentError(
                f"cannot dequeue at least {self._minimum} of {self._count} elements from {state}; "
                f"expected a minimum of 1 to {self._count}"
            )
        if not state.spec.is_batchable:
            raise InvalidArgumentError(
                f"{state} needs components of fully defined shapes to dequeue more than one "
                "element at a time; dequeue single ones, or give the queue its shapes"
            )
        if self._count == 0:
            self._finish(state)

    def advance(self, state: Queue) -> bool:
        if state.is_closed:
            self._check_enough(state)
        n_new = min(state.n_available, self._count - self._n_taken)
        if n_new:
            self._taken.append(state.take_many(n_new))
            self._n_taken += n_new
        # With fewer than `count` it is over only when a round has brought nothing more.
        if self._n_taken == self._count or (not n_new and self._has_enough(state)):
            self._finish(state)
        return n_new > 0

    def undo(self, state: Queue) -> None:
        state.put_back(self._taken)
        self._taken, self._n_taken = [], 0

    def _has_enough(self, state: Queue) -> bool:
        wanted = min(1, self._count) if self._up_to and state.is_closed else self._minimum
        return self._n_taken + state.n_available >= wanted

    def _check_enough(self, state: Queue) -> None:
        if not self._has_enough(state):
            raise _insufficient(state, self._count - self._n_taken)

    def _finish(self, state: Queue) -> None:
        if state.spec.kind == PRIORITY and len(self._taken) > 1:
            self._take_smallest(state)
        try:
            batches = state.batches(self._taken)
        except (MemoryError, ValueError) as error:  # the latter if the size is no size_t
            raise ResourceExhaustedError(
                f"no memory for a batch of {self._n_taken} elements of {state}, each padded to "
                f"the size of the largest: {error}; the elements are in the queue again"
            ) from error
        self.succeed(batches)

    def _take_smallest(self, state: Queue) -> None:
        """Takes as many elements again, the smallest of all that came while it waited.

        Each round took the smallest of what was there, and a smaller one may have come later.
        """
        count = self._n_taken
        self.undo(state)
        self._taken = [state.take_many(count)]
        self._n_taken = count


class Close(LinedAttempt[Queue]):
    """Closes the queue, once the enqueues before it are done or, if it cancels them, now.

    Args:
      cancel_pending_enqueues: whether enqueues that wait fail.
    """

    __slots__ = ("_cancels",)
    line = _ENQUEUES
    can_be_undone = False

    def __init__(self, cancel_pending_enqueues: bool = False) -> None:
        super().__init__()
        self._cancels = cancel_pending_enqueues

    def start(self, state: Queue) -> None:
        if self._cancels:
            state.is_closed = True
            self.succeed()

    def advance(self, state: Queue) -> bool:
        if state.is_closed:
            raise CancelledError(f"{state} is already closed")
        state.is_closed = True
        self.succeed()
        return True


def _elements(kind: str, table: Table, chance: np.random.Generator) -> Elements:
    if kind == SHUFFLE:
        return Pool(table, chance)
    return Heap(table) if kind == PRIORITY else Line(table)


def _check_number(components: tuple[Array, ...], queue: Queue) -> None:
    expected = len(queue.spec.components)
    if len(components) != expected:
        raise InvalidArgumentError(
            f"Wrong number of components in tuple for {queue}. Expected {expected}, "
            f"got {len(components)}"
        )


def _check_size(n_bytes: int, queue: Queue) -> None:
    capacity = queue.spec.capacity_bytes
    if capacity is not None and n_bytes > capacity:
        raise ResourceExhaustedError(
            f"an element of {n_bytes} bytes can never enter {queue}, which may hold {capacity} "
            "bytes; make the queue with a larger capacity_bytes, or the element smaller"
        )


def _closed(queue: Queue, progress: str = "") -> CancelledError:
    return CancelledError(f"Enqueue operation was cancelled: {queue} is closed{progress}")


def _insufficient(queue: Queue, n_missing: int) -> OutOfRangeError:
    return OutOfRangeError(
        f"{queue} is closed and has insufficient elements (requested {n_missing}, "
        f"current size {queue.size})"
    )
