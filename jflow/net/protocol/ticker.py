"""`Ticker`: calls functions at an interval, on one thread for all of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import cache

_LOG = logging.getLogger(__name__)


class Ticker:
    """Calls functions at an interval, from one thread that ends when there are none; thread-safe.

    Args:
      interval: in seconds.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._changed = threading.Condition()
        self._functions: set[Callable[[], object]] = set()
        self._is_running = False

    def add(self, function: Callable[[], object]) -> None:
        """Begins to call a function, which must not block.

        If it raises an exception, that is logged, and the function is removed.
        """
        with self._changed:
            self._functions.add(function)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="jflow heartbeat", daemon=True).start()

    def remove(self, function: Callable[[], object]) -> None:
        """Stops calling a function; a call that has begun is completed."""
        with self._changed:
            self._functions.discard(function)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: not self._functions, self._interval):
                    self._is_running = False
                    return
                functions = list(self._functions)
            for function in functions:
                try:
                    function()
                except Exception:  # the others still need to be called
                    _LOG.exception("%r is not called any more", function)
                    self.remove(function)


@cache
def ticker(interval: float) -> Ticker:
    """Returns this process's ticker for an interval, in seconds."""
    return Ticker(interval)
