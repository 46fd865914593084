"""Which kinds of closures run in bursts on which workers. Pure."""

from __future__ import annotations

from collections.abc import Hashable

from jflow.coordinator.durations import Durations
from jflow.coordinator.events import Closure, WorkerIndex

BURST_WITHIN_S = 0.25
"""Closures run in bursts if one burst of them is expected to take less than this, in seconds."""


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
        expected = self._durations.expected(first.kind)
        if expected is None or expected * first.burst >= BURST_WITHIN_S:
            return False
        if self._durations.n_seen(first.kind) < 2:
            return False
        self._ready[key] = False
        return True

    def made(self, kind: Hashable, worker: WorkerIndex) -> None:
        """Bursts of a kind are compiled for a worker."""
        if (kind, worker) in self._ready:
            self._ready[kind, worker] = True

    def lose(self, worker: WorkerIndex) -> None:
        """A worker was lost, with what was compiled for it."""
        for key in [key for key in self._ready if key[1] == worker]:
            del self._ready[key]
