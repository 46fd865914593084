"""`Watchdog`: logs where all threads are when no closure has ended for long."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback

_LOG = logging.getLogger(__name__)


class Watchdog:
    """Logs the stacks of all threads, again and again, while nothing ends; it stops nothing.

    Args:
      limit: after how many seconds; None for never.
    """

    def __init__(self, limit: float | None) -> None:
        self._limit = limit
        self._since = time.monotonic()

    def reset(self) -> None:
        """A closure has ended, or none is open."""
        self._since = time.monotonic()

    def check(self, n_open: int) -> None:
        """Logs the stacks if it is time to, with the number of open closures."""
        if self._limit is None or time.monotonic() - self._since < self._limit:
            return
        self.reset()
        frames = sys._current_frames()
        stacks = [
            f"Thread {thread.name}:\n" + "".join(traceback.format_stack(frames[thread.ident]))
            for thread in threading.enumerate()
            if thread.ident in frames
        ]
        _LOG.warning(
            "no closure has ended for %s s, %d are open; the threads are at\n%s",
            self._limit,
            n_open,
            "\n".join(stacks),
        )
