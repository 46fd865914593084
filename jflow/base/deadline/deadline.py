"""`Deadline`: the point in time by which a call must finish."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from jflow.base.text import seconds_text
from jflow.errors import DeadlineExceededError, OpError, UnavailableError


class Deadline:
    """The point in time by which a call must finish, and the error if it does not.

    A deadline is made once, where a call enters jflow, and is passed to everything that the call
    waits for. Machines do not share a clock, so the remaining time is sent over the wire, and the
    receiver makes a deadline from it.

    Args:
      timeout: the time that the caller allowed, in seconds; messages show this number.
      remaining: what remains of it, in seconds; all of it if None.

    Attributes:
      timeout: as given; None for no limit.
    """

    __slots__ = ("_at", "_is_patience", "timeout")

    def __init__(self, timeout: float | None, remaining: float | None = None) -> None:
        self.timeout = timeout
        self._is_patience = False
        if timeout is None:
            self._at = None
        else:
            left = timeout if remaining is None else remaining
            self._at = time.monotonic() + min(left, threading.TIMEOUT_MAX / 2)

    def remaining(self) -> float | None:
        """Returns the remaining seconds, at least 0; None for no limit."""
        return None if self._at is None else max(self._at - time.monotonic(), 0.0)

    def while_connecting(self, connect_timeout: float) -> Deadline:
        """Returns this deadline, or the end of a connect timeout that starts now, if earlier.

        The two end a wait with different errors: the call's own deadline with
        `DeadlineExceededError`, the connect timeout with `UnavailableError`.
        """
        patience = Deadline(connect_timeout)
        patience._is_patience = True
        if self._at is None or (patience._at is not None and patience._at < self._at):
            return patience
        return self

    def error(
        self, doing: str, task: str | None = None, advice: str = "", op: str | None = None
    ) -> OpError:
        """Returns the error for a wait that this deadline ended.

        Args:
          doing: what the call was waiting for, such as "connecting to /job:ps/task:0".
          task: the task that did not answer, if there is exactly one.
          advice: what the user can do, or what it was that waited.
          op: name of the operation that waited, if it is known.
        """
        seconds = seconds_text(self.timeout or 0.0)
        advice = advice and f"; {advice}"
        if self._is_patience:
            return UnavailableError(f"no answer in {seconds} while {doing}{advice}", task=task)
        return DeadlineExceededError(
            f"the call took longer than its timeout of {seconds} and was cancelled "
            f"while {doing}{advice}",
            op=op,
            task=task,
        )

    def check(self, doing: str, task: str | None = None) -> None:
        """Raises the error if no time remains."""
        if self.remaining() == 0:
            raise self.error(doing, task)

    @contextmanager
    def holding(self, lock: Any, doing: str) -> Iterator[None]:
        """Context manager that holds a `threading` lock; raises the error at the deadline."""
        left = self.remaining()
        if not lock.acquire(timeout=-1 if left is None else left):
            raise self.error(doing)
        try:
            yield
        finally:
            lock.release()

    @asynccontextmanager
    async def bounding(
        self, doing: str, task: str | None = None, advice: str = ""
    ) -> AsyncIterator[None]:
        """Context manager that cancels its asyncio block and raises the error at the deadline."""
        limit = asyncio.timeout(self.remaining())
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise self.error(doing, task, advice) from None


FOREVER = Deadline(None)
"""The deadline of calls without a time limit."""
