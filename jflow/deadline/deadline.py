"""`Deadline`: the time that a call has, fixed once where the call enters jflow."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from jflow.deadline.seconds import seconds_text
from jflow.errors import DeadlineExceededError, OpError, UnavailableError


class Deadline:
    """The point of time at which a call has to be over, and the error if it is not.

    It is made once, where a call enters jflow, and handed to everything that the call waits for.
    Two machines do not share a clock: over the wire goes what remains, and the other end makes a
    deadline of it again.

    Args:
      timeout: how long the caller allowed, in seconds; this is the number in messages.
      remaining: what is left of it; all if None.

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
        """Seconds until then, at least 0; None for no limit."""
        return None if self._at is None else max(self._at - time.monotonic(), 0.0)

    def while_connecting(self, connect_timeout: float) -> Deadline:
        """This deadline, or the end of the connect timeout that begins now, if that is earlier.

        The two end a wait with different errors: `DeadlineExceededError` because the call is over,
        `UnavailableError` because there was no answer for the connect timeout.
        """
        patience = Deadline(connect_timeout)
        patience._is_patience = True
        if self._at is None or (patience._at is not None and patience._at < self._at):
            return patience
        return self

    def error(self, doing: str, task: str | None = None, advice: str = "") -> OpError:
        """The error of a wait that this deadline ended.

        Args:
          doing: what the call was waiting for, such as "connecting to /job:ps/task:0".
          task: the task that did not answer, if a single one.
          advice: what the user can do.
        """
        seconds = seconds_text(self.timeout or 0.0)
        advice = advice and f"; {advice}"
        if self._is_patience:
            return UnavailableError(f"no answer in {seconds} while {doing}{advice}", task=task)
        return DeadlineExceededError(
            f"the call took longer than its timeout of {seconds} and was cancelled "
            f"while {doing}{advice}",
            task=task,
        )

    def check(self, doing: str, task: str | None = None) -> None:
        """Raises the error if the time is over."""
        if self.remaining() == 0:
            raise self.error(doing, task)

    @contextmanager
    def holding(self, lock: Any, doing: str) -> Iterator[None]:
        """A block with a lock of `threading`; raises the error if it is not free in time."""
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
        """A block on an event loop that is cancelled and raises the error when the time is over."""
        limit = asyncio.timeout(self.remaining())
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise self.error(doing, task, advice) from None


FOREVER = Deadline(None)
"""The deadline of a call without a time limit."""
