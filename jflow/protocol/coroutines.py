"""Coroutines that begin where they are called, without a trip through the event loop.

Most of what a server does for a small step never waits. As a task of its own it would still wait
once, until the loop gets to it.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


def begin(coroutine: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
    """Runs a coroutine up to where it first waits, and the rest as a task.

    Args:
      coroutine: must not ask which task it is in before it first waits; timeouts do.
    """
    steps = coroutine.__await__()
    try:
        waits_for = next(steps)
    except StopIteration as end:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        done.set_result(end.value)
        return done
    except Exception as error:
        failed: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        failed.set_exception(error)
        return failed
    return asyncio.create_task(_Begun(steps, waits_for))


class _Begun(Coroutine[Any, Any, T]):
    """What is left of a coroutine that waits for something already.

    An object and not a coroutine of our own, which would know nothing yet when its task is
    cancelled before its first turn: then the one that has begun would never hear of it.
    """

    def __init__(self, steps: Generator[Any, Any, T], waits_for: Any) -> None:
        self._steps = steps
        self._first = [waits_for]

    def send(self, value: Any) -> Any:
        return self._first.pop() if self._first else self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        self._first.clear()
        return self._steps.throw(*error)

    def close(self) -> None:
        self._steps.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return (yield from self._steps)


async def noticing(coroutine: Coroutine[Any, Any, T], on_wait: Callable[[], None]) -> T:
    """Awaits a coroutine; calls `on_wait` once when it has to wait, and not if it never does."""
    steps = coroutine.__await__()
    try:
        waits_for = next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    on_wait()
    return await _rest(steps, waits_for)


@types.coroutine
def _rest(steps: Generator[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """What is left of a coroutine that waits for something already."""
    try:
        while True:
            try:
                sent = yield waits_for
            except BaseException as error:
                waits_for = steps.throw(error)
            else:
                waits_for = steps.send(sent)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
