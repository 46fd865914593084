"""`StateMover`: executes one move of state (`jflow.state.moves.move`) on the tasks of a cluster.

What moves is state of one device, or everything on a task (`StateId.everything_on`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from jflow.base.cluster import Device, Task
from jflow.base.drivers import Job
from jflow.base.text import seconds_text
from jflow.errors import (
    CancelledError,
    DeadlineExceededError,
    InternalError,
    InvalidArgumentError,
    OpError,
    UnimplementedError,
)
from jflow.state.core.moves import SavedState, StateMoves
from jflow.state.core.task import ClusterView, ConnectedTasks, new_name
from jflow.state.moves import (
    EVERYTHING,
    EndHold,
    Failed,
    HoldState,
    Move,
    MoveAction,
    Moved,
    PutState,
    SaveState,
    StateId,
)
from jflow.state.resources.moving import LeftStates

_LONGER = 2.0
"""How much longer the other tasks hold than the source: steps begin elsewhere only once it knows
that nothing moves."""

_WAITING = 0.5
"""The fraction of a hold's time in which the steps that use the state have to end."""

_Call = HoldState | SaveState | PutState | EndHold


class StateMover:
    """Executes one move of state.

    Args:
      servers: the master's view of the cluster.
      states: what moves; all of one device, and shared by name, or everything on one task.
      target: the full name of the device that it moves to; of everything, the name of the task.
      hold_s: the longest time that steps are held, in seconds.
      connect_timeout: the longest time to wait for a task that does not answer, in seconds.

    Raises:
      InvalidArgumentError: if there is nothing to move, the state is of several devices or belongs
        to one session, or a device is malformed or of no task of the cluster.
      MovedError: if a task has left.
    """

    def __init__(
        self,
        servers: ClusterView[Any, Any],
        states: Sequence[StateId],
        target: str,
        hold_s: float,
        connect_timeout: float,
    ) -> None:
        tasks = tuple(servers.info().tasks)
        self._servers = servers
        self._states = states
        self._target, self._hold_s, self._connect_timeout = target, hold_s, connect_timeout
        self._source_task, self._target_task = _checked_tasks(states, target, servers)
        self._name = new_name(servers.driver)
        self._connected = ConnectedTasks(servers.tasks)
        self._move = Move(tasks, self._source_task, self._target_task)
        kind = _TaskCopies if states[0].kind == EVERYTHING else _StateCopies
        copied = (self._connected, self._name, self._source_task, self._target_task)
        self._copies: _StateCopies = kind(*copied)
        self._calls: dict[Task, Job[None]] = {}
        self._error: OpError | None = None

    async def move(self) -> None:
        """Moves the state. A move that has been decided completes even if the caller is cancelled.

        Raises:
          AbortedError: if another move holds some of it, or a container was reset.
          AlreadyExistsError: if there is other state of that name at the target.
          DeadlineExceededError: if steps that use it do not end in time.
          MovedError: if some of it is elsewhere.
          UnavailableError: if a task does not answer.
        """
        driver = self._servers.driver
        await driver.all_of(map(self._connect, self._servers.info().tasks))
        self._is_over = driver.event()
        self._act(self._move.begin())
        try:
            await self._is_over.wait()
        except driver.Cancelled:
            self._act(self._move.cancelled(CancelledError("the move was cancelled")))
            raise
        if self._error is not None:
            raise self._error

    async def _connect(self, task: Task) -> None:
        info = await self._connected.connect(task, self._connect_timeout)
        if task != self._target_task or isinstance(self._copies, _TaskCopies):
            return
        if not Device.parse(self._target).is_among([*map(Device.parse, info.device_names)]):
            raise InvalidArgumentError(
                f"{task} has no device {self._target}; it has {[*info.device_names]}"
            )

    def _act(self, actions: Sequence[MoveAction]) -> None:
        for action in actions:
            match action:
                case Moved():
                    self._is_over.set()
                case Failed(error):
                    self._error = error
                    self._is_over.set()
                case HoldState(task) | SaveState(task) | PutState(task) | EndHold(task):
                    if (former := self._calls.get(task)) is not None:
                        former.cancel()  # a hold that waits, if anything
                    self._calls[task] = self._servers.driver.start(self._perform(action))

    async def _perform(self, action: _Call) -> None:
        failure: OpError | None = None
        try:
            await self._call(action)
        except OpError as error:
            failure = error
        except Exception as error:
            failure = InternalError(f"{type(error).__name__}: {error}")
        if self._calls.get(action.task) is self._servers.driver.current():
            del self._calls[action.task]  # or else another one has taken its place
        move = self._move
        try:
            self._act(move.done(action) if failure is None else move.failed(action, failure))
        except Exception as error:  # a fault of this code, which nothing may wait for
            self._error = InternalError(f"{type(error).__name__}: {error}")
            self._is_over.set()
            raise

    async def _call(self, action: _Call) -> None:
        match action:
            case HoldState(task):
                await self._hold(task)
            case SaveState(task):
                await self._copies.save()
            case PutState(task):
                await self._copies.put()
                if self._source_task != task:
                    with suppress(UnimplementedError):  # a task of an earlier version takes part
                        await self._put_applied()
            case EndHold(task, end):
                await self._connected.call(task, StateMoves.end, self._name, end)

    async def _put_applied(self) -> None:
        """Gives the target the steps that the source has applied."""
        call, name = self._connected.call, self._name
        applied = await call(self._source_task, StateMoves.save_applied, name)
        await call(self._target_task, StateMoves.put_applied, name, *applied)

    async def _hold(self, task: Task) -> None:
        seconds = self._hold_s
        if task != self._source_task:
            seconds *= _LONGER
        arguments = (self._name, self._states, self._target, seconds)
        try:
            async with self._servers.driver.limit(self._hold_s * _WAITING):
                await self._connected.call(task, StateMoves.hold, *arguments)
        except TimeoutError:
            raise DeadlineExceededError(
                f"steps that {task} started and that use {self._states[0]} did not end within "
                f"{seconds_text(self._hold_s * _WAITING)}; nothing has moved. A step that waits "
                "for a queue can be moved only if it does nothing else that has an effect",
                task=str(task),
            ) from None


