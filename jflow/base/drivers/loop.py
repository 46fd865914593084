"""`LoopDriver`: runs the coroutines of the core as asyncio tasks on the event loop."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, ParamSpec, TypeVar

from jflow.base.deadline.clock import now
from jflow.base.drivers.coroutines import shield

T = TypeVar("T")
P = ParamSpec("P")


class _LoopEvent(asyncio.Event):
    """See `Event`."""

    def __init__(self) -> None:
        super().__init__()
        self._driven_by = asyncio.get_running_loop()

    def set_threadsafe(self) -> None:
        """See `Event.set_threadsafe`."""
        self._driven_by.call_soon_threadsafe(self.set)


class TaskSet:
    """A set that references asyncio tasks until they are done; the event loop does not."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Starts a task; if it is not awaited, the coroutine must not raise."""
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        """Cancels the tasks that are not done."""
        for task in self._tasks:
            task.cancel()


class LoopDriver:
    """See `CoreDriver`. Every method must be called on the event loop.

    Args:
      threads: perform `work`; the loop's own ones if None.
    """

    Cancelled = asyncio.CancelledError

    def __init__(self, threads: Executor | None = None) -> None:
        self._threads = threads
        self._jobs = TaskSet()

    now = staticmethod(now)
    wall_time = staticmethod(time.time)
    random_bits = staticmethod(secrets.randbits)
    event = staticmethod(_LoopEvent)
    sleep = staticmethod(asyncio.sleep)
    shield = staticmethod(shield)

    def later(
        self, seconds: float, function: Callable[..., object], *args: Any
    ) -> asyncio.TimerHandle:
        """See `CoreDriver.later`."""
        return asyncio.get_running_loop().call_later(seconds, function, *args)

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """See `CoreDriver.start`."""
        return self._jobs.start(coroutine)

    def current(self) -> asyncio.Task[Any]:
        """See `CoreDriver.current`."""
        task = asyncio.current_task()
        assert task is not None
        return task

    def limit(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        """See `CoreDriver.limit`."""
        return asyncio.timeout(seconds)

    async def work(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """See `CoreDriver.work`."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(function, *args, **kwargs))

    async def all_of(self, awaitables: Iterable[Awaitable[T]]) -> list[T]:
        """See `CoreDriver.all_of`."""
        return await all_of(awaitables)


async def all_of(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """Returns all results. The first error cancels the others and is the only one raised."""
    jobs = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        return await asyncio.gather(*jobs)
    finally:
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
