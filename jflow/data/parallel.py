"""Threads of streams: parallel calls of a function, and reading ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from jflow.data.engine import experimental, grain
from jflow.data.stream import Cursor, State


class Parallel(grain.DatasetIterator[Any]):
    """Reads as many elements ahead as it has threads.

    Its position is that of its input before the oldest element that was not returned yet. This is
    the same without threads, so their number may differ where the position is restored.
    """

    def __init__(self, parent: Cursor, call: Callable[[Any], Any], threads: int) -> None:
        super().__init__(parent)
        self._call = call
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._ahead: deque[tuple[State, Future[Any]]] = deque()
        self._ended = False

    def __next__(self) -> Any:
        while not self._ended and len(self._ahead) < self._threads:
            self._read()
        if not self._ahead:
            raise StopIteration
        return self._ahead.popleft()[1].result()

    def _read(self) -> None:
        before = self._parent.get_state()
        try:
            result = self._submit(next(self._parent))
        except StopIteration:
            self._ended = True
            return
        except Exception as error:
            # It must be raised after the results of earlier elements were returned.
            self._ended = True
            result = Future()
            result.set_exception(error)
        self._ahead.append((before, result))

    def _submit(self, element: Any) -> Future[Any]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="jflow-data")
        return self._pool.submit(self._call, element)

    def get_state(self) -> State:
        return self._ahead[0][0] if self._ahead else self._parent.get_state()

    def set_state(self, state: State) -> None:
        self._stop()
        self._parent.set_state(state)
        self._ended = False

    def _stop(self) -> None:
        if self._pool is not None:
            with suppress(RuntimeError):  # of a thread that would wait for itself, see below
                self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = None
        self._ahead.clear()

    def close(self) -> None:
        self._stop()
        super().close()


class Prefetched(experimental.ThreadPrefetchDatasetIterator[Any]):
    """Grain's iterator that reads ahead in a thread.

    Grain closes an iterator that is collected as garbage, and closing waits for its threads. But
    the collector runs on any thread, also on one of these, which cannot wait for itself; it has
    been told to end by then.
    """

    def close(self) -> None:
        with suppress(RuntimeError):
            super().close()  # type: ignore[no-untyped-call]
