"""Notices of long waits, which tell users what is waited for: after 10 s, then less and less often.

What is told goes to the logger "jflow.waits" as a warning, which Python shows on standard error
unless the program configures logging. JFLOW_WAIT_NOTICE_S sets the first pause; 0 tells nothing.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from jflow.base.deadline.deadline import Deadline
from jflow.errors import InvalidArgumentError

Key = TypeVar("Key", bound=Hashable)
T = TypeVar("T")

VARIABLE = "JFLOW_WAIT_NOTICE_S"
"""The variable with the seconds of a wait before its first notice; 0 for no notices."""

LOG = logging.getLogger("jflow.waits")
"""The logger of notices."""

_DEFAULT_S = 10.0
_LONGEST_S = 600.0


@cache
def notice_s() -> float:
    """Returns how long a wait lasts before its first notice, in seconds; infinity for no notices.

    Raises:
      InvalidArgumentError: if the environment variable is not a number of seconds from 0 on.
    """
    text = os.environ.get(VARIABLE, "")
    try:
        seconds = float(text) if text else _DEFAULT_S
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise InvalidArgumentError(
            f"{VARIABLE} must be a number of seconds, or 0 for no notices, got {text!r}"
        )
    return seconds or math.inf


class Notices(Generic[Key]):
    """The times of the next notices of several waits, with pauses that double, up to ten minutes.

    A state machine without a clock.
    """

    def __init__(self) -> None:
        self._next: dict[Key, float] = {}
        """How long each wait will have lasted at its next notice, in seconds."""

    def due(self, waited: Mapping[Key, float], first_s: float) -> list[Key]:
        """Returns the waits whose notice is due now; forgets those that have ended.

        Args:
          waited: how long each has waited, of all that waits at present, in seconds.
          first_s: how long something has to wait before its first notice, in seconds.
        """
        self._next = {key: self._next.get(key, first_s) for key in waited}
        due = [key for key, seconds in waited.items() if seconds >= self._next[key]]
        for key in due:
            self._next[key] = waited[key] + min(waited[key], _LONGEST_S)
        return due


class WaitNotice:
    """The notices of one wait in a thread, which sleeps until the next notice is due.

    Args:
      what: says what is waited for; "" if there is nothing to tell.
    """

    def __init__(self, what: Callable[[], str]) -> None:
        self._what = what
        self._start = time.monotonic()
        self._next = notice_s()

    def pause(self, left: float | None) -> float | None:
        """Returns the seconds to sleep until the next notice, at most `left`; None for no limit."""
        until = self._start + self._next - time.monotonic()
        pause = min(max(until, 0.0), math.inf if left is None else left)
        return None if pause == math.inf else pause

    def get_from(self, queue: SimpleQueue[T], deadline: Deadline) -> T:
        """Gets an item from a queue, logging notices. Raises Empty when no time remains."""
        while True:
            try:
                return queue.get(timeout=self.pause(deadline.remaining()))
            except Empty:
                if deadline.remaining() == 0:
                    raise
                self.tell()

    def tell(self) -> None:
        """Logs a notice if one is due. Call it after each sleep."""
        waited = time.monotonic() - self._start
        if waited >= self._next:
            self._next = waited + min(waited, _LONGEST_S)
            if what := self._what():
                LOG.warning("%s", notice(waited, what))

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Context manager for a wait without short sleeps: a timer logs its first notice."""
        if self._next == math.inf:
            yield
            return
        timer = threading.Timer(self._next, self.tell)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def notice(seconds: float, what: str) -> str:
    """Formats a notice: how long something has waited, and for what."""
    return f"waiting for {seconds:.0f} s now: {what}"
