"""`Fibers`: base of drivers whose coroutines take turns; without a clock, a thread or a lock.

A subclass says what time it is, when what can go on does, and how work is performed: `ThreadDriver`
for the threads of callers, the simulator of the tests for a time that is not real.
"""

from __future__ import annotations

import heapq
import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from typing import Any, Generic, ParamSpec, TypeVar

from jflow.errors import CancelledError

T = TypeVar("T")
P = ParamSpec("P")


_FEW_TIMERS = 64
"""The number of cancelled timers that may be kept before they are dropped."""


class CancelledFiber(BaseException):
    """Raised in a cancelled fiber where it waits."""


class FiberGroup:
    """The fibers that one call has started, directly or indirectly.

    Attributes:
      ready: those that can go on.
      n_open: how many have not ended.
      failed: those that have ended with an error, whose result nothing has taken yet.
    """

    def __init__(self) -> None:
        self.ready: deque[FiberJob[Any]] = deque()
        self.n_open = 0
        self.failed: dict[FiberJob[Any], Exception] = {}

    def wake(self, fiber: FiberJob[Any]) -> None:
        """Marks a fiber as ready to run."""
        self.ready.append(fiber)


class FiberEvent:
    """See `Event`. It belongs to the group of fibers that ran when it was made."""

    __slots__ = ("_group", "_is_set", "_waiting")

    def __init__(self, group: FiberGroup) -> None:
        self._group = group
        self._is_set = False
        self._waiting: list[FiberJob[Any]] = []

    def is_set(self) -> bool:
        """See `Event.is_set`."""
        return self._is_set

    def set(self) -> None:
        """See `Event.set`."""
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for fiber in waiting:
            fiber.wake()

    def set_threadsafe(self) -> None:
        """See `Event.set_threadsafe`; there is one thread here."""
        self.set()

    def add(self, fiber: FiberJob[Any]) -> None:
        """Adds a waiting fiber, which is woken by the event."""
        self._waiting.append(fiber)

    def remove(self, fiber: FiberJob[Any]) -> None:
        """Removes a waiting fiber."""
        self._waiting.remove(fiber)

    async def wait(self) -> None:
        """See `Event.wait`."""
        while not self._is_set:
            await self

    def __await__(self) -> Generator[FiberEvent, None, None]:
        yield self


