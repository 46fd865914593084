"""Which kinds of closures run in batches on which workers, and when. Pure.

A batch saves the coordinator, and every task on the way, a message for each closure but one. What
that is worth depends on the time of a closure relative to that of a dispatch, both measured so
that neither the load of the machine nor the speed of the transport changes the answer: the shortest
time that closures of a kind have lately taken, and the coordinator's processor time. Rules:

- Batches of a kind are compiled if a closure takes less than `WORTH_BELOW` dispatches, and a batch
  less than `BATCH_WITHIN_S`. Longer ones would gain little, and would come back late, all at once.
- A kind is *bound by dispatches* if the coordinator cannot keep all workers busy with it one by
  one. Then a batch is better than single closures however many workers there are, and what waits
  is held back until it makes a batch while its worker has `N_AHEAD` attempts. Without that, a
  transport that is faster would have each closure sent as soon as it is scheduled, and none would
  ever wait for others.
- Any other kind runs in batches only if there is one for each worker, so that none of them has a
  long batch while others have nothing to do.
- A worker that *lags*, two batches of which in a row took `LAGS_BY` times as long as those of
  another one, rests: for `RESTS_FOR` times as long as the latest took it has closures one by one.
  Results that are wanted in order would all wait for its batches. It still has some, because it may
  be as fast as the others by then, which only a batch shows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from jflow.training.coordinator.durations import AHEAD_S, Durations
from jflow.training.coordinator.events import Closure, WorkerIndex

BATCH_WITHIN_S = 0.25
"""Closures run in batches if one batch of them takes less than this, in seconds."""

WORTH_BELOW = 40
"""Closures run in batches if one takes less than this many dispatches: a dispatch, its answer, and
what the tasks on the way do for it, are then a tenth of it or more."""

N_AHEAD = 2
"""As many attempts hide the way of the messages of one behind the other."""

LAGS_BY = 4.0
"""How many times as long as those of another worker batches of one that lags take."""

RESTS_FOR = 8.0
"""A worker that lags has batches for at most a ninth of its time."""


class Batches:
    """The batches that are compiled for workers, or are being compiled.

    Args:
      durations: how long closures take.
    """

    def __init__(self, durations: Durations) -> None:
        self._durations = durations
        self._ready: dict[tuple[Hashable, WorkerIndex], bool] = {}
        self._lags: dict[tuple[Hashable, WorkerIndex], float] = {}  # until when it rests

    def is_ready(self, kind: Hashable, worker: WorkerIndex, now: float) -> bool:
        """Returns whether a worker can run batches of a kind and is not excluded for lagging."""
        key = kind, worker
        return self._ready.get(key, False) and now >= self._lags.get(key, now)

    def wanted(self, first: Closure, worker: WorkerIndex, n_waiting: int) -> bool:
        """Returns whether to compile batches of a kind, because many short closures wait.

        Args:
          first: the closure that the worker runs next.
          worker: the worker.
          n_waiting: how many closures it may run.
        """
        key = first.kind, worker
        if first.batch_size == 1 or key in self._ready or n_waiting < first.batch_size:
            return False
        shortest, dispatch = self._durations.shortest(first.kind), self._durations.dispatch
        if shortest is None or dispatch is None or self._durations.n_seen(first.kind) < 2:
            return False
        if shortest >= min(WORTH_BELOW * dispatch, BATCH_WITHIN_S / first.batch_size):
            return False
        self._ready[key] = False
        return True

    def least(self, first: Closure, n_workers: int) -> int:
        """Returns the minimum number of waiting closures for which the first one is batched.

        Args:
          first: the closure that a worker runs next.
          n_workers: how many workers there are.
        """
        return first.batch_size * (1 if self._is_bound(first.kind, n_workers) else n_workers)

    def holds_back(
        self, first: Closure, worker: WorkerIndex, n_ahead: int, n_workers: int, now: float
    ) -> bool:
        """Returns whether a closure waits for others of its kind, although its worker has room.

        Args:
          first: the closure that the worker runs next; fewer than make a batch wait.
          worker: the worker.
          n_ahead: how many attempts it has.
          n_workers: how many workers there are.
          now: the time.
        """
        is_ahead = n_ahead >= N_AHEAD and self.is_ready(first.kind, worker, now)
        return is_ahead and self._is_bound(first.kind, n_workers)

    def _is_bound(self, kind: Hashable, n_workers: int) -> bool:
        """Returns whether dispatches are what limits closures of a kind that run one by one."""
        shortest, dispatch = self._durations.shortest(kind), self._durations.dispatch
        return shortest is not None and shortest < (dispatch or 0.0) * n_workers

    def compiled(self, kind: Hashable, worker: WorkerIndex) -> None:
        """Records that batches of a kind are compiled for a worker."""
        if (kind, worker) in self._ready:
            self._ready[kind, worker] = True

    def ended(
        self,
        kind: Hashable,
        worker: WorkerIndex,
        others: Iterable[WorkerIndex],
        n_closures: int,
        start: float,
        now: float,
    ) -> None:
        """Records the time of a batch that succeeded; a worker that lags is excluded for a while.

        Args:
          kind: of its closures.
          worker: the worker that has run it.
          others: the other workers.
          n_closures: how many closures it was of.
          start: when the worker began with it.
          now: the time.
        """
        key, seconds = (kind, worker), now - start
        means = (self._durations.of_worker((kind, True), other) for other in others)
        least = min((mean for mean in means if mean is not None), default=seconds)
        if seconds < max(AHEAD_S, LAGS_BY * least * n_closures):
            self._lags.pop(key, None)
        elif key in self._lags:
            self._lags[key] = now + RESTS_FOR * seconds
        else:
            self._lags[key] = now

    def forget_worker(self, worker: WorkerIndex) -> None:
        """Drops what was compiled for a lost worker."""
        for table in (self._ready, self._lags):
            for key in [key for key in table if key[1] == worker]:
                del table[key]
