"""Which kinds of closures run in bursts on which workers, and when. Pure.

A burst saves the coordinator, and every task on the way, a message for each closure but one. What
that is worth depends on what a closure takes beside what a dispatch takes, and both are measured so
that neither the load of the machine nor the speed of the transport changes the answer: the shortest
time that closures of a kind have lately taken, and the coordinator's processor time. Rules:

- Bursts of a kind are compiled if a closure takes less than `WORTH_BELOW` dispatches, and a burst
  less than `BURST_WITHIN_S`. Longer ones would gain little, and would come back late, all at once.
- A kind is *bound by dispatches* if the coordinator cannot keep all workers busy with it one by
  one. Then a burst is better than single closures however many workers there are, and what waits
  is held back until it makes a burst while its worker has `N_AHEAD` attempts. Without that, a
  transport that is faster would have each closure sent as soon as it is scheduled, and none would
  ever wait for others.
- Any other kind runs in bursts only if there is one for each worker, so that none of them has a
  long burst while others have nothing to do.
"""

from __future__ import annotations

from collections.abc import Hashable

from jflow.coordinator.durations import Durations
from jflow.coordinator.events import Closure, WorkerIndex

BURST_WITHIN_S = 0.25
"""Closures run in bursts if one burst of them takes less than this, in seconds."""

WORTH_BELOW = 40
"""Closures run in bursts if one takes less than this many dispatches: a dispatch, its answer, and
what the tasks on the way do for it, are then a tenth of it or more."""

N_AHEAD = 2
"""As many attempts hide the way of the messages of one behind the other."""


class Bursts:
    """The bursts that are compiled for workers, or are being compiled.

    Args:
      durations: how long closures take.
    """

    def __init__(self, durations: Durations) -> None:
        self._durations = durations
        self._ready: dict[tuple[Hashable, WorkerIndex], bool] = {}

    def is_ready(self, kind: Hashable, worker: WorkerIndex) -> bool:
        """Whether a worker can run bursts of a kind."""
        return self._ready.get((kind, worker), False)

    def wanted(self, first: Closure, worker: WorkerIndex, n_waiting: int) -> bool:
        """Whether bursts are to be compiled, because many short closures wait.

        Args:
          first: the closure that the worker runs next.
          worker: the worker.
          n_waiting: how many closures it may run.
        """
        key = first.kind, worker
        if first.burst == 1 or key in self._ready or n_waiting < first.burst:
            return False
        shortest, dispatch = self._durations.shortest(first.kind), self._durations.dispatch
        if shortest is None or dispatch is None or self._durations.n_seen(first.kind) < 2:
            return False
        if shortest >= min(WORTH_BELOW * dispatch, BURST_WITHIN_S / first.burst):
            return False
        self._ready[key] = False
        return True

    def least(self, first: Closure, n_workers: int) -> int:
        """How many closures have to wait for the first one to be in a burst.

        Args:
          first: the closure that a worker runs next.
          n_workers: how many workers there are.
        """
        return first.burst * (1 if self._is_bound(first.kind, n_workers) else n_workers)

    def holds_back(self, first: Closure, worker: WorkerIndex, n_ahead: int, n_workers: int) -> bool:
        """Whether a closure waits for others of its kind although its worker has room.

        Args:
          first: the closure that the worker runs next; fewer than make a burst wait.
          worker: the worker.
          n_ahead: how many attempts it has.
          n_workers: how many workers there are.
        """
        is_ahead = n_ahead >= N_AHEAD and self.is_ready(first.kind, worker)
        return is_ahead and self._is_bound(first.kind, n_workers)

    def _is_bound(self, kind: Hashable, n_workers: int) -> bool:
        """Whether dispatches are what limits closures of a kind that run one by one."""
        shortest, dispatch = self._durations.shortest(kind), self._durations.dispatch
        return shortest is not None and shortest < (dispatch or 0.0) * n_workers

    def made(self, kind: Hashable, worker: WorkerIndex) -> None:
        """Bursts of a kind are compiled for a worker."""
        if (kind, worker) in self._ready:
            self._ready[kind, worker] = True

    def lose(self, worker: WorkerIndex) -> None:
        """A worker was lost, with what was compiled for it."""
        for key in [key for key in self._ready if key[1] == worker]:
            del self._ready[key]