class FiberJob(Generic[T]):
    """A fiber: one coroutine of a group. See `Job`.

    Args:
      coroutine: what it runs.
      group: what it is one of.
      ended: happens when it has ended.

    Attributes:
      ended: as given.
      must_complete: whether it must be completed now, each of them for a part of what it runs.
      is_interrupted: whether its thread was interrupted, which no limit around it may hide.
    """

    def __init__(
        self, coroutine: Coroutine[Any, Any, T], group: FiberGroup, ended: FiberEvent
    ) -> None:
        self.group = group
        self._coroutine = coroutine
        self.ended = ended
        self._waits_for: FiberEvent | None = None
        self._is_ready = False
        self._is_running = False
        self._thrown: BaseException | None = None
        self.must_complete: list[Callable[[], bool]] = []
        self.is_interrupted = False
        self._at_end: list[Callable[[FiberJob[T]], None]] = []
        self._value: Any = None
        self._error: BaseException | None = None

    def wake(self) -> None:
        """Marks the fiber as ready to run."""
        self._waits_for = None
        if not self._is_ready and not self.done():
            self._is_ready = True
            self.group.wake(self)

    def step(self) -> None:
        """Runs the fiber until its next wait or its end."""
        if self.done():
            return
        self._is_ready, self._is_running = False, True
        thrown_error, self._thrown = self._thrown, None
        try:
            run = self._coroutine
            event = run.send(None) if thrown_error is None else run.throw(thrown_error)
        except StopIteration as end:
            self._end(end.value, None)
        except (Exception, CancelledFiber) as error:
            self._end(None, error)
        except BaseException as error:  # an interrupt of the thread, which has to see it
            self._end(None, error)
            raise
        else:
            assert isinstance(event, FiberEvent), f"a fiber waits for {event!r}"
            if event.is_set() or self._thrown is not None:
                self.wake()
            else:
                self._waits_for = event
                event.add(self)
        finally:
            self._is_running = False

    def throw(self, error: BaseException) -> None:
        """Raises an error in the fiber at its present or next wait."""
        if self.done():
            return
        if self._waits_for is not None:
            self._waits_for.remove(self)
        self._thrown = error
        if not self._is_running:
            self.wake()

    def cancel(self) -> bool:
        """See `Job.cancel`."""
        if self.done() or any(must() for must in self.must_complete):
            return False
        self.throw(CancelledFiber())
        return True

    def done(self) -> bool:
        """See `Job.done`."""
        return self.ended.is_set()

    @property
    def has_failed(self) -> bool:
        """Whether the fiber has ended with an error."""
        return self._error is not None

    def __repr__(self) -> str:
        return f"<fiber {getattr(self._coroutine, '__qualname__', '')}>"

    def call_at_end(self, function: Callable[[FiberJob[T]], None]) -> None:
        """Registers a function, which must not raise, to be called when the fiber ends."""
        self._at_end.append(function)

    def result(self) -> T:
        """Returns the result of a fiber that has ended, or raises its error."""
        self.group.failed.pop(self, None)
        if isinstance(self._error, CancelledFiber):
            raise CancelledError("the call was cancelled")
        if self._error is not None:
            raise self._error
        value: T = self._value
        return value

    def __await__(self) -> Generator[Any, Any, T]:
        yield from self.ended.wait().__await__()
        return self.result()

    def close(self) -> None:
        """Ends the fiber where it waits; it cannot wait again."""
        if not self.done():
            if self._waits_for is not None:
                self._waits_for.remove(self)
            self._coroutine.close()
            self._end(None, CancelledFiber())

    def _end(self, value: Any, error: BaseException | None) -> None:
        self._value, self._error = value, error
        self.group.n_open -= 1
        if isinstance(error, Exception) and not self._at_end:
            self.group.failed[self] = error
        self.ended.set()
        for function in self._at_end:
            function(self)


class FiberTimer:
    """See `TimerHandle`.

    Attributes:
      at: when the function is called.
    """

    def __init__(self, at: float, function: Callable[[], object], group: FiberGroup) -> None:
        self.at = at
        self.group = group
        self._function: Callable[[], object] | None = function

    @property
    def is_cancelled(self) -> bool:
        """Whether the call was cancelled or has been made."""
        return self._function is None

    def cancel(self) -> None:
        """See `TimerHandle.cancel`."""
        self._function = None

    def fire(self) -> None:
        """Calls the function, unless cancelled."""
        function, self._function = self._function, None
        if function is not None:
            function()


