"""Writers and readers of eager queues, which transfer many elements per round trip."""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from queue import SimpleQueue
from typing import Any, Self

import numpy as np

from jflow.base.handles import Closing
from jflow.base.values import memory_bytes
from jflow.errors import OpError, OutOfRangeError

_log = logging.getLogger(__name__)

Row = list[np.ndarray[Any, Any]]
"""The arrays of one element."""

MAX_AHEAD_BYTES = 4 << 20
"""Bytes that a writer accepts before the queue has acknowledged them."""

_MAX_BATCH_BYTES = 1 << 20


class _Batch:
    """A batch of rows with equal dtypes and shapes, copied into one array for each component."""

    def __init__(self, row: Row) -> None:
        self.kind = _row_types(row)
        capacity = max(1, _MAX_BATCH_BYTES // max(1, sum(array.nbytes for array in row)))
        self._columns = [np.empty((capacity, *array.shape), array.dtype) for array in row]
        self._capacity = capacity
        self.n_rows = 0
        self.n_bytes = 0

    @property
    def columns(self) -> Row:
        """The rows added so far, stacked by component."""
        return [column[: self.n_rows] for column in self._columns]

    def takes(self, row: Row) -> bool:
        """Whether the batch has room for a row, and its rows have the row's dtypes and shapes."""
        has_room = self.n_rows < self._capacity and self.n_bytes < _MAX_BATCH_BYTES
        return has_room and _row_types(row) == self.kind

    def add(self, row: Row, n_bytes: int) -> None:
        """Copies a row into the batch."""
        for column, array in zip(self._columns, row, strict=True):
            column[self.n_rows, ...] = array
        self.n_rows += 1
        self.n_bytes += n_bytes

    def clear(self) -> None:
        """Removes all rows."""
        for column in self._columns:
            if column.dtype == object:
                column.fill(None)
        self.n_rows = self.n_bytes = 0


class QueueWriter(Closing):
    """Puts elements into a queue in order; each message carries all that are pending.

    `put` returns before the element is in the queue; `flush` returns when all elements are. Leaving
    the `with` block flushes, unless an exception ends it. Elements that were not flushed are lost
    if this process dies. A writer that is dropped without `close` still sends its elements, and
    logs it if that fails.

    Args:
      rows: returns the arrays of an element; raises an error if the element does not fit.
      send: starts to put a batch of stacked rows; its future is done when they are in the queue.
      max_ahead_bytes: `put` blocks while more bytes than this are not acknowledged.
    """

    def __init__(
        self,
        rows: Callable[[Any], Row],
        send: Callable[[Row], Future[Any]],
        max_ahead_bytes: int = MAX_AHEAD_BYTES,
    ) -> None:
        self._rows = rows
        self._sender = _Sender(send, max_ahead_bytes)
        weakref.finalize(self, self._sender.drop).atexit = False

    @property
    def n_acknowledged(self) -> int:
        """The number of elements that the queue has acknowledged."""
        return self._sender.n_acknowledged

    def put(self, element: Any) -> None:
        """Puts a copy of an element; blocks while too many are pending.

        Raises:
          ValueError, TypeError: if the element does not fit; the writer stays usable.
          OpError: if an earlier element could not be put; later ones were not put either.
          RuntimeError: if the writer is closed.
        """
        self._sender.put(self._rows(element))

    def __repr__(self) -> str:
        sender = self._sender
        state = "closed, " if sender.is_closed else ""
        in_queue = sender.n_acknowledged
        return f"<jflow.QueueWriter {state}{sender.n_taken} elements put, {in_queue} in the queue>"

    def flush(self, timeout: float | None = None) -> None:
        """Blocks until every element that was put is in the queue.

        Raises:
          TimeoutError: if it takes longer than `timeout` seconds; the elements stay pending.
          OpError: if an element could not be put.
        """
        self._sender.flush(timeout)

    def close(self) -> None:
        """Flushes and closes the writer. May be called again."""
        self._sender.close()

    def _leave(self, failed: bool) -> None:
        if failed:
            self._sender.give_up()
        else:
            self.close()


class _Sender:
    """The pending elements of a writer, and the thread that sends them.

    The thread refers to this object only, so that a writer can be dropped while its thread waits.

    Args:
      send, max_ahead_bytes: as for `QueueWriter`.

    Attributes:
      n_taken, n_acknowledged: how many elements were put, and are in the queue.
      is_closed: whether no more are taken.
    """

    def __init__(self, send: Callable[[Row], Future[Any]], max_ahead_bytes: int) -> None:
        self._send = send
        self._max_ahead_bytes = max_ahead_bytes
        self._changed = threading.Condition()
        # Unlike a condition, it can be notified while garbage is collected, on any thread.
        self._work: SimpleQueue[None] = SimpleQueue()
        self._pending: deque[_Batch] = deque()
        self._spare: _Batch | None = None
        self._ahead_bytes = 0
        self.n_taken = 0
        self.n_acknowledged = 0
        self._error: BaseException | None = None
        self.is_closed = False
        self._is_dropped = False
        self._sending: Future[Any] | None = None
        self._thread = threading.Thread(
            target=self._send_batches, name="jflow queue writer", daemon=True
        )
        self._thread.start()

    def put(self, row: Row) -> None:
        """Adds an element to the pending ones; blocks until there is room."""
        n_bytes = sum(map(memory_bytes, row))
        with self._changed:
            self._changed.wait_for(self._has_room)
            self._check()
            if not self._pending or not self._pending[-1].takes(row):
                self._pending.append(self._batch_for(row))
                self._work.put(None)
            self._pending[-1].add(row, n_bytes)
            self._ahead_bytes += n_bytes
            self.n_taken += 1

    def flush(self, timeout: float | None = None) -> None:
        """Blocks until all elements are in the queue."""
        with self._changed:
            n_to_acknowledge = self.n_taken
            if not self._changed.wait_for(
                lambda: self._error or self.n_acknowledged >= n_to_acknowledge, timeout
            ):
                raise TimeoutError(
                    f"the elements were not all in the queue after {timeout:g} s; "
                    f"{n_to_acknowledge - self.n_acknowledged} are still pending"
                )
            if self._error is not None:
                self._check()

    def close(self) -> None:
        """Flushes, and stops the sending thread."""
        try:
            self.flush()
        finally:
            self._end()

    def give_up(self) -> None:
        """Stops the thread without waiting; pending elements may still get into the queue."""
        with self._changed:
            self._pending.clear()
            if self._sending is not None:
                self._sending.cancel()
        self._end()

    def drop(self) -> None:
        """Makes the thread send what is pending and stop; takes no lock, as a finalizer must."""
        self._is_dropped = self.is_closed = True
        self._work.put(None)

    def _end(self) -> None:
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()
        self._work.put(None)
        self._thread.join()

    def _has_room(self) -> bool:
        return (
            self._ahead_bytes < self._max_ahead_bytes or self.is_closed or self._error is not None
        )

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self.is_closed:
            raise RuntimeError("the writer was closed")

    def _batch_for(self, row: Row) -> _Batch:
        """Returns an empty batch for rows like `row`; reuses the spare batch if it fits."""
        spare, self._spare = self._spare, None
        return spare if spare is not None and spare.kind == _row_types(row) else _Batch(row)

    def _send_batches(self) -> None:
        while True:
            self._work.get()
            with self._changed:
                if not self._pending:
                    if self.is_closed:
                        return
                    continue
                batch = self._pending.popleft()
                try:
                    # One message at a time: it keeps the order of the elements, and what is put
                    # meanwhile goes into one next message.
                    self._sending = self._send(batch.columns)
                except BaseException as error:  # any error is raised by the next `put` or `flush`
                    self._fail(error)
                    return
            try:
                self._sending.result()
            except BaseException as error:  # as above
                with self._changed:
                    self._fail(error)
                return
            with self._changed:
                self.n_acknowledged += batch.n_rows
                self._ahead_bytes -= batch.n_bytes
                batch.clear()
                self._spare = batch
                self._changed.notify_all()

    def _fail(self, error: BaseException) -> None:
        # No element is taken after this, so the number is final.
        n_lost = self.n_taken - self.n_acknowledged
        error.add_note(f"elements of this writer that may not be in the queue: {n_lost}")
        self._error = error
        self._changed.notify_all()
        if self._is_dropped:
            _log.warning("a queue writer was not closed, and lost %d elements: %s", n_lost, error)


class QueueReader(Closing):
    """Prefetches elements of a queue and yields them until the queue is closed and empty.

    Prefetched elements that were not used are lost when the reader is closed or the process dies.

    Args:
      start: starts to take a batch of the available elements.
      element: makes an element of the arrays of a row.
    """

    def __init__(
        self, start: Callable[[], Future[Row]], element: Callable[[Sequence[Any]], Any]
    ) -> None:
        self._start = start
        self._element = element
        self._is_closed = False
        self._next: Future[Row] | None = start()
        self._rows: Iterator[tuple[Any, ...]] = iter(())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        """Returns the next element. Raises StopIteration once the queue is closed and empty."""
        row = next(self._rows, None)
        if row is None:
            self._rows = self._batch()
            row = next(self._rows)
        return self._element([np.asarray(array) for array in row])

    def close(self) -> None:
        """Stops dequeuing elements. May be called again."""
        self._is_closed = True
        future, self._next = self._next, None
        if future is not None:
            future.cancel()

    def _leave(self, failed: bool) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<jflow.QueueReader {'closed' if self._is_closed else 'open'}>"

    def _batch(self) -> Iterator[tuple[Any, ...]]:
        future = self._next
        if future is None:
            raise StopIteration
        try:
            columns = future.result()
        except (OutOfRangeError, CancelledError) as error:
            if isinstance(error, CancelledError) and not self._is_closed:
                raise  # by a reset or the end of the connection
            self._next = None
            raise StopIteration from None
        except (OpError, RuntimeError):
            self._next = None
            raise
        self._next = None if self._is_closed else self._start()
        return zip(*columns, strict=True)


def _row_types(row: Row) -> list[tuple[Any, ...]]:
    """Returns the dtypes and shapes of a row; rows with equal ones can be stacked."""
    return [(array.dtype, array.shape) for array in row]
