"""Eager coroutines, which start in their caller, without a pass of the event loop.

Most of a server's work for a small step never waits. As an asyncio task it would still wait for the
loop to start it.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Arguments = TypeVar("Arguments")

MAX_COST_ON_LOOP = 16 << 10
"""The highest cost of a call on the event loop, which it blocks for up to 20 ms."""


@dataclass(frozen=True)
class Waited:
    """What a cancelled call was waiting for: the argument of its `asyncio.CancelledError`.

    An argument and not a subclass, because `asyncio.timeout` knows the exact class only.

    Attributes:
      reason: such as "/job:ps/task:0 waited to dequeue an element from FIFOQueue 'jobs'"; "" if
        that is not known.
      op: name of the operation that waited, if it is known.
    """

    reason: str = ""
    op: str | None = None

    @classmethod
    def of(cls, error: BaseException | None) -> Waited:
        """Returns what a cancelled call was waiting for, given its error."""
        waited = error.args[0] if error is not None and error.args else None
        return waited if isinstance(waited, Waited) else cls()


def retrieve(ended: asyncio.Future[Any]) -> None:
    """Retrieves the error of a future, so that the event loop does not log it as never retrieved.

    Make it a callback of what may fail when nothing waits for it any more. A shield does that only
    until its caller is cancelled.
    """
    if not ended.cancelled():
        ended.exception()


async def computed(cost: int, function: Callable[[Arguments], T], arguments: Arguments) -> T:
    """Calls a function: on the event loop if that is cheap, else in a thread.

    Args:
      cost: in about bytes of a message that Python decodes, of which each takes about 1 µs.
      function: must be pure.
      arguments: its argument.
    """
    if cost <= MAX_COST_ON_LOOP:
        return function(arguments)
    return await asyncio.get_running_loop().run_in_executor(None, function, arguments)


def begin(coroutine: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
    """Runs a coroutine up to its first wait, and the rest as a task.

    Args:
      coroutine: must not use the current task before its first wait, as timeouts do.
    """
    steps = coroutine.__await__()
    try:
        waits_for = next(steps)
    except StopIteration as end:
        done_future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        done_future.set_result(end.value)
        return done_future
    except Exception as error:
        failed_future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        failed_future.set_exception(error)
        return failed_future
    return asyncio.create_task(_Begun(steps, waits_for))


class Started(Generic[T]):
    """A coroutine that was run up to its first wait by the function that started it.

    Args:
      coroutine: what it raises until its first wait is raised here. It must not use the current
        task before, unless it is started in the task that completes it.
      within: awaits what is left of it, in the task that completes it; if None, nothing surrounds
        that.

    Attributes:
      within: the same.
      is_done: whether it ended without a wait; otherwise `rest` must be awaited.
      result: its result, if it is done.
    """

    __slots__ = ("_steps", "_waits_for", "is_done", "result", "within")

    result: T

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, T],
        within: Callable[[Awaitable[T]], Awaitable[T]] | None = None,
    ) -> None:
        self.within = within
        self._steps = coroutine.__await__()
        self.is_done = False
        try:
            self._waits_for = next(self._steps)
        except StopIteration as end:
            self.is_done = True
            self.result = end.value

    async def rest(self) -> T:
        """Awaits the rest of the coroutine; must be awaited at once."""
        left = _rest(self._steps, self._waits_for)
        return await (left if self.within is None else self.within(left))


class _Begun(Coroutine[Any, Any, T]):
    """The rest of a coroutine that has begun to wait, in a form that `create_task` accepts.

    Not a coroutine itself: a task that is cancelled before its first iteration never starts its
    coroutine, and the one that has begun would not receive the cancellation.
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


@types.coroutine
def shield(
    coroutine: Coroutine[Any, Any, T], must_complete: Callable[[], bool]
) -> Generator[Any, Any, T]:
    """Awaits a coroutine in its caller's task, ignoring cancellations once it must complete.

    Args:
      coroutine: must not cancel its own task, as timeouts do.
      must_complete: whether the coroutine must be completed now.
    """
    steps = coroutine.__await__()
    try:
        waits_for = next(steps)
        while True:
            try:
                yield None if waits_for is None else _Wait(waits_for, must_complete)
            except BaseException as error:
                # Otherwise what it waits for has failed, or the task was cancelled in between.
                if not (isinstance(error, asyncio.CancelledError) and must_complete()):
                    waits_for = steps.throw(error)
                    continue
            if waits_for is None or waits_for.done():
                waits_for = steps.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


class _Wait:
    """Wraps the future that a task waits for, to filter the cancellations of the task.

    Args:
      future: what it waits for.
      must_complete: as for `shield`.
    """

    _asyncio_future_blocking = True

    def __init__(self, future: asyncio.Future[Any], must_complete: Callable[[], bool]) -> None:
        self._must_complete = must_complete
        self._future = future
        self.get_loop = future.get_loop
        self.add_done_callback = future.add_done_callback

    def cancel(self, msg: Any = None) -> bool:
        """Cancels the future, or only pretends to if the task must complete."""
        return self._must_complete() or self._future.cancel(msg)


async def noticing(coroutine: Coroutine[Any, Any, T], on_wait: Callable[[], None]) -> T:
    """Awaits a coroutine; calls `on_wait` at its first wait, if any."""
    steps = coroutine.__await__()
    try:
        waits_for = next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    on_wait()
    return await _rest(steps, waits_for)


@types.coroutine
def _rest(steps: Generator[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Continues a coroutine that has begun to wait."""
    try:
        while True:
            try:
                sent_value = yield waits_for
            except BaseException as error:
                waits_for = steps.throw(error)
            else:
                waits_for = steps.send(sent_value)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
