"""`CoreDriver`: what a coroutine of the core may wait for; and `Mutex`, which is made of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, ParamSpec, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")


class Event(Protocol):
    """Something that happens once."""

    def is_set(self) -> bool:
        """Whether it has happened."""

    def set(self) -> None:
        """It happens now: what waits for it goes on. For what the driver runs only."""

    def set_threadsafe(self) -> None:
        """As `set`, from any thread, also while that holds a lock; takes effect soon."""

    async def wait(self) -> object:
        """Returns once it has happened."""


class TimerHandle(Protocol):
    """A function that is called later."""

    def cancel(self) -> None:
        """Does not call it, unless that was done."""


class Job(Awaitable[T_co], Protocol[T_co]):
    """A coroutine that runs beside the one that has started it. Awaiting it gives its result."""

    def cancel(self) -> bool:
        """Raises the driver's `Cancelled` where the coroutine waits."""

    def done(self) -> bool:
        """Whether it has ended."""


class CoreDriver(Protocol):
    """Runs coroutines of the core. Each of them runs alone from one wait to the next.

    Attributes:
      Cancelled: what is raised in a coroutine that is cancelled; no `Exception`.
    """

    @property
    def Cancelled(self) -> type[BaseException]:  # noqa: N802 - it is a class
        """See `CoreDriver`."""

    def now(self) -> float:
        """The present time in seconds, from some start."""

    def random_bits(self, k: int) -> int:
        """A random number of `k` bits, which cannot be guessed."""

    def event(self) -> Event:
        """Returns a new event."""

    def later(self, seconds: float, function: Callable[..., object], *args: Any) -> TimerHandle:
        """Calls a function, which must not raise, after a time."""

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Job[T]:
        """Runs a coroutine beside the one that calls this; soon, not at once."""

    def current(self) -> Job[Any]:
        """The coroutine that runs."""

    def limit(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        """A block that ends with TimeoutError if it takes longer; None for no limit."""

    async def sleep(self, seconds: float) -> None:
        """Waits for a time."""

    async def work(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls a function that may take long but ends, while other coroutines go on.

        If the coroutine is cancelled once the function has begun, that still runs to its end.
        """

    async def all_of(self, awaitables: Iterable[Awaitable[T]]) -> list[T]:
        """Results of all. The first error cancels the others and is the only one raised."""

    async def completing(
        self, coroutine: Coroutine[Any, Any, T], must_complete: Callable[[], bool]
    ) -> T:
        """Awaits a coroutine; drops cancellations that come when it must be completed.

        Args:
          coroutine: must use no `limit` around its waits.
          must_complete: whether it must be completed now.
        """


class Mutex:
    """A block that one coroutine is in at a time, in the order in which they came.

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
