"""Which kinds of closures run in bursts on which workers. Pure."""

from __future__ import annotations

from collections.abc import Hashable

from jflow.coordinator.durations import Durations
from jflow.coordinator.events import Closure, WorkerIndex

BURST_WITHIN_S = 0.25
"""Closures run in bursts on a worker that is expected to end one within this time, in seconds. So a
slow worker has few of those that others wait for."""


class Bursts:
    """The bursts that are compiled for workers, or are being compiled.

    Args:
      durations: how long closures take.
    """

    def __init__(self, durations: Durations) -> None:
        self._durations = durations
        self._ready: dict[tuple[Hashable, WorkerIndex], bool] = {}

    def may_run(self, first: Closure, worker: WorkerIndex) -> bool:
        """Whether a worker is to run bursts of a closure's kind: it can, in little time."""
        return self._ready.get((first.kind, worker), False) and self._is_short(first, worker)

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
        if self._durations.n_seen(first.kind) < 2 or not self._is_short(first, worker):
            return False
        self._ready[key] = False
        return True

    def made(self, kind: Hashable, worker: WorkerIndex) -> None:
        """Bursts of a kind are compiled for a worker."""
        if (kind, worker) in self._ready:
            self._ready[kind, worker] = True

    def _is_short(self, first: Closure, worker: WorkerIndex) -> bool:
        """Whether the worker is expected to end a burst soon, by what it has run last."""
        expected = self._durations.expected(first.kind, worker)
        return expected is not None and expected * first.burst < BURST_WITHIN_S

    def lose(self, worker: WorkerIndex) -> None:
        """A worker was lost, with what was compiled for it."""
        for key in [key for key in self._ready if key[1] == worker]:
            del self._ready[key]
