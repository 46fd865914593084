"""One move of state over the tasks of a cluster, as a state machine from events to actions.

All tasks hold what uses the state, then the source saves it, the target takes the copy, and the
source ends its hold as moved. Before that moment every failure keeps the state where it is; after
it, all others are told, and one that cannot be told asks the source.

Invariants:

* `SaveState` is returned only once every task holds, so nothing uses the state from then on until
  the holds end; the source checks that for itself.
* `EndHold(source, MOVED)` is returned only once the target has the copy, and before any other
  `EndHold(…, MOVED)`. So a copy is dropped only when the other one exists.
* Each task gets one `EndHold`. If it is not known whether the source has ended its hold as moved,
  the end is `UNKNOWN`, and the tasks ask the source.
* `Moved` or `Failed` is the last action.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, IntEnum, auto

from jflow.base.cluster import Task
from jflow.errors import OpError


class End(IntEnum):
    """How a hold ends; the values are those on the wire."""

    KEPT = 0
    """The state is where it was."""
    MOVED = 1
    """The state is at the target."""
    UNKNOWN = 2
    """Only the source knows."""


@dataclass(frozen=True)
class HoldState:
    """Action: make a task hold the steps that use the state."""

    task: Task


@dataclass(frozen=True)
class SaveState:
    """Action: make the source save the state."""

    task: Task


@dataclass(frozen=True)
class PutState:
    """Action: give the target the copy, which it keeps without using it."""

    task: Task


@dataclass(frozen=True)
class EndHold:
    """Action: end the hold of a task."""

    task: Task
    end: End


@dataclass(frozen=True)
class Moved:
    """Action: the move has succeeded."""


@dataclass(frozen=True, eq=False)
class Failed:
    """Action: the move has failed."""

    error: OpError


MoveAction = HoldState | SaveState | PutState | EndHold | Moved | Failed


class _Phase(Enum):
    HOLDING = auto()
    SAVING = auto()
    PUTTING = auto()
    MOVING = auto()
    ENDING = auto()


class Move:
    """The state machine of one move. Each method is an event and returns the actions to execute.

    Args:
      tasks: all tasks of the cluster, among them the next two.
      source: the task that has the state.
      target: the task that the state moves to; it may be the same.
    """

    def __init__(self, tasks: Iterable[Task], source: Task, target: Task) -> None:
        self._tasks = tuple(tasks)
        self._source = source
        self._target = target
        self._waiting: set[MoveAction] = set(map(HoldState, self._tasks))
        self._phase = _Phase.HOLDING
        self._error: OpError | None = None

    def begin(self) -> list[MoveAction]:
        """Event: the move begins."""
        return [HoldState(task) for task in self._tasks]

    def done(self, action: MoveAction) -> list[MoveAction]:
        """Event: an action has succeeded."""
        return self._next() if self._is_awaited(action) else []

    def _next(self) -> list[MoveAction]:
        """Returns the actions of the next phase, once the present phase waits for no action."""
        actions: list[MoveAction] = []
        match self._phase:
            case _ if self._waiting:
                pass
            case _Phase.HOLDING:
                actions = self._go_on(_Phase.SAVING, SaveState(self._source))
            case _Phase.SAVING:
                actions = self._go_on(_Phase.PUTTING, PutState(self._target))
            case _Phase.PUTTING:
                actions = self._go_on(_Phase.MOVING, EndHold(self._source, End.MOVED))
            case _Phase.MOVING:
                actions = self._end(End.MOVED, but=self._source)
            case _Phase.ENDING:
                actions = [self._outcome()]
        return actions

    def failed(self, action: MoveAction, error: OpError) -> list[MoveAction]:
        """Event: an action has failed, or its task was lost."""
        if not self._is_awaited(action):
            return []
        if self._phase is _Phase.ENDING:
            # A task that cannot be told asks the source when its hold is over.
            return self._next()
        return self._give_up(error)

    def cancelled(self, error: OpError) -> list[MoveAction]:
        """Event: the caller is cancelled. A move that has been decided goes on."""
        return [] if self._phase is _Phase.ENDING else self._give_up(error)

    def _is_awaited(self, action: MoveAction) -> bool:
        """Whether the phase waits for an action, which is then removed."""
        is_awaited = action in self._waiting
        self._waiting.discard(action)
        return is_awaited

    def _give_up(self, error: OpError) -> list[MoveAction]:
        self._error = error
        return self._end(End.UNKNOWN if self._phase is _Phase.MOVING else End.KEPT)

    def _go_on(self, phase: _Phase, action: MoveAction) -> list[MoveAction]:
        self._phase = phase
        self._waiting = {action}
        return [action]

    def _end(self, end: End, but: Task | None = None) -> list[MoveAction]:
        self._phase = _Phase.ENDING
        ends: list[MoveAction] = [EndHold(task, end) for task in self._tasks if task != but]
        self._waiting = set(ends)
        return ends or [self._outcome()]

    def _outcome(self) -> MoveAction:
        return Moved() if self._error is None else Failed(self._error)