@dataclass
class _StateCopies:
    """The copies of state of one device, on their way from the source to the target.

    Attributes:
      connected: calls the tasks.
      name: of the hold.
      source, target: the tasks.
    """

    connected: ConnectedTasks
    name: str
    source: Task
    target: Task
    saved: SavedState | None = None

    async def save(self) -> None:
        """Copies what the source has."""
        self.saved = await self.connected.call(self.source, StateMoves.save, self.name)

    async def put(self) -> None:
        """Gives it to the target."""
        assert self.saved is not None
        saved, self.saved = self.saved, None
        await self.connected.call(self.target, StateMoves.put, self.name, *saved)


class _TaskCopies(_StateCopies):
    """Copies of everything on a task, of which there is one part at a time."""

    async def save(self) -> None:
        """Copies the first part."""
        self.saved = await self._part(0)

    async def put(self) -> None:
        """Gives the target all parts."""
        number, n_parts = 0, 1
        while number < n_parts:
            saved = self.saved or await self._part(number)
            self.saved = None
            n_parts = LeftStates.from_bytes(saved.record).n_parts
            await self.connected.call(self.target, StateMoves.put_part, self.name, *saved)
            number += 1

    async def _part(self, number: int) -> SavedState:
        return await self.connected.call(self.source, StateMoves.save_part, self.name, number)


def _checked_tasks(
    states: Sequence[StateId], target: str, servers: ClusterView[Any, Any]
) -> tuple[Task, Task]:
    """Checks the arguments; returns the tasks of source and target. Raises as `StateMover`."""
    tasks = servers.info().tasks
    devices = sorted({state.device for state in states})
    if len(devices) != 1 or devices == [target]:
        raise InvalidArgumentError(
            f"expected state of one device to move to another one, got state of {devices} to move "
            f"to {target!r}"
        )
    for state in states:
        if state.session:
            raise InvalidArgumentError(
                f"{state} belongs to one session and cannot move; give it a shared_name"
            )
    results = []
    for state in (states[0], states[0]._replace(device=target)):
        try:
            task = state.task
        except ValueError as error:
            raise InvalidArgumentError(str(error)) from None
        servers.gate.directory.check({StateId.everything_on(task)})
        if task not in tasks:
            raise InvalidArgumentError(
                f"there is no task {task} in the cluster; it has {[*map(str, tasks)]}"
            )
        results.append(task)
    return results[0], results[1]
