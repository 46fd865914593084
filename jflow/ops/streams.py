"""Many elements in and out of a live queue without a round trip for each."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

import numpy as np

from jflow.errors import OpError, OutOfRangeError

Row = list[np.ndarray[Any, Any]]
"""The arrays of one element."""

MAX_AHEAD_BYTES = 4 << 20
"""How much a writer takes before it has been told that it is in the queue."""

_MAX_BATCH_BYTES = 1 << 20


class QueueWriter:
    """Puts elements into a queue in their order, as many with each message as are there.

    `put` returns before an element is in the queue, `flush` when all are; leaving the block
    flushes. What was put and not flushed is lost if this process dies.

    Args:
      rows: the arrays of an element; refuses what does not fit.
      send: puts a batch of rows, stacked, and returns when they are in the queue.
      max_ahead_bytes: how much may be on its way; more makes `put` wait.
    """

    def __init__(
        self,
        rows: Callable[[Any], Row],
        send: Callable[[Row], object],
        max_ahead_bytes: int = MAX_AHEAD_BYTES,
    ) -> None:
        self._rows = rows
        self._send = send
        self._max_ahead_bytes = max_ahead_bytes
        self._changed = threading.Condition()
        self._pending: deque[Row] = deque()
        self._ahead_bytes = 0
        self._n_taken = 0
        self._n_acknowledged = 0
        self._error: BaseException | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="jflow queue writer", daemon=True)
        self._thread.start()

    @property
    def n_acknowledged(self) -> int:
        """How many elements are in the queue for certain."""
        return self._n_acknowledged

    def put(self, element: Any) -> None:
        """Adds an element; waits while too much is on its way.

        Raises:
          ValueError, TypeError: if the element does not fit; the writer goes on.
          OpError: if an earlier element could not be put; those after it were not either.
        """
        row = [np.array(array) for array in self._rows(element)]  # its owner may change it
        size = _n_bytes(row)
        with self._changed:
            self._changed.wait_for(
                lambda: self._error or self._is_closed or self._ahead_bytes < self._max_ahead_bytes
            )
            self._check()
            self._pending.append(row)
            self._ahead_bytes += size
            self._n_taken += 1
            self._changed.notify_all()

    def flush(self, timeout: float | None = None) -> None:
        """Waits until every element so far is in the queue.

        Raises:
          TimeoutError: if it takes longer than `timeout` seconds.
          OpError: if one could not be put.
        """
        with self._changed:
            wanted = self._n_taken
            if not self._changed.wait_for(
                lambda: self._error or self._n_acknowledged >= wanted, timeout
            ):
                raise TimeoutError(
                    f"{wanted - self._n_acknowledged} elements were not in the queue after "
                    f"{timeout} s; they are still on their way"
                )
            if self._error is not None:
                self._check()

    def close(self) -> None:
        """Flushes and ends. May be called again."""
        try:
            self.flush()
        finally:
            with self._changed:
                self._is_closed = True
                self._changed.notify_all()
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _check(self) -> None:
        if self._error is not None:
            n_lost = self._n_taken - self._n_acknowledged
            self._error.add_note(f"{n_lost} elements of this writer are not known to be in")
            raise self._error
        if self._is_closed:
            raise RuntimeError("the writer was closed")

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._is_closed)
                if not self._pending:
                    return
                batch = self._next_batch()
            try:
                # One message at a time, so that elements keep their order.
                self._send([np.stack(column) for column in zip(*batch, strict=True)])
            except BaseException as error:  # whatever it is, the one who puts is told
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return
            with self._changed:
                self._n_acknowledged += len(batch)
                self._ahead_bytes -= sum(map(_n_bytes, batch))
                self._changed.notify_all()

    def _next_batch(self) -> list[Row]:
        """The first rows that can be stacked and are not too much for one message."""
        batch = [self._pending.popleft()]
        size = _n_bytes(batch[0])
        shapes = [array.shape for array in batch[0]]
        while self._pending and size < _MAX_BATCH_BYTES:
            row = self._pending[0]
            if [array.shape for array in row] != shapes:
                break
            size += _n_bytes(row)
            batch.append(self._pending.popleft())
        return batch


class QueueReader:
    """Takes elements out of a queue ahead of their use, until it is closed and empty.

    What was taken ahead and not used is lost when the reader is closed or the process dies.

    Args:
      start: begins to take a batch of what is there.
      element: the element of a row's arrays.
    """

    def __init__(
        self, start: Callable[[], Future[Row]], element: Callable[[Sequence[Any]], Any]
    ) -> None:
        self._start = start
        self._element = element
        self._next: Future[Row] | None = start()
        self._rows: Iterator[tuple[Any, ...]] = iter(())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        """The next element. Raises StopIteration when the queue is closed and empty."""
        row = next(self._rows, None)
        if row is None:
            self._rows = self._batch()
            row = next(self._rows)
        return self._element([np.asarray(array) for array in row])

    def close(self) -> None:
        """Takes no more. May be called again."""
        future, self._next = self._next, None
        if future is not None:
            future.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _batch(self) -> Iterator[tuple[Any, ...]]:
        if self._next is None:
            raise StopIteration
        try:
            columns = self._next.result()
        except OutOfRangeError:
            self._next = None
            raise StopIteration from None
        except (OpError, RuntimeError):
            self._next = None
            raise
        self._next = self._start()
        return zip(*columns, strict=True)


def _n_bytes(row: Row) -> int:
    return sum(
        array.nbytes + (sum(map(len, array.flat)) if array.dtype == object else 0) for array in row
    )
