"""Attempts on queues.

The rules are TensorFlow's, with one exception: a cancelled dequeue loses no elements, because the
elements that it had taken return to the front of the queue.

Attempts that need several elements progress element by element, so that a batch may be larger than
the capacity. This cannot deadlock two of them: only the head of each wait queue acts, so at most
one dequeue holds elements, and nothing else can take the elements that it still needs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jflow.base.values import Array
from jflow.errors import (
    CancelledError,
    InvalidArgumentError,
    OutOfRangeError,
    ResourceExhaustedError,
)
from jflow.state.resources.queue.column import ends_in_bytes
from jflow.state.resources.queue.spec import PRIORITY
from jflow.state.resources.queue.state import Queue, QueueAttempt
from jflow.state.resources.queue.table import Block
from jflow.state.resources.tensors import mismatch

_ENQUEUES, _DEQUEUES = range(2)


class Enqueue(QueueAttempt):
    """Adds a copy of an element.

    Args:
      components: the arrays of the element; they must not change before the attempt completes.
    """

    __slots__ = ("_element", "_n_bytes")
    wait_queue = _ENQUEUES
    can_roll_back = False

    def __init__(self, components: tuple[Array, ...]) -> None:
        super().__init__()
        self._element = components
        self._n_bytes = 0

    def start(self, state: Queue) -> None:
        _check_number(self._element, state)
        for i, component in enumerate(state.spec.components):
            array = self._element[i]
            if not component.fits(array):
                raise mismatch(component, array, f"tuple component {i}", state)
        self._n_bytes = state.element_bytes(self._element)
        _check_size(self._n_bytes, state)

    def advance(self, state: Queue) -> bool:
        if state.is_closed:
            raise _closed_error(state)
        if state.has_room(self._n_bytes):
            state.put(self._element, self._n_bytes)
            self.succeed()
        else:
            state.check_bytes(self._n_bytes)
        return self.is_complete

    def goal(self, state: Queue) -> str:
        return f"to enqueue an element into {state}, which has {state.fill}"


class EnqueueMany(QueueAttempt):
    """Adds copies of the rows of a batch, each as soon as there is room.

    Args:
      components: an array for each component, with one row per element.
    """

    __slots__ = ("_batches", "_ends", "_n_entered")
    wait_queue = _ENQUEUES
    can_roll_back = False

    def __init__(self, components: tuple[Array, ...]) -> None:
        super().__init__()
        self._batches = components
        self._n_entered = 0

    def start(self, state: Queue) -> None:
        _check_number(self._batches, state)
        for i, component in enumerate(state.spec.components):
            batch = self._batches[i]
            if batch.ndim == 0 or not component.batch.fits(batch):
                raise mismatch(component.batch, batch, f"tuple component {i}", state)
        self._check_n_rows()
        self._ends = ends_in_bytes(self._batches)
        if len(self._ends) == 1:
            self.succeed()
        elif state.spec.capacity_bytes is not None:
            _check_size(int(np.diff(self._ends).max()), state)

    def advance(self, state: Queue) -> bool:
        start, n_rows = self._n_entered, len(self._ends) - 1
        if state.is_closed:
            raise _closed_error(state, f"; {start} of {n_rows} had entered")
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

    def goal(self, state: Queue) -> str:
        n_rows, n_entered = len(self._ends) - 1, self._n_entered
        progress = f" ({n_entered} have entered)" if n_entered else ""
        return f"to enqueue {n_rows} elements{progress} into {state}, which has {state.fill}"

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


class Dequeue(QueueAttempt):
    """Takes one element; its values are the components."""

    __slots__ = ("_elements",)
    wait_queue = _DEQUEUES

    def __init__(self) -> None:
        super().__init__()
        self._elements: tuple[Array, ...] | None = None

    def advance(self, state: Queue) -> bool:
        if state.n_available:
            self._elements = state.take()
            self.succeed(self._elements)
        elif state.is_closed:
            raise _insufficient_error(state, 1)
        return self.is_complete

    def goal(self, state: Queue) -> str:
        return f"to dequeue an element from {state}, which has {state.fill}"

    def rollback(self, state: Queue) -> None:
        if self._elements is not None:
            state.put_back_one(self._elements)
        self._elements = None


class DequeueMany(QueueAttempt):
    """Takes up to `count` elements as they arrive; its values are the stacked components.

    Args:
      count: the number of elements to take.
      up_to: whether fewer elements, but at least one, are enough once the queue is closed.
      minimum: the number that is enough if no more are available at once; `count` if None.
    """

    __slots__ = ("_count", "_elements", "_holds", "_minimum", "_n_taken", "_up_to")
    wait_queue = _DEQUEUES

    def __init__(self, count: int, up_to: bool = False, minimum: int | None = None) -> None:
        super().__init__()
        self._count = count
        self._up_to = up_to
        self._minimum = count if minimum is None else minimum
        self._elements: list[Block] = []
        self._holds = False
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
                f"{state} needs components with fully defined shapes to dequeue more than one "
                "element at a time; dequeue single elements, or pass shapes= to the queue"
            )
        if self._count == 0:
            self._finish(state)

    def advance(self, state: Queue) -> bool:
        if state.is_closed:
            self._check_enough(state)
        n_new = min(state.n_available, self._count - self._n_taken)
        if n_new:
            self._take(state, n_new)
        # With fewer than `count` it completes only after a round that brought nothing more: until
        # then waiting enqueues may still fill the room that it has just made.
        if self._n_taken == self._count or (not n_new and self._has_enough(state)):
            self._finish(state)
        return n_new > 0

    def goal(self, state: Queue) -> str:
        progress = f" (it has {self._n_taken} of them)" if self._n_taken else ""
        least = f"{self._minimum} to " if self._minimum < self._count else ""
        return (
            f"to dequeue {least}{self._count} elements{progress} from {state}, which has "
            f"{state.fill}"
        )

    def rollback(self, state: Queue) -> None:
        if self._holds:
            state.held_bytes = 0
        state.put_back(self._elements)
        self.drop()

    def drop(self) -> None:
        self._elements, self._n_taken, self._holds = [], 0, False

    def taken_elements(self) -> Sequence[Block]:
        return self._elements

    def _take(self, state: Queue, count: int) -> None:
        """Takes elements, and notes that it holds them unless they are all that it wants."""
        if self._n_taken or count < self._count:
            self._holds = True
            self._elements.append(state.hold_many(count))
        else:
            self._elements.append(state.take_many(count))
        self._n_taken += count

    def _has_enough(self, state: Queue) -> bool:
        n_enough = min(1, self._count) if self._up_to and state.is_closed else self._minimum
        return self._n_taken + state.n_available >= n_enough

    def _check_enough(self, state: Queue) -> None:
        if not self._has_enough(state):
            raise _insufficient_error(state, self._count - self._n_taken)

    def _finish(self, state: Queue) -> None:
        if state.spec.kind == PRIORITY and len(self._elements) > 1:
            self._take_smallest(state)
        try:
            batches = state.batches(self._elements)
        except (MemoryError, ValueError) as error:  # ValueError if the size exceeds size_t
            raise ResourceExhaustedError(
                f"not enough memory for a batch of {self._n_taken} elements of {state}, each "
                f"padded to the size of the largest: {error}; the elements are back in the queue"
            ) from error
        if self._holds:
            self._holds = False
            state.let_go()
        self.succeed(batches)

    def _take_smallest(self, state: Queue) -> None:
        """Exchanges the taken elements for as many that are the smallest by now.

        Each round took the smallest elements present, but smaller ones may have arrived later.
        """
        count = self._n_taken
        self.rollback(state)
        self._elements = [state.take_many(count)]
        self._n_taken = count


class Close(QueueAttempt):
    """Closes the queue, after the waiting enqueues or, if it cancels them, at once.

    Args:
      cancel_pending_enqueues: whether to fail the enqueues that wait.
    """

    __slots__ = ("_cancels",)
    wait_queue = _ENQUEUES
    can_roll_back = False

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

    def goal(self, state: Queue) -> str:
        return f"to close {state}"


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
            f"an element of {n_bytes} bytes can never enter {queue}, which has a capacity of "
            f"{capacity} bytes; increase capacity_bytes or enqueue smaller elements"
        )


def _closed_error(queue: Queue, progress: str = "") -> CancelledError:
    return CancelledError(f"Enqueue operation was cancelled: {queue} is closed{progress}")


def _insufficient_error(queue: Queue, n_missing: int) -> OutOfRangeError:
    return OutOfRangeError(
        f"{queue} is closed and has insufficient elements (requested {n_missing}, "
        f"current size {queue.size})"
    )
