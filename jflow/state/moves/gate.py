"""`Gate`: makes steps wait while the state that they use is moved, saved or restored."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from jflow.base.cluster import Task
from jflow.base.drivers import CoreDriver, Event
from jflow.state.moves.directory import Directory, Use, everything_around
from jflow.state.moves.states import StateId


class GateWait(NamedTuple):
    """A step that waits at a gate to begin.

    Attributes:
      use: what it uses.
      since: when it began to wait, by the driver's clock.
    """

    use: Use
    since: float


class Gate:
    """A `Directory`, with coroutines that wait for it to change.

    Args:
      driver: runs what waits.

    Attributes:
      directory: what has moved and what is held. What it does goes through here if it may end a
        wait.
      waiting: the steps that wait to begin, by what identifies each of them.
    """

    def __init__(self, driver: CoreDriver) -> None:
        self.directory = Directory()
        self.waiting: dict[object, GateWait] = {}
        self._driver = driver
        self._change: list[Event] = []

    async def enter(self, use: Use, step: object) -> None:
        """Waits until the directory lets a step begin, and begins it.

        Args:
          use: what it uses.
          step: identifies it.

        Raises:
          MovedError: if some of it has moved.
        """
        self.waiting[step] = GateWait(use, self._driver.now())
        try:
            while not self.directory.enter(use):
                await self.changed()
        finally:
            del self.waiting[step]

    def leave(self, use: Use) -> None:
        """Ends a step that `enter` has begun."""
        self.directory.leave(use)
        if self._change:
            self.notify()

    async def idle(self, hold: str) -> None:
        """Waits until no step uses the held state. Raises AbortedError if the hold ends."""
        while not self.directory.is_idle(hold):
            await self.changed()

    async def released(self, states: Collection[StateId]) -> None:
        """Waits until no hold has any of the state. Raises MovedError if some of it has moved.

        A hold of everything on a task has its state, too.
        """
        around = {*states, *everything_around(states)}
        while self.directory.is_held(around):
            await self.changed()
        self.directory.check(around)

    async def quiet(self, pause: str) -> None:
        """Waits until all running steps' changes would be in snapshots as a whole or not at all."""
        while not self.directory.is_quiet(pause):
            await self.changed()

    def leave_task(self, task: Task, successor: Task) -> None:
        """See `Directory.leave_task`; ends waits of steps that use the task."""
        self.directory.leave_task(task, successor)
        self.notify()

    def resume(self, pause: str) -> None:
        """Ends a pause; does nothing if it has ended."""
        self.directory.resume(pause)
        self.notify()

    def release(self, hold: str) -> None:
        """Ends a hold without a move; does nothing if it has ended."""
        self.directory.release(hold)
        self.notify()

    def move(self, hold: str) -> None:
        """Ends a hold as moved. Raises AbortedError if it has ended."""
        self.directory.move(hold)
        self.notify()

    def clear(self, containers: Collection[str], going_on: Collection[str] = ()) -> None:
        """See `Directory.clear`; ends waits for what it frees."""
        self.directory.clear(containers, going_on)
        self.notify()

    def notify(self) -> None:
        """Wakes everything that waits for a change of the directory."""
        changes, self._change = self._change, []
        for change in changes:
            change.set()

    async def changed(self) -> None:
        """Waits for the next change of the directory."""
        # An event a wait, because an event belongs to the call that waits for it.
        change = self._driver.event()
        self._change.append(change)
        try:
            await change.wait()
        except BaseException:
            with suppress(ValueError):  # it has just happened
                self._change.remove(change)
            raise
