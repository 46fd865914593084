"""`StateMoves`: what a task does in moves of state (`jflow.moves`).

A hold ends once: by its mover, or by itself when its time is over or the stream of its mover has
ended. One that ends by itself has not moved what is here: only the task that has the state, the
*source*, decides. Every other task asks it, because the mover may have been lost after the source
had ended its hold as moved.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax

from jflow.cluster import Device, Task
from jflow.errors import AbortedError, InternalError, InvalidArgumentError, OpError
from jflow.failpoints import async_failpoint
from jflow.moves import End, StateId
from jflow.protocol import RECONNECT_TIMEOUT_S, Array, SavedState, TaskSet
from jflow.resources import Attempt
from jflow.resources.kernel import Wanted
from jflow.resources.moving import Arrival, Departure, discard
from jflow.worker.context import WorkerContext
from jflow.worker.gate import Gate

_LOG = logging.getLogger(__name__)

MAX_OUTCOMES = 4096
"""How many moves a task remembers, for tasks that ask how they ended."""

ASK_S = 5.0
"""How long a task asks the source how a move has ended, in seconds."""


@dataclass
class _Hold:
    """A hold that has not ended.

    Attributes:
      states, target: what is to move to which device.
      caller: the session of the mover.
      timer: ends it.
      arrival: the copies that the target has.
      is_ending: whether the source is being asked how it has ended.
    """

    states: Sequence[StateId]
    target: str
    caller: object
    timer: asyncio.TimerHandle
    arrival: Arrival | None = None
    is_ending: bool = False

    @property
    def source(self) -> Task:
        return Device.parse(self.states[0].device).task


class StateMoves:
    """The holds of one task. Call it on the event loop only.

    Args:
      context: the task.
      devices: its devices.

    Attributes:
      steps: what the steps wait at that the task's master starts.
      plans: what the plans wait at that the task's worker runs.
    """

    def __init__(self, context: WorkerContext, devices: Mapping[Device, jax.Device]) -> None:
        self.steps = Gate()
        self.plans = Gate()
        self._context = context
        self._devices = {str(device): found for device, found in devices.items()}
        self._holds: dict[str, _Hold] = {}
        self._moved: OrderedDict[str, None] = OrderedDict()
        self._background = TaskSet()

    async def hold(
        self, name: str, states: Sequence[StateId], target: str, seconds: float, caller: object
    ) -> None:
        """See `WorkerService.hold_state`; `caller` ends with the stream of the mover."""
        if name in self._holds or not states:
            raise InvalidArgumentError(f"hold {name!r} exists already, or holds nothing")
        self.steps.directory.hold(name, states, target)
        timer = asyncio.get_running_loop().call_later(seconds, self._over, name)
        self._holds[name] = _Hold(states, target, caller, timer)
        self._context.parked.leave(states)
        try:
            await self.steps.idle(name)
        except BaseException:
            self._finish(name, has_moved=False)
            raise

    async def save(self, name: str) -> SavedState:
        """See `WorkerService.save_state`."""
        hold = self._hold(name)
        if (action := async_failpoint("worker.before_save")) is not None:
            await action
        await self._close_plans(name, hold)
        departure = Departure(self._context.containers, hold.states)
        await waited(departure.wanted)
        record, arrays = await self._in_thread(departure.saved)
        return SavedState(record, arrays)

    async def put(self, name: str, record: bytes, arrays: Sequence[Array]) -> None:
        """See `WorkerService.put_state`."""
        hold = self._hold(name)
        device = self._devices.get(hold.target)
        if device is None:
            raise InvalidArgumentError(
                f"{self._context.task} has no device {hold.target}; it has "
                f"{', '.join(self._devices)}"
            )
        await self._close_plans(name, hold)
        containers = self._context.containers
        hold.arrival = await self._in_thread(
            Arrival, containers, hold.states, hold.target, record, arrays, device
        )

    async def end(self, name: str, end: End) -> None:
        """See `WorkerService.end_hold`."""
        hold = self._holds.get(name)
        match end:
            case End.KEPT:
                self._finish(name, has_moved=False)
            case End.UNKNOWN:
                self._over(name)
            case End.MOVED if hold is None:
                raise AbortedError(
                    "the hold has ended before the state moved; the state is where it was",
                    task=str(self._context.task),
                )
            case End.MOVED:
                self._finish(name, has_moved=True)
                if (action := async_failpoint("worker.after_move")) is not None:
                    await action

    async def outcome(self, name: str) -> bool:
        """See `WorkerService.get_outcome`."""
        while name in self._holds:
            await self.steps.changed()
        return name in self._moved

    def caller_lost(self, caller: object) -> None:
        """Ends the holds of a mover that is lost."""
        for name in [name for name, hold in self._holds.items() if hold.caller is caller]:
            self._over(name)

    def clear(self, containers: Sequence[str]) -> None:
        """Forgets moves of state in containers, which are reset, and breaks holds of it."""
        freed = {"" if name == self._context.task.job else name for name in containers}
        self.steps.clear(freed)
        self.plans.clear(freed)

    def _hold(self, name: str) -> _Hold:
        self.steps.directory.states(name)  # a reset may have broken it
        hold = self._holds.get(name)
        if hold is None:
            raise InternalError(f"hold {name!r} is not known")
        return hold

    async def _close_plans(self, name: str, hold: _Hold) -> None:
        """Waits until no plan runs that uses the state; those that come later wait.

        There is usually none: the masters have waited for their steps. One may have lost its hold.
        """
        if not self.plans.directory.is_holding(name):
            self.plans.directory.hold(name, hold.states, hold.target)
        await self.plans.idle(name)

    def _over(self, name: str) -> None:
        """Ends a hold that the mover has not ended, or cannot."""
        hold = self._holds.get(name)
        if hold is None or hold.is_ending:
            return
        if hold.source == self._context.task:
            self._finish(name, has_moved=False)
        else:
            hold.is_ending = True
            self._background.start(self._resolve(name, hold))

    async def _resolve(self, name: str, hold: _Hold) -> None:
        """Ends a hold as the source has ended its own."""
        has_moved = False
        try:
            async with asyncio.timeout(ASK_S):
                has_moved = await self._context.transport.get_outcome(
                    hold.source, name, RECONNECT_TIMEOUT_S
                )
        except (OpError, TimeoutError) as error:
            _LOG.warning(
                "%s does not know whether %s has moved to %s: %s cannot be asked: %s; it goes on "
                "as if it had not",
                *(self._context.task, hold.states[0], hold.target, hold.source, error),
            )
        with suppress(AbortedError):
            self._finish(name, has_moved=has_moved)

    def _finish(self, name: str, *, has_moved: bool) -> None:
        """Ends a hold. At the source, and only there, this is the moment of the move.

        Raises:
          AbortedError: if it is to end with a move, but a reset has broken it.
        """
        hold = self._holds.pop(name, None)
        if hold is None:
            return
        hold.timer.cancel()
        self._context.parked.stay(hold.states)
        is_broken = not self.steps.directory.is_holding(name)
        if not has_moved or is_broken:
            self.plans.release(name)
            self.steps.release(name)
            if has_moved:
                raise AbortedError("its container was reset while the state moved")
            return
        if not self.plans.directory.is_holding(name):
            self.plans.directory.hold(name, hold.states, hold.target)
        # Without a wait in between: no step sees both copies, or none.
        if hold.source == self._context.task:
            discard(self._context.containers, hold.states)
            self._moved[name] = None
            if len(self._moved) > MAX_OUTCOMES:
                self._moved.popitem(last=False)
        if hold.arrival is not None:
            hold.arrival.finish()
        self.plans.move(name)
        self.steps.move(name)

    async def _in_thread(self, work: Callable[..., Any], *args: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._context.threads, partial(work, *args))


async def waited(wanted: Wanted) -> None:
    """Waits until an attempt has completed; cancels it if the wait is cancelled."""
    cell, attempt = wanted
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def wake(_: Attempt) -> None:
        loop.call_soon_threadsafe(done.set)

    if cell.submit(attempt, wake):
        attempt.result()
        return
    try:
        await done.wait()
    except BaseException:
        cell.cancel(attempt, AbortedError("the call was cancelled"))
        raise
    attempt.result()
