"""`VirtualClock`: a clock that only a test advances."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import selectors
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualClock:
    """A clock that only a test advances.

    Three ways of taking time go with it:

    * A state machine that takes the time as an argument is given `clock.now()`.
    * Code that reads the module `time` sees this clock in `with clock.installed(module):`.
    * A coroutine that is run by `clock.run` waits on an event loop in this time: when nothing is
      left to do, the clock moves on to the next timer, so an hour takes no time at all.

    Args:
      start: the time at the beginning, in seconds.
    """

    def __init__(self, start: float = 1000.0) -> None:
        self._now = start
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()

    def now(self) -> float:
        """Returns the current time in seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Advances the clock; fires the timers that become due, each at its own time, in order."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} s")
        end = self._now + seconds
        while self._timers and self._timers[0][0] <= end:
            self._now, _, timer = heapq.heappop(self._timers)
            timer.fire()
        self._now = max(self._now, end)

    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer:
        """Schedules a call of `callback` for when the clock has advanced by `delay` seconds."""
        timer = Timer(callback)
        due = self._now + max(delay, 0.0)
        heapq.heappush(self._timers, (due, next(self._numbers), timer))
        return timer

    @contextmanager
    def installed(self, *modules: ModuleType) -> Iterator[None]:
        """A context manager in which the name `time` of the modules refers to this clock.

        It has `monotonic`, `perf_counter`, `time` and `sleep`, which advances the clock.
        """
        stand_in = SimpleNamespace(
            monotonic=self.now, perf_counter=self.now, time=self.now, sleep=self.advance
        )
        with ExitStack() as stack:
            for module in modules:
                stack.callback(setattr, module, "time", module.time)
                module.time = stand_in  # type: ignore[attr-defined]
            yield

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine like `asyncio.run`, on an event loop whose time is this clock.

        Only for coroutines without threads and sockets: these work in real time, which the clock
        does not wait for.

        Raises:
          RuntimeError: if everything waits for something other than time.
        """
        with asyncio.Runner(loop_factory=lambda: _Loop(self)) as runner:
            return runner.run(coroutine)


class Timer:
    """A scheduled call; see `VirtualClock.call_later`."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Cancels the call."""
        self._callback = None

    def fire(self) -> None:
        """Makes the call, unless it was cancelled or made before."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose time is a virtual clock."""

    def __init__(self, clock: VirtualClock) -> None:
        self._virtual = clock
        super().__init__(_Selector(clock))

    def time(self) -> float:
        return self._virtual.now()


class _Selector(selectors.DefaultSelector):
    """A selector that advances the virtual clock instead of waiting."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise RuntimeError("every coroutine waits, and none of them for the time to pass")
        self._clock.advance(timeout)
        return []
