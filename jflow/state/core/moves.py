"""`StateMoves`: a task's part in moves of state (`jflow.state.moves`).

A hold ends once: by its mover, or by itself when its time is over or the stream of its mover has
ended. One that ends by itself has not moved what is here: only the task that has the state, the
*source*, decides. Every other task asks it, because the mover may have been lost after the source
had ended its hold as moved.
"""

from __future__ import annotations

import copy
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from jflow.base.cluster import Task
from jflow.base.drivers import TimerHandle
from jflow.base.failpoints import async_failpoint
from jflow.base.roles import AccessRole
from jflow.base.values import Array
from jflow.errors import AbortedError, InternalError, InvalidArgumentError, OpError
from jflow.state.core.remote import remote
from jflow.state.core.task import RECONNECT_TIMEOUT_S, TaskCore, call_task
from jflow.state.effects.saved import MovedLedger
from jflow.state.moves import EVERYTHING, Directory, End, Gate, StateId, container_on
from jflow.state.resources.moving import (
    Arrival,
    Departure,
    LeftState,
    LeftStates,
    MovedState,
    check_free,
    discard,
    left_states,
)

_LOG = logging.getLogger(__name__)

MAX_OUTCOMES = 4096
"""The number of moves whose outcome a task remembers, for other tasks."""

ASK_S = 60.0
"""How long a task asks the source how a move has ended, in seconds. It is longer than a stream may
be silent before it counts as lost: the copy of the target may be the only one."""

TRY_S = 5.0
"""How long a task waits for one reply of the source, in seconds."""

RETRY_S = 1.0
"""The time between two queries if one of them fails, in seconds."""


class SavedState(NamedTuple):
    """State in transit: a packed record, and the arrays that it describes."""

    record: bytes
    tensors: Sequence[Array]


@dataclass
class _Hold:
    """A hold that has not ended.

    Attributes:
      states, target: what is to move to which device.
      caller: identifies the mover's stream.
      timer: ends it.
      leaving: what the source has, in parts, if everything on it moves.
      arrivals: the copies that the target has.
      moved: what the target learns of state that had moved away from the source before.
      freed: the containers that were reset meanwhile, if everything moves and not from here.
      is_ending: whether the source is being asked how it has ended.
    """

    states: Sequence[StateId]
    target: str
    caller: object
    timer: TimerHandle
    leaving: list[list[StateId]] | None = None
    arrivals: list[Arrival] = field(default_factory=list)
    moved: dict[StateId, str] = field(default_factory=dict)
    freed: set[str] = field(default_factory=set)
    is_ending: bool = False

    @property
    def source(self) -> Task:
        return self.states[0].task

    @property
    def is_of_everything(self) -> bool:
        """Whether everything on the source is to move."""
        return self.states[0].kind == EVERYTHING

    @property
    def leaving_states(self) -> Sequence[StateId]:
        """The state that the source has no longer once it has moved."""
        if self.leaving is None:
            return self.states
        return [state for part in self.leaving for state in part]