class Fibers(ABC):
    """Base of `CoreDriver`s for coroutines that take turns; a subclass decides when each runs.

    Attributes:
      group: of the fiber that runs, or of what has made the timer that is called.
      fiber: what runs; None in a timer.
    """

    Cancelled = CancelledFiber

    def __init__(self) -> None:
        self.group = FiberGroup()
        self.fiber: FiberJob[Any] | None = None
        self._timers: list[tuple[float, int, FiberTimer]] = []
        self._numbers = itertools.count()
        self._purge_at = _FEW_TIMERS

    @abstractmethod
    def now(self) -> float:
        """See `CoreDriver.now`."""

    @abstractmethod
    def wall_time(self) -> float:
        """See `CoreDriver.wall_time`."""

    @abstractmethod
    def random_bits(self, k: int) -> int:
        """See `CoreDriver.random_bits`."""

    def event(self) -> FiberEvent:
        """See `CoreDriver.event`."""
        return FiberEvent(self.group)

    def later(self, seconds: float, function: Callable[..., object], *args: Any) -> FiberTimer:
        """See `CoreDriver.later`."""
        timer = FiberTimer(self.now() + seconds, lambda: function(*args), self.group)
        heapq.heappush(self._timers, (timer.at, next(self._numbers), timer))
        if len(self._timers) > self._purge_at:
            self._timers = [entry for entry in self._timers if not entry[2].is_cancelled]
            heapq.heapify(self._timers)
            self._purge_at = 2 * len(self._timers) + _FEW_TIMERS
        return timer

    def start(self, coroutine: Coroutine[Any, Any, T]) -> FiberJob[T]:
        """See `CoreDriver.start`."""
        fiber = FiberJob(coroutine, self.group, self.event())
        self.group.n_open += 1
        fiber.wake()
        return fiber

    def current(self) -> FiberJob[Any]:
        """See `CoreDriver.current`."""
        assert self.fiber is not None
        return self.fiber

    def limit(self, seconds: float | None) -> _Limit:
        """See `CoreDriver.limit`."""
        return _Limit(self, seconds)

    async def sleep(self, seconds: float) -> None:
        """See `CoreDriver.sleep`."""
        over = self.event()
        timer = self.later(seconds, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    async def work(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `CoreDriver.work`; here the function is called at once."""
        return function(*args, **kwargs)

    async def all_of(self, awaitables: Iterable[Awaitable[T]]) -> list[T]:
        """See `CoreDriver.all_of`."""
        jobs = [self.start(_coroutine(awaitable)) for awaitable in awaitables]
        ended_jobs, changed = list[FiberJob[T]](), [self.event()]

        def note(job: FiberJob[T]) -> None:
            ended_jobs.append(job)
            changed[0].set()

        for job in jobs:
            job.call_at_end(note)
        try:
            while len(ended_jobs) < len(jobs) and not any(job.has_failed for job in ended_jobs):
                changed[0] = self.event()
                await changed[0].wait()
        except CancelledFiber:
            await self._all_cancelled(jobs)
            raise
        await self._all_cancelled(jobs)
        first = next((job for job in ended_jobs if job.has_failed), None)
        return [first.result()] if first is not None else [job.result() for job in jobs]

    async def _all_cancelled(self, jobs: Iterable[FiberJob[Any]]) -> None:
        for job in jobs:
            job.cancel()
        for job in jobs:
            await job.ended.wait()

    async def shield(
        self, coroutine: Coroutine[Any, Any, T], must_complete: Callable[[], bool]
    ) -> T:
        """See `CoreDriver.shield`."""
        shields = self.current().must_complete
        shields.append(must_complete)
        try:
            return await coroutine
        finally:
            shields.remove(must_complete)

    # What a subclass calls --------------------------------------------------------------------

    def step(self, fiber: FiberJob[Any]) -> None:
        """Runs a ready fiber until its next wait or its end."""
        former = self.group, self.fiber
        self.group, self.fiber = fiber.group, fiber
        try:
            fiber.step()
        finally:
            self.group, self.fiber = former

    def next_timer(self) -> float | None:
        """Returns the time of the next scheduled call; None if there is none."""
        while self._timers and self._timers[0][2].is_cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def fire_timers(self) -> None:
        """Makes the scheduled calls that are due."""
        while (at := self.next_timer()) is not None and at <= self.now():
            _, _, timer = heapq.heappop(self._timers)
            former, self.group = self.group, timer.group
            try:
                timer.fire()
            finally:
                self.group = former


class _Limit:
    """See `CoreDriver.limit`."""

    def __init__(self, fibers: Fibers, seconds: float | None) -> None:
        self._fibers = fibers
        self._seconds = seconds
        self._timer: FiberTimer | None = None
        self._has_expired = False

    async def __aenter__(self) -> None:
        if self._seconds is not None:
            fiber = self._fibers.current()
            self._timer = self._fibers.later(self._seconds, self._expire, fiber)

    def _expire(self, fiber: FiberJob[Any]) -> None:
        self._has_expired = fiber.cancel()

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
        is_interrupted = self._fibers.current().is_interrupted
        if self._has_expired and isinstance(error, CancelledFiber) and not is_interrupted:
            raise TimeoutError from error


def _coroutine(awaitable: Awaitable[T]) -> Coroutine[Any, Any, T]:
    async def run() -> T:
        return await awaitable

    return awaitable if isinstance(awaitable, Coroutine) else run()
