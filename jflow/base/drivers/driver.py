"""`CoreDriver`: the interface by which coroutines of the core wait; and `Mutex`, built on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, ParamSpec, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")


class Event(Protocol):
    """A one-time event that coroutines can wait for."""

    def is_set(self) -> bool:
        """Whether the event is set."""

    def set(self) -> None:
        """Sets the event and wakes its waiters; only for code that the driver runs."""

    def set_threadsafe(self) -> None:
        """Like `set`, on any thread, even with a lock held; takes effect soon, not at once."""

    async def wait(self) -> object:
        """Waits until the event is set."""


class TimerHandle(Protocol):
    """A scheduled call of a function."""

    def cancel(self) -> None:
        """Cancels the call, unless it was made."""


class Job(Awaitable[T_co], Protocol[T_co]):
    """A coroutine that runs beside the one that started it. Awaiting it gives its result."""

    def cancel(self) -> bool:
        """Cancels the coroutine: raises the driver's `Cancelled` where it waits."""

    def done(self) -> bool:
        """Whether the coroutine has ended."""


class CoreDriver(Protocol):
    """Runs coroutines of the core, without preemption from one wait to the next.

    Attributes:
      Cancelled: what is raised in a coroutine that is cancelled; no `Exception`.
    """

    @property
    def Cancelled(self) -> type[BaseException]:  # noqa: N802 - it is a class
        """See `CoreDriver`."""

    def now(self) -> float:
        """Returns the present time in seconds, from an arbitrary start."""

    def wall_time(self) -> float:
        """Returns the time in seconds since 1970, as this machine's clock has it."""

    def random_bits(self, k: int) -> int:
        """Returns a cryptographically random number of `k` bits."""

    def event(self) -> Event:
        """Returns a new event."""

    def later(self, seconds: float, function: Callable[..., object], *args: Any) -> TimerHandle:
        """Schedules a call of a function, which must not raise, after some seconds."""

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Job[T]:
        """Starts a coroutine concurrently with the caller; it begins soon, not at once."""

    def current(self) -> Job[Any]:
        """Returns the coroutine that is running."""

    def limit(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        """Context manager that raises TimeoutError after some seconds; None for no limit."""

    async def sleep(self, seconds: float) -> None:
        """Waits for some seconds."""

    async def work(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls a function that may block for a while, without blocking other coroutines.

        If the coroutine is cancelled once the function has begun, that still runs to its end.
        """

    async def all_of(self, awaitables: Iterable[Awaitable[T]]) -> list[T]:
        """Returns all results. The first error cancels the others and is the only one raised."""

    async def shield(
        self, coroutine: Coroutine[Any, Any, T], must_complete: Callable[[], bool]
    ) -> T:
        """Awaits a coroutine, ignoring cancellations while it must complete.

        Args:
          coroutine: must use no `limit` around its waits.
          must_complete: whether it must be completed now.
        """


class Mutex:
    """A fair lock, as an async context manager: one coroutine at a time, in order of arrival.

    Args:
      driver: runs them.
    """

    def __init__(self, driver: CoreDriver) -> None:
        self._driver = driver
        self._is_taken = False
        self._waiting: deque[Event] = deque()

    async def __aenter__(self) -> None:
        while self._is_taken:
            is_free = self._driver.event()
            self._waiting.append(is_free)
            try:
                await is_free.wait()
            except BaseException:
                if is_free.is_set():
                    self._next()
                else:
                    self._waiting.remove(is_free)
                raise
        self._is_taken = True

    async def __aexit__(self, *_: object) -> None:
        self._is_taken = False
        self._next()

    def _next(self) -> None:
        if self._waiting:
            self._waiting.popleft().set()
