"""`Directory`: which state has moved, is held or is paused, and which running steps use it.

A server has two: one for the steps that its master starts, one for the plans that its worker runs.
A local session has one. Invariants:

* State is held by at most one hold, with the name that it will have at the target, and a step that
  begins uses no held and no moved state. So once a hold is idle (`is_idle`) it stays so until it
  ends: nothing uses what it holds.
* `_moved` names the device where the state is now, not where it went first: a later move changes
  every entry that names its source. State that comes back is no longer in it.
* A hold that has ended, or that a reset has broken, cannot end as moved.
* Steps on the devices of a task use everything on it (`StateId.everything_on`). So a hold of that
  bars them all, and once it has moved none begins there any more.
* A step that begins changes nothing that is paused, or uses nothing of it if all uses are. Pauses
  are of saves: several may pause the same state, and state stays where it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from weakref import WeakSet

from jflow.base.cluster import Device, Task
from jflow.errors import AbortedError
from jflow.state.moves.states import EVERYTHING, Change, MovedError, StateId


class Use:
    """The state that the registered plans of a step use.

    Attributes:
      states: the variables and resources.
      changes: what their instructions change.
      session: the session that registered them; None if that is not known.
      n_running: the number of steps that are running them.
    """

    __slots__ = ("__weakref__", "changes", "n_running", "session", "states")

    def __init__(
        self,
        states: frozenset[StateId],
        changes: Sequence[Change] = (),
        session: object = None,
    ) -> None:
        self.states = states
        self.changes = changes
        self.session = session
        self.n_running = 0

    def changes_any(self, states: Collection[StateId]) -> bool:
        """Whether an instruction of the plans changes any of this state."""
        return any(not change.isdisjoint(states) for change in self.changes)

    def is_on_several_tasks(self, states: Collection[StateId]) -> bool:
        """Whether the plans use some of this state on more than one task."""
        return len({state.task for state in self.states.intersection(states)}) > 1

    def is_split(self, states: Collection[StateId]) -> bool:
        """Whether snapshots could contain only a part of what a running step changes.

        They contain it whole if one instruction changes all of it, or if it is variables of one
        task, which keeps together what a step does to its variables
        (`jflow.state.resources.writing`).
        """
        changed = [change & frozenset(states) for change in self.changes]
        changes = [change for change in changed if change]
        together = frozenset[StateId]().union(*changes)
        is_one_task = len({state.task for state in together}) <= 1
        has_resource = any(not state.is_variable for state in together)
        return len(changes) > 1 and (has_resource or not is_one_task)


@dataclass(frozen=True)
class _Pause:
    """A pause for a save or restore, which blocks writes, or all uses, by one session or by all."""

    states: frozenset[StateId]
    is_exclusive: bool
    session: object

    def concerns(self, use: Use) -> bool:
        if self.session is not None and use.session is not self.session:
            return False
        return not self.states.isdisjoint(use.states) and (
            self.is_exclusive or use.changes_any(self.states)
        )


class Directory:
    """Which state has moved, is held or is paused. Not thread-safe."""

    def __init__(self) -> None:
        self._uses: WeakSet[Use] = WeakSet()
        self._held: dict[StateId, str] = {}
        self._holds: dict[str, tuple[frozenset[StateId], str]] = {}
        self._moved: dict[StateId, str] = {}
        self._pauses: dict[str, _Pause] = {}

    def add(
        self, states: frozenset[StateId], changes: Sequence[Change] = (), session: object = None
    ) -> Use:
        """Adds the state that registered plans use, for as long as the result is referenced.

        Args:
          states, changes, session: see `Use`.

        Raises:
          MovedError: if any of it has moved.
        """
        self.check(states)
        use = Use(states, changes, session)
        self._uses.add(use)
        return use

    def remove(self, use: Use) -> None:
        """Removes the use of plans that are no longer registered."""
        self._uses.discard(use)

    def check(self, states: Collection[StateId]) -> None:
        """Raises MovedError if any of the state has moved."""
        if self._moved and (moved_states := self._moved.keys() & states):
            raise MovedError.of({state: self._moved[state] for state in sorted(moved_states)})

    def is_held(self, states: Collection[StateId]) -> bool:
        """Whether any of the state is held."""
        return bool(self._held) and not self._held.keys().isdisjoint(states)

    def enter(self, use: Use) -> bool:
        """Begins a step; returns False if it must wait for a hold or pause to end.

        Raises:
          MovedError: if state has moved that it uses.
        """
        if self._held and not self._held.keys().isdisjoint(use.states):
            return False
        if self._moved:
            self.check(use.states)
        if self._pauses and any(pause.concerns(use) for pause in self._pauses.values()):
            return False
        use.n_running += 1
        return True

    def obstacle(self, use: Use) -> str:
        """Describes what a step that cannot begin waits for; "" if it can begin."""
        for state in sorted(self._held.keys() & use.states):
            _, target = self._holds[self._held[state]]
            return f"for {state}, which is being moved to {target}"
        for pause in self._pauses.values():
            if pause.concerns(use):
                state = min(pause.states & use.states)
                return f"for {state}, which is being saved or restored"
        return ""

    def leave(self, use: Use) -> None:
        """Ends a step that `enter` has begun."""
        use.n_running -= 1

    def hold(self, name: str, states: Iterable[StateId], target: str) -> None:
        """Bars steps that use any of the state from beginning, until the hold ends.

        Args:
          name: of the hold; holds of two moves never have one name.
          states: what is to move.
          target: the device that it is to move to.

        Raises:
          AbortedError: if another move holds some of it.
          MovedError: if some of it has moved.
        """
        held_states = frozenset(states)
        both = held_states | {state.on(target) for state in held_states}
        self._check_unheld(held_states, both)
        self._holds[name] = (held_states, target)
        self._held.update(dict.fromkeys(both, name))

    def _check_unheld(self, present: frozenset[StateId], meant: frozenset[StateId]) -> None:
        """Raises MovedError if some of the state has moved, and AbortedError if some is held."""
        around = meant | everything_around(meant)
        # Nothing moves to a task from which everything has moved, because that is about to leave.
        self.check(present | (around - meant))
        for held in sorted(self._held):
            if held in around or not meant.isdisjoint(everything_around((held,))):
                raise AbortedError(f"{held} is being moved by another session; try again later")

    def is_holding(self, name: str) -> bool:
        """Whether a hold exists and has not ended."""
        return name in self._holds

    def states(self, name: str) -> tuple[frozenset[StateId], str]:
        """Returns the held state and its target. Raises AbortedError if the hold has ended."""
        if name not in self._holds:
            raise AbortedError(
                "the hold of the state has ended, because its time was over, its task was lost or "
                "the container was reset; nothing has moved"
            )
        return self._holds[name]

    def is_idle(self, name: str) -> bool:
        """Whether no running step uses the held state. Raises as `states`."""
        self.states(name)
        held = {state for state, hold in self._held.items() if hold == name}
        return all(use.n_running == 0 or use.states.isdisjoint(held) for use in self._uses)

    def release(self, name: str) -> None:
        """Ends a hold without a move; does nothing if it has ended."""
        if self._holds.pop(name, None) is not None:
            self._held = {state: hold for state, hold in self._held.items() if hold != name}

    def move(self, name: str) -> None:
        """Ends a hold as moved. Raises AbortedError if it has ended."""
        states, target = self.states(name)
        self.release(name)
        for state in states:
            if state.kind == EVERYTHING:
                self.leave_task(state.task, Task.parse(target))
            else:
                self._move(state, target)

    def _move(self, state: StateId, target: str) -> None:
        for former, device in self._moved.items():
            if former.kind != EVERYTHING and former.on(device) == state:
                self._moved[former] = target
        self._moved[state] = target
        self._moved.pop(state.on(target), None)

    @property
    def moved(self) -> Mapping[StateId, str]:
        """The devices where state is that has moved; of everything on a task, another task."""
        return self._moved

    def learn(self, moved: Mapping[StateId, str]) -> None:
        """Takes what another directory knows of state that has moved."""
        self._moved = {**moved, **self._moved}

    def leave_task(self, task: Task, successor: Task) -> None:
        """Records that all that was on a task is on another one, which has the same devices.

        A request for what was there means the successor. So state that had moved away from the task
        is looked for there, too.
        """
        for former, place in self._moved.items():
            if former.kind == EVERYTHING and place == str(task):
                self._moved[former] = str(successor)
            elif former.kind != EVERYTHING and (device := Device.parse(place)).task == task:
                self._moved[former] = str(replace(device, task=successor))
        for former, place in [*self._moved.items()]:
            if former.kind != EVERYTHING and former.task == task:
                self._moved.setdefault(former.on_task(successor), place)
        for state in [one for one, place in self._moved.items() if place == one.device]:
            del self._moved[state]  # it came back
        self._moved[StateId.everything_on(task)] = str(successor)

    def pause(
        self,
        name: str,
        states: Iterable[StateId],
        *,
        is_exclusive: bool = False,
        session: object = None,
    ) -> None:
        """Bars steps that change any of the state from beginning, until `resume`.

        Args:
          name: of the pause; pauses of two saves never have one name.
          states: what is about to be saved or restored.
          is_exclusive: whether steps that only read it have to wait, too.
          session: whose steps; None for those of all sessions.

        Raises:
          AbortedError: if a move holds some of it.
          MovedError: if some of it has moved.
        """
        paused_states = frozenset(states)
        self._check_unheld(paused_states, paused_states)
        self._pauses[name] = _Pause(paused_states, is_exclusive, session)

    def is_quiet(self, name: str) -> bool:
        """Whether every running step's changes would be in snapshots as a whole or not at all.

        In an exclusive pause, neither is one that could see a part of what changes now.
        """
        pause = self._pauses.get(name)
        if pause is None:
            raise AbortedError("the save or restore was given up")
        return not any(
            use.n_running
            and pause.concerns(use)
            and (
                use.is_split(pause.states)
                or (pause.is_exclusive and use.is_on_several_tasks(pause.states))
            )
            for use in self._uses
        )

    def resume(self, name: str) -> None:
        """Ends a pause; does nothing if it has ended."""
        self._pauses.pop(name, None)

    def clear(self, containers: Collection[str], going_on: Collection[str] = ()) -> None:
        """Forgets the moves of state in containers that are reset, and breaks its holds.

        Args:
          containers: the containers.
          going_on: the names of holds that go on.
        """
        for name, (states, _) in [*self._holds.items()]:
            if name not in going_on and any(
                one.kind == EVERYTHING or one.container in containers for one in states
            ):
                self.release(name)
        for state in [*self._moved]:
            if state.kind != EVERYTHING and state.container in containers:
                del self._moved[state]


def everything_around(states: Iterable[StateId]) -> frozenset[StateId]:
    """Returns everything on the tasks of some state."""
    return frozenset(StateId.everything_on(state.task) for state in states)
