"""`Workers`: the workers of a coordinator, and how much each of them has to do. Pure."""

from __future__ import annotations

from collections.abc import ItemsView
from dataclasses import dataclass, field

from jflow.training.coordinator.durations import AHEAD_S, MAX_AHEAD, SECOND_WITHIN_S
from jflow.training.coordinator.events import WorkerIndex


@dataclass
class WorkerState:
    """The state of a worker, with sums over its attempts."""

    is_up: bool = False
    is_leaving: bool = False
    attempts: set[int] = field(default_factory=set)
    load: float = 0.0
    """Seconds that its attempts are expected to take."""
    n_closures: int = 0
    """How many closures its attempts are of."""
    last_end: float = 0.0

    @property
    def has_room(self) -> bool:
        """Whether the worker may get another closure."""
        n = len(self.attempts)
        within_s = AHEAD_S if n > 1 else SECOND_WITHIN_S
        return self.is_up and self.load < within_s and n < MAX_AHEAD


class Workers:
    """The workers of a coordinator, by index.

    A worker is here from `add` until it has left and its last attempt has come back.

    Args:
      n_workers: how many workers there are at first; they are down until `up`.
    """

    def __init__(self, n_workers: int = 0) -> None:
        self._states = {worker: WorkerState() for worker in range(n_workers)}
        self._departures: dict[WorkerIndex, BaseException] = {}

    def __len__(self) -> int:
        return len(self._states)

    def items(self) -> ItemsView[WorkerIndex, WorkerState]:
        """Returns the workers and their states, including those that are leaving."""
        return self._states.items()

    def get(self, worker: WorkerIndex) -> WorkerState | None:
        """Returns the state of a worker; None if there is none with that index."""
        return self._states.get(worker)

    def add(self, worker: WorkerIndex) -> None:
        """Adds a worker, which is down until `up`."""
        self._departures.pop(worker, None)
        self._states[worker] = WorkerState()

    def up(self, worker: WorkerIndex) -> bool:
        """Marks a worker as reachable; returns False if it takes no closures, because it leaves."""
        state = self._states.get(worker)
        if state is None or state.is_leaving:
            return False
        state.is_up = True
        return True

    def down(self, worker: WorkerIndex) -> bool:
        """Marks a worker as unreachable; returns whether it is one of these."""
        state = self._states.get(worker)
        if state is None:
            return False
        state.is_up = False
        return True

    def leave(self, worker: WorkerIndex, error: BaseException) -> bool:
        """Marks a worker as leaving; returns whether it was one of these.

        Args:
          worker: the worker.
          error: what closures fail with that may run nowhere else.
        """
        state = self._states.get(worker)
        if state is None:
            return False
        state.is_up, state.is_leaving = False, True
        self._departures[worker] = error
        self._remove_if_left(worker, state)
        return True

    def departure(self, worker: WorkerIndex | None) -> BaseException | None:
        """The error of a closure whose only worker has left or is leaving; None for any other."""
        return None if worker is None else self._departures.get(worker)

    def add_attempt(
        self, worker: WorkerIndex, attempt: int, seconds: float, n_closures: int
    ) -> int:
        """Records an attempt on a worker, with its expected time.

        Returns:
          How many closures it has now.
        """
        state = self._states[worker]
        state.attempts.add(attempt)
        state.load += seconds
        state.n_closures += n_closures
        return state.n_closures

    def remove_attempt(
        self, worker: WorkerIndex, attempt: int, seconds: float, n_closures: int
    ) -> None:
        """Records the end of an attempt; its arguments are those of `add_attempt`."""
        state = self._states[worker]
        state.attempts.discard(attempt)
        # Rounding leaves something of the load of many attempts.
        state.load = state.load - seconds if state.attempts else 0.0
        state.n_closures -= n_closures
        self._remove_if_left(worker, state)

    def is_up(self, worker: WorkerIndex) -> bool:
        """Returns whether a worker takes closures."""
        state = self._states.get(worker)
        return state is not None and state.is_up

    def is_free(self, worker: WorkerIndex) -> bool:
        """Returns whether a worker has no attempts."""
        state = self._states.get(worker)
        return state is None or not state.attempts

    def _remove_if_left(self, worker: WorkerIndex, state: WorkerState) -> None:
        if state.is_leaving and not state.attempts:
            del self._states[worker]
