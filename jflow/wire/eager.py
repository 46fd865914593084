"""Coroutines that begin where they are called, without a trip through the event loop.

Most of what a server does for a small step never waits. As a task of its own it would wait once
all the same, for its turn on the loop.
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

    async def rest() -> T:
        return await _rest(steps, waits_for)

    return asyncio.create_task(rest())


async def noticing(coroutine: Coroutine[Any, Any, T], waits: Callable[[], None]) -> T:
    """Awaits a coroutine; calls `waits` once when it has to wait, and not if it never does."""
    steps = coroutine.__await__()
    try:
        waits_for = next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    waits()
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
