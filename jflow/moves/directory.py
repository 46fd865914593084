"""`Directory`: what has moved, what is about to move, and which running steps use it.

A server has two: one for the steps that its master starts, one for the plans that its worker runs.
A local session has one. Invariants:

* State is held by at most one hold, with the name that it will have at the target, and a step that
  begins uses no held and no moved state. So once a hold is idle (`is_idle`) it stays so until it
  ends: nothing uses what it holds.
* `_moved` names the device where the state is now, not where it went first: a later move changes
  every entry that names its source. State that comes back is no longer in it.
* A hold that has ended, or that a reset has broken, cannot end as moved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from weakref import WeakSet

from jflow.errors import AbortedError
from jflow.moves.states import MovedError, StateId


class Use:
    """The state that registered plans use.

    Attributes:
      states: the variables and resources.
      n_running: the number of steps that are running them.
    """

    __slots__ = ("__weakref__", "n_running", "states")

    def __init__(self, states: frozenset[StateId]) -> None:
        self.states = states
        self.n_running = 0


class Directory:
    """What has moved and what is held. Not thread-safe."""

    def __init__(self) -> None:
        self._uses: WeakSet[Use] = WeakSet()
        self._held: dict[StateId, str] = {}
        self._holds: dict[str, tuple[frozenset[StateId], str]] = {}
        self._moved: dict[StateId, str] = {}

    def add(self, states: frozenset[StateId]) -> Use:
        """Adds what registered plans use, for as long as there are references to the result.

        Raises:
          MovedError: if any of it has moved.
        """
        self.check(states)
        use = Use(states)
        self._uses.add(use)
        return use

    def remove(self, use: Use) -> None:
        """Removes what plans used that are not registered any more."""
        self._uses.discard(use)

    def check(self, states: Collection[StateId]) -> None:
        """Raises MovedError if any of the state has moved."""
        if self._moved and (found := self._moved.keys() & states):
            raise MovedError.of({state: self._moved[state] for state in sorted(found)})

    def is_held(self, states: Collection[StateId]) -> bool:
        """Whether any of the state is held."""
        return bool(self._held) and not self._held.keys().isdisjoint(states)

    def enter(self, use: Use) -> bool:
        """A step begins, unless it has to wait for the end of a hold: then it returns False.

        Raises:
          MovedError: if state has moved that it uses.
        """
        if self._held and not self._held.keys().isdisjoint(use.states):
            return False
        if self._moved:
            self.check(use.states)
        use.n_running += 1
        return True

    def leave(self, use: Use) -> None:
        """A step that had begun ends."""
        use.n_running -= 1

    def hold(self, name: str, states: Iterable[StateId], target: str) -> None:
        """Holds all steps that use any of the state.

        Args:
          name: of the hold; holds of two moves never have one name.
          states: what is to move.
          target: the device that it is to move to.

        Raises:
          AbortedError: if another move holds some of it.
          MovedError: if some of it has moved.
        """
        wanted = frozenset(states)
        self.check(wanted)
        both = wanted | {state.on(target) for state in wanted}
        for state in sorted(both & self._held.keys()):
            raise AbortedError(f"{state} is being moved by another session; try again later")
        self._holds[name] = (wanted, target)
        self._held.update(dict.fromkeys(both, name))

    def is_holding(self, name: str) -> bool:
        """Whether a hold has not ended."""
        return name in self._holds

    def states(self, name: str) -> tuple[frozenset[StateId], str]:
        """What a hold holds, and its target. Raises AbortedError if it has ended."""
        if name not in self._holds:
            raise AbortedError(
                "the hold of the state has ended, because its time was over, its task was lost or "
                "the container was reset; nothing has moved"
            )
        return self._holds[name]

    def is_idle(self, name: str) -> bool:
        """Whether no step is running that uses what a hold holds. Raises as `states`."""
        self.states(name)
        held = {state for state, hold in self._held.items() if hold == name}
        return all(use.n_running == 0 or use.states.isdisjoint(held) for use in self._uses)

    def release(self, name: str) -> None:
        """Ends a hold, if it has not ended, without a move."""
        if self._holds.pop(name, None) is not None:
            self._held = {state: hold for state, hold in self._held.items() if hold != name}

    def move(self, name: str) -> None:
        """Ends a hold with the move. Raises AbortedError if it has ended."""
        states, target = self.states(name)
        self.release(name)
        for state in states:
            for former, device in self._moved.items():
                if former.on(device) == state:
                    self._moved[former] = target
            self._moved[state] = target
            self._moved.pop(state.on(target), None)

    def clear(self, containers: Collection[str]) -> None:
        """Forgets moves of state in containers, which are reset, and breaks holds of it."""
        for name, (states, _) in [*self._holds.items()]:
            if any(state.container in containers for state in states):
                self.release(name)
        for state in [state for state in self._moved if state.container in containers]:
            del self._moved[state]