class StateMoves:
    """A task's part in the moves of one caller. A hold ends by `end`, after its seconds, or with
    the caller's stream.

    Args:
      state: the task.
      leaves: returns whether a session ends with this task, by its name.

    Attributes:
      leaves: as given.
      steps: what the steps wait at that the task's master starts.
      plans: what the plans wait at that the task's worker runs.
    """

    def __init__(
        self, state: TaskCore, leaves: Callable[[str], bool] = lambda session: False
    ) -> None:
        self.leaves = leaves
        self.steps = Gate(state.driver)
        self.plans = Gate(state.driver)
        self._state = state
        self._caller = object()
        self._holds: dict[str, _Hold] = {}
        self._moved: OrderedDict[str, None] = OrderedDict()

    def of_caller(self) -> StateMoves:
        """Returns the `StateMoves` of another caller on the same task."""
        copied = copy.copy(self)
        copied._caller = object()
        return copied

    @remote(needs=AccessRole.CLUSTER)
    async def hold(self, name: str, states: Sequence[StateId], target: str, seconds: float) -> None:
        """Bars new steps from using the state until the hold ends; waits for those that run.

        Raises:
          AbortedError: if another move holds some of it, or the hold ends.
          MovedError: if some of it is elsewhere.
        """
        if name in self._holds or not states:
            raise InvalidArgumentError(f"hold {name!r} exists already, or holds nothing")
        self.steps.directory.hold(name, states, target)
        timer = self._state.driver.later(seconds, self._end_without_mover, name)
        self._holds[name] = _Hold(states, target, self._caller, timer)
        self._state.parked.leave(states)
        try:
            await self.steps.idle(name)
        except BaseException:
            self._finish(name, has_moved=False)
            raise

    @remote(needs=AccessRole.CLUSTER)
    async def save(self, name: str) -> SavedState:
        """Copies the held state of this task, which nothing uses until the hold ends."""
        hold = self._hold(name)
        if (action := async_failpoint("worker.before_save")) is not None:
            await action
        await self._close_plans(name, hold)
        departure = Departure(self._state.containers, hold.states)
        await self._state.waited(departure.wanted)
        return SavedState(*await self._state.driver.work(departure.saved))

    @remote(needs=AccessRole.CLUSTER, since=12)
    async def save_part(self, name: str, part: int) -> SavedState:
        """Copies a part of everything on this task, which nothing uses until the hold ends.

        Raises:
          FailedPreconditionError: if a session has state here that cannot move.
        """
        hold = self._hold(name)
        await self._close_plans(name, hold)
        containers = self._state.containers
        if hold.leaving is None:
            hold.leaving = left_states(containers, self.leaves)
        states, n_parts = hold.leaving[part], len(hold.leaving)
        departure = Departure(containers, states, is_any_kind=True)
        await self._state.waited(departure.wanted)
        record, tensors = await self._state.driver.work(departure.saved)
        names = tuple(map(LeftState.of, states))
        moved = () if part else _moved_from(self._state.task, self.plans.directory)
        return SavedState(LeftStates(names, record, n_parts, moved).to_bytes(), tensors)

    @remote(needs=AccessRole.CLUSTER, since=12)
    async def put_part(self, name: str, record: bytes, tensors: Sequence[Array]) -> None:
        """Keeps a copy of a part of everything on another task; see `put`.

        Raises:
          InvalidArgumentError: if this task does not have the devices of the other one.
        """
        hold, part = self._hold(name), LeftStates.from_bytes(record)
        try:
            names = [one.state.on_task(self._state.task) for one in part.names]
            moved = {one.name.state: one.device for one in part.moved}
            requested = [one.on_task(self._state.task) for one in moved]
        except ValueError as error:
            raise InvalidArgumentError(f"state cannot be named here: {error}") from None
        check_free(
            self._state.containers,
            [one for one, at in zip(requested, moved.values(), strict=True) if one.device != at],
        )
        hold.moved |= moved
        await self._put(name, hold, names, part.saved, tensors)

    @remote(needs=AccessRole.CLUSTER, since=12)
    async def save_applied(self, name: str) -> SavedState:
        """Returns the steps that this task has applied, once nothing uses the held state."""
        self._hold(name)
        return SavedState(*self._state.containers.ledger(MovedLedger.of).packed())

    @remote(needs=AccessRole.CLUSTER, since=12)
    async def put_applied(self, name: str, record: bytes, tensors: Sequence[Array]) -> None:
        """Adds steps that the source has applied to those of this task.

        So a later attempt of a step, which comes here once the state has moved, is not applied
        again. If the state does not move, nothing asks for them.
        """
        self._hold(name)
        applied = MovedLedger.unpacked(record, tensors)
        self._state.containers.ledger(applied.add_to)

    @remote(needs=AccessRole.CLUSTER)
    async def put(self, name: str, record: bytes, tensors: Sequence[Array]) -> None:
        """Keeps a copy of held state, which becomes the state if the hold ends as moved.

        Raises:
          AlreadyExistsError: if there is other state of that name on the target.
        """
        hold = self._hold(name)
        names = [state.on(hold.target) for state in sorted(hold.states)]
        await self._put(name, hold, names, record, tensors)

    @remote(needs=AccessRole.CLUSTER)
    async def end(self, name: str, end: End) -> None:
        """Ends a hold as kept, as moved, or as the source says.

        Raises:
          AbortedError: if it has ended without a move, and this end is another one.
        """
        hold = self._holds.get(name)
        match end:
            case End.KEPT:
                self._finish(name, has_moved=False)
            case End.UNKNOWN:
                self._end_without_mover(name)
            case End.MOVED if hold is None:
                raise AbortedError(
                    "the hold has ended before the state moved; the state is where it was",
                    task=str(self._state.task),
                )
            case End.MOVED:
                self._finish(name, has_moved=True)
                if (action := async_failpoint("worker.after_move")) is not None:
                    await action

    @remote(needs=AccessRole.CLUSTER)
    async def outcome(self, name: str) -> bool:
        """Returns, after the end of a hold, whether its state has moved away from this task."""
        while name in self._holds:
            await self.steps.changed()
        return name in self._moved

    def leave_task(self, task: Task, successor: Task) -> None:
        """Takes note that a task has left, and that another one has all that was on it.

        A hold of that has ended as moved, which the mover could not tell, and the source cannot.
        """
        everything = StateId.everything_on(task)
        for name in [name for name, hold in self._holds.items() if everything in hold.states]:
            with suppress(AbortedError):  # a reset has broken it
                self._finish(name, has_moved=True)
        for gate in (self.steps, self.plans):
            gate.leave_task(task, successor)

    def close(self) -> None:
        """Ends the holds of the caller when its stream ends."""
        for name in [name for name, hold in self._holds.items() if hold.caller is self._caller]:
            self._end_without_mover(name)

    def clear(self, containers: Sequence[str]) -> None:
        """Forgets the moves of state in containers that are reset, and breaks its holds."""
        freed = {container_on(self._state.task, name) for name in containers}
        going_on = set[str]()
        for name, hold in self._holds.items():
            # The source decides whether everything moves, and there is more than these containers.
            if hold.is_of_everything and hold.source != self._state.task:
                hold.freed |= freed
                going_on.add(name)
        self.steps.clear(freed, going_on)
        self.plans.clear(freed, going_on)

    def _hold(self, name: str) -> _Hold:
        self.steps.directory.states(name)  # a reset may have broken it
        hold = self._holds.get(name)
        if hold is None:
            raise InternalError(f"hold {name!r} is not known")
        return hold

    async def _close_plans(self, name: str, hold: _Hold) -> None:
        """Waits until no running plan uses the state, and bars new ones.

        There is usually none: the masters have waited for their steps. One may have lost its hold.
        """
        if not self.plans.directory.is_holding(name):
            self.plans.directory.hold(name, hold.states, hold.target)
        await self.plans.idle(name)

    async def _put(
        self,
        name: str,
        hold: _Hold,
        names: Sequence[StateId],
        record: bytes,
        tensors: Sequence[Array],
    ) -> None:
        """Keeps a copy of state that will have these names here."""
        devices = self._state.devices
        for state in names:
            if state.device not in devices:
                raise InvalidArgumentError(
                    f"{self._state.task} has no device {state.device}; it has {', '.join(devices)}"
                )
        await self._close_plans(name, hold)
        has_room = hold.source == self._state.task  # the copies take the place of what they are of
        copies = (self._state.containers, names, record, tensors, devices, has_room)
        hold.arrivals.append(await self._state.driver.work(Arrival, *copies))
        if self._holds.get(name) is not hold:  # it has ended meanwhile
            hold.arrivals.pop().drop()
            raise AbortedError("the hold of the state has ended; nothing has moved")

    def _end_without_mover(self, name: str) -> None:
        """Ends a hold without its mover: as kept at the source, elsewhere as the source says."""
        hold = self._holds.get(name)
        if hold is None or hold.is_ending:
            return
        if hold.source == self._state.task:
            self._finish(name, has_moved=False)
        else:
            hold.is_ending = True
            self._state.driver.start(self._resolve(name, hold))

    async def _resolve(self, name: str, hold: _Hold) -> None:
        """Ends a hold as its source says; assumes no move if the source does not reply."""
        has_moved, driver = False, self._state.driver
        try:
            async with driver.limit(ASK_S):
                while (outcome := await self._query_source(name, hold)) is None:
                    await driver.sleep(RETRY_S)
            has_moved = outcome
        except TimeoutError:
            _LOG.warning(
                "%s does not know whether %s has moved to %s: %s has not answered for %g s; it "
                "goes on as if it had not",
                *(self._state.task, hold.states[0], hold.target, hold.source, ASK_S),
            )
        with suppress(AbortedError):
            self._finish(name, has_moved=has_moved)

    async def _query_source(self, name: str, hold: _Hold) -> bool | None:
        """Asks the source whether the state has moved; returns None if it does not reply."""
        try:
            async with self._state.driver.limit(TRY_S):
                return await call_task(
                    self._state.tasks, hold.source, StateMoves.outcome, RECONNECT_TIMEOUT_S, name
                )
        except (OpError, TimeoutError):
            return None

    def _finish(self, name: str, *, has_moved: bool) -> None:
        """Ends a hold. At the source, and only there, this is the moment of the move.

        Raises:
          AbortedError: if it is to end with a move, but a reset has broken it.
        """
        hold = self._holds.pop(name, None)
        if hold is None:
            return
        hold.timer.cancel()
        self._state.parked.stay(hold.states)
        is_broken = not self.steps.directory.is_holding(name)
        if not has_moved or is_broken:
            for arrival in hold.arrivals:
                arrival.drop()
            self.plans.release(name)
            self.steps.release(name)
            if has_moved:
                raise AbortedError("its container was reset while the state moved")
            return
        if not self.plans.directory.is_holding(name):
            self.plans.directory.hold(name, hold.states, hold.target)
        # Without a wait in between: no step sees both copies, or none.
        if hold.source == self._state.task:
            discard(self._state.containers, hold.leaving_states)
            self._moved[name] = None
            if len(self._moved) > MAX_OUTCOMES:
                self._moved.popitem(last=False)
        for arrival in hold.arrivals:
            arrival.finish()
            freed = [state for state in arrival.names if state.container in hold.freed]
            discard(self._state.containers, freed)
        for gate in (self.plans, self.steps):
            gate.directory.learn(hold.moved)
        self.plans.move(name)
        self.steps.move(name)


def _moved_from(task: Task, directory: Directory) -> tuple[MovedState, ...]:
    """Returns where state is that has moved away from a task by itself."""
    return tuple(
        MovedState(LeftState.of(state), device)
        for state, device in directory.moved.items()
        if state.kind != EVERYTHING and state.task == task
    )
