"""`UnpausedMasters`: finds masters whose steps' changes could be saved only in part. Pure.

A consistent save pauses the steps of all masters that it reaches. Another one is lost, and its
steps with it; or it is cut off from the task that saves only, and its steps go on. A task that has
some of the state can tell: what a lost master has registered is released with its connection.

Invariant: from the begin of a pause until its end returns true, no master that is not paused has
plans here that change the state.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from jflow.base.cluster import Task
from jflow.errors import FailedPreconditionError
from jflow.state.moves import StateId


class _Plans(NamedTuple):
    master: Task | None
    changed: frozenset[StateId]


@dataclass
class _Pause:
    masters: frozenset[Task]
    states: frozenset[StateId]
    has_lasted: bool = True

    def is_seen_in_part(self, plans: _Plans) -> bool:
        """Whether these plans change the saved state and their master is not paused."""
        return plans.master not in self.masters and not plans.changed.isdisjoint(self.states)


class UnpausedMasters:
    """The registered plans that change state of a task, by the masters that registered them."""

    def __init__(self) -> None:
        self._plans: dict[int, _Plans] = {}
        self._pauses: dict[str, _Pause] = {}

    def registered(self, handle: int, master: Task | None, changed: Collection[StateId]) -> None:
        """Adds plans that change state, which a master has registered.

        Args:
          handle: the plans.
          master: its task; None if that is not known.
          changed: the state.
        """
        plans = self._plans[handle] = _Plans(master, frozenset(changed))
        for pause in self._pauses.values():
            if pause.is_seen_in_part(plans):
                pause.has_lasted = False

    def released(self, handle: int) -> None:
        """Removes plans, which their master has released or whose master is lost."""
        self._plans.pop(handle, None)

    def begin_pause(
        self, name: str, masters: Collection[Task], states: Collection[StateId]
    ) -> None:
        """Begins a pause, unless an unpaused master has plans that change the state.

        Args:
          name: that of the pause.
          masters: the tasks of which steps are paused.
          states: what is saved.

        Raises:
          FailedPreconditionError: if steps of another master change it.
        """
        pause = _Pause(frozenset(masters), frozenset(states))
        for plans in self._plans.values():
            if pause.is_seen_in_part(plans):
                (state, *_) = sorted(plans.changed & pause.states)
                raise FailedPreconditionError(
                    f"steps of {plans.master or 'a task of unknown name'} change {state}, and "
                    "the task that saves cannot reach it to hold them back"
                )
        self._pauses[name] = pause

    def end_pause(self, name: str) -> bool:
        """Ends a pause; returns whether it was in force, without interruption, until now."""
        pause = self._pauses.pop(name, None)
        return pause is not None and pause.has_lasted
