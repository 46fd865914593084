"""`LooperThread`: a thread that calls a function periodically."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from jflow.training.thread_coordinator import Coordinator


class LooperThread(threading.Thread):
    """A daemon thread that calls a function until a stop is requested.

    An exception in the function becomes a request to stop. A subclass can override `start_loop`,
    `run_loop` and `stop_loop` instead of passing a function.

    Args:
      coord: the coordinator, with which the thread is registered.
      timer_interval_secs: interval in seconds from the start of a call to that of the next; None
        for no pause. Late calls are made up for.
      target: the function.
      args, kwargs: its arguments.

    Raises:
      TypeError: if `coord` is not a coordinator.
      ValueError: if there are arguments but no function.
    """

    def __init__(
        self,
        coord: Coordinator,
        timer_interval_secs: float | None,
        target: Callable[..., object] | None = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(coord, Coordinator):
            raise TypeError(f"coord must be a Coordinator, got {type(coord).__name__}")
        if target is None and (args or kwargs):
            raise ValueError("args and kwargs require a target; pass target=")
        super().__init__(daemon=True)
        self._coord = coord
        self._timer_interval_secs = timer_interval_secs
        self._call = target
        self._arguments = (tuple(args or ()), dict(kwargs or {}))
        coord.register_thread(self)

    @classmethod
    def loop(
        cls,
        coord: Coordinator,
        timer_interval_secs: float | None,
        target: Callable[..., object],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> Self:
        """Creates and starts a thread; takes and raises as the class."""
        looper = cls(coord, timer_interval_secs, target, args, kwargs)
        looper.start()
        return looper

    def run(self) -> None:
        """Runs the loop; called by the thread."""
        with self._coord.stop_on_exception():
            self.start_loop()
            due = time.monotonic()
            while not self._coord.wait_for_stop(due - time.monotonic()):
                due += self._timer_interval_secs or 0.0
                self.run_loop()
            self.stop_loop()

    def start_loop(self) -> None:
        """Called once, before the first `run_loop`."""

    def run_loop(self) -> None:
        """Called periodically; calls the function."""
        if self._call is not None:
            args, kwargs = self._arguments
            self._call(*args, **kwargs)

    def stop_loop(self) -> None:
        """Called once, after the last `run_loop`, unless that raised."""
