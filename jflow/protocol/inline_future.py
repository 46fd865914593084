"""`InlineFuture`: a future that resumes its one waiter in the call that completes it.

A task that waits for an `asyncio.Future` goes on in the next pass of the loop: a system call and
some bookkeeping, which take as long as what a small step does on a server. The task of a
`InlineFuture` goes on inside the call that completes it, if no other task runs then. If one does,
it goes on when that one waits: a task cannot run inside another.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any, Generic, TypeVar

from jflow.errors import InternalError

T = TypeVar("T")


class _Running(threading.local):
    """What this thread's event loop resumes now.

    Attributes:
      resumed: the futures whose tasks go on behind the one that runs; None if no task was resumed
        by a `InlineFuture`.
    """

    resumed: deque[InlineFuture[Any]] | None = None


_running = _Running()


class InlineFuture(Generic[T]):
    """A result that one task waits for; it goes on as soon as the result is set.

    Use it on the event loop only. It is what asyncio takes for a future, in so far as a task that
    awaits it needs that.

    Args:
      loop: the event loop.

    Raises, when it is awaited:
      InternalError: if another task awaits it.
    """

    __slots__ = (
        *("_asyncio_future_blocking", "_context", "_error", "_is_done", "_loop", "_result"),
        "_wake",
    )

    _result: T
    _context: Context

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._asyncio_future_blocking = False
        self._is_done = False
        self._error: BaseException | None = None
        self._wake: Callable[[InlineFuture[T]], object] | None = None

    def done(self) -> bool:
        """Whether there is a result or an error, or it was cancelled."""
        return self._is_done

    def set_result(self, result: T) -> None:
        """Sets the result, and lets the task that waits for it go on."""
        self._result = result
        self._complete()

    def set_exception(self, error: BaseException) -> None:
        """As `set_result`, for an error that `result` raises."""
        self._error = error
        self._complete()

    def cancel(self, msg: Any = None) -> bool:
        """Cancels the wait; asyncio calls it when the task is cancelled."""
        if self._is_done:
            return False
        self._is_done = True
        self._error = asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg)
        if self._wake is not None:
            self._loop.call_soon(self._wake, self, context=self._context)
        return True

    def result(self) -> T:
        """The result. Raises the error in its place."""
        if self._error is not None:
            raise self._error
        return self._result

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop."""
        return self._loop

    def add_done_callback(
        self, function: Callable[[InlineFuture[T]], object], *, context: Context
    ) -> None:
        """Takes what lets the task go on; asyncio calls it when the task waits."""
        self._wake, self._context = function, context
        if self._is_done:
            self._loop.call_soon(function, self, context=context)

    def __await__(self) -> Generator[Any, None, T]:
        if not self._is_done:
            if self._wake is not None:
                raise InternalError("an InlineFuture can be awaited by one task only")
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    def _complete(self) -> None:
        if self._is_done:
            raise asyncio.InvalidStateError("a result was set twice")
        self._is_done = True
        if self._wake is None:
            return
        resumed = _running.resumed
        if resumed is not None:
            resumed.append(self)
        elif asyncio.current_task(self._loop) is not None:
            self._loop.call_soon(self._wake, self, context=self._context)
        else:
            _go_on(deque((self,)))


def resume_after(function: Callable[[], object]) -> None:
    """Calls a function outside of tasks, then resumes the tasks whose futures it completes.

    Without it they would go on inside of the function, which may be in the middle of something.
    """
    resumed = _running.resumed = deque()
    try:
        function()
    finally:
        _go_on(resumed)


def _go_on(resumed: deque[InlineFuture[Any]]) -> None:
    """Lets tasks go on, and those whose futures are completed meanwhile."""
    _running.resumed = resumed
    try:
        while resumed:
            future = resumed.popleft()
            assert future._wake is not None
            future._context.run(future._wake, future)
    finally:
        _running.resumed = None
        for future in resumed:  # an error such as KeyboardInterrupt ends the loop
            assert future._wake is not None
            future._loop.call_soon(future._wake, future, context=future._context)
