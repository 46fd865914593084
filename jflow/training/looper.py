"""`LooperThread`: calls something again and again until a coordinator stops it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from jflow.training.coordinator import Coordinator


class LooperThread(threading.Thread):
    """A daemon thread that calls a function until a stop is requested.

    An exception in it becomes a request to stop. Instead of giving a function, one can override
    `start_loop`, `run_loop` and `stop_loop`.

    Args:
      coord: the coordinator, which it is registered with.
      timer_interval_secs: time from the start of a call to that of the next; None for no pause.
        Calls that come late are caught up on.
      target: what to call.
      args, kwargs: what to call it with.

    Raises:
      TypeError: if `coord` is no coordinator.
      ValueError: if there are arguments and nothing to call.
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
            raise ValueError("args and kwargs are for a target, and there is none; pass target=")
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
        """A thread that was started; arguments and errors as for the class."""
        looper = cls(coord, timer_interval_secs, target, args, kwargs)
        looper.start()
        return looper

    def run(self) -> None:
        """What the thread does."""
        with self._coord.stop_on_exception():
            self.start_loop()
            due = time.monotonic()
            while not self._coord.wait_for_stop(due - time.monotonic()):
                due += self._timer_interval_secs or 0.0
                self.run_loop()
            self.stop_loop()

    def start_loop(self) -> None:
        """Called before the first call."""

    def run_loop(self) -> None:
        """One call."""
        if self._call is not None:
            args, kwargs = self._arguments
            self._call(*args, **kwargs)

    def stop_loop(self) -> None:
        """Called after the last call, unless an exception ended it."""
