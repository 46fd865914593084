"""What a coordinator counts and measures of its closures, and what it logs while none ends."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from typing import Any

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sampled:
    """Statistics of times of one kind, in seconds.

    Attributes:
      count: how many there were.
      mean, most: their mean, and the longest of them.
    """

    count: int = 0
    mean: float = 0.0
    most: float = 0.0

    def with_one(self, seconds: float) -> Sampled:
        """Returns the statistics with one more time."""
        count = self.count + 1
        mean = self.mean + (seconds - self.mean) / count
        return Sampled(count, mean, max(self.most, seconds))


@dataclass(frozen=True)
class CoordinatorMetrics:
    """The counters and times of a coordinator so far.

    Attributes:
      scheduled, succeeded, failed, cancelled: numbers of closures.
      queued, running: closures that wait now; attempts that run now.
      put_back: how often a closure was run again because its worker was lost.
      worker_failures: how often a worker was lost.
      function_tracing: times of traces, one for each kind of closure.
      closure_execution: times from the start of an attempt to its end.
      remote_value_fetch: times that `fetch` and `get` have waited.
      worker_connecting: times until a worker was ready to run closures.
    """

    scheduled: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    queued: int = 0
    running: int = 0
    put_back: int = 0
    worker_failures: int = 0
    function_tracing: Sampled = Sampled()
    closure_execution: Sampled = Sampled()
    remote_value_fetch: Sampled = Sampled()
    worker_connecting: Sampled = Sampled()


class Meter:
    """Collects the counters and times of `CoordinatorMetrics`; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._times: dict[str, Sampled] = {}

    def count(self, name: str, n: int = 1) -> None:
        """Adds to a counter, given by its attribute."""
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + n

    def note(self, name: str, seconds: float) -> None:
        """Records a time, given by its attribute."""
        with self._lock:
            self._times[name] = self._times.get(name, Sampled()).with_one(seconds)

    def metrics(self, queued: int, running: int) -> CoordinatorMetrics:
        """Returns the counters and times so far, with the present numbers of closures."""
        with self._lock:
            fields: dict[str, Any] = {**self._counts, **self._times}
        return CoordinatorMetrics(queued=queued, running=running, **fields)


class Watchdog:
    """Logs the stacks of all threads repeatedly while no closure ends; it stops nothing.

    Args:
      limit: after how many seconds; None for never.
    """

    def __init__(self, limit: float | None) -> None:
        self._limit = limit
        self._since = time.monotonic()

    def reset(self) -> None:
        """Restarts the period: a closure has ended, or none is open."""
        self._since = time.monotonic()

    def check(self, n_open: int) -> None:
        """Logs the stacks if the period is over, with the number of open closures."""
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
