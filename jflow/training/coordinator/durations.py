"""How long closures take, as measured: what decides how many of them a worker is given ahead."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from jflow.training.coordinator.events import WorkerIndex

AHEAD_S = 0.02
"""A worker is given closures until those it has are expected to take this long, in seconds. The
way of a message is far shorter, so no worker waits for its next closure."""

SECOND_WITHIN_S = 0.25
"""A worker has a second closure if the first one is expected to take less than this, in seconds. So
variables and gradients of one are on their way while another one computes. Longer ones hide
that time anyway, and would wait at one worker while another one has nothing to do."""

MAX_AHEAD = 64
"""The most attempts that a worker has at a time."""

STRAGGLES_AFTER_S = 1.0
"""No closure is run a second time before it has run for this long."""

STRAGGLES_BY = 4.0
"""A closure that has run for this many times the mean of its kind is run a second time."""

_WEIGHT = 0.2
"""The weight of the latest time in the mean."""

_RISE = 0.01
"""The weight of a longer time in the shortest one: a change of load is none of the closure."""


@dataclass
class _Mean:
    seconds: float
    n_seen: int = 1


class Durations:
    """The mean times that closures of each kind take, in seconds: of all workers, and of each.

    Attributes:
      dispatch: the processor time that the coordinator takes to start an attempt, in seconds; None
        if that is not known yet.
    """

    def __init__(self) -> None:
        self._means: dict[tuple[Hashable, WorkerIndex | None], _Mean] = {}
        self._shortest: dict[Hashable, float] = {}
        self.dispatch: float | None = None

    def note(
        self, kind: Hashable, worker: WorkerIndex, seconds: float, n_closures: int = 1
    ) -> None:
        """Records the time that a worker took for closures of a kind, run one after another."""
        for whose in (None, worker):
            self._note((kind, whose), seconds / n_closures, n_closures)

    def expected(self, kind: Hashable, worker: WorkerIndex | None = None) -> float | None:
        """Returns the expected time of a closure; None if none of its kind has ended.

        Args:
          kind: the kind.
          worker: the worker that runs it; that of all workers if None, or if it has run none.
        """
        mean = self._means.get((kind, worker)) or self._means.get((kind, None))
        return None if mean is None else mean.seconds

    def of_worker(self, kind: Hashable, worker: WorkerIndex) -> float | None:
        """Returns the mean time of closures that one worker has run; None if it has run none."""
        mean = self._means.get((kind, worker))
        return None if mean is None else mean.seconds

    def note_queued(self, kind: Hashable, seconds: float, n_queued: int) -> None:
        """Records the time from the start of an attempt to its end.

        Args:
          kind: of its closures.
          seconds: the time.
          n_queued: how many closures the worker had then, each of which took a part of it.
        """
        each = seconds / n_queued
        shortest = self._shortest.get(kind, each)
        rise = max(each - shortest, 0.0) * _RISE
        self._shortest[kind] = min(each, shortest + rise)

    def shortest(self, kind: Hashable) -> float | None:
        """Returns the shortest recent time of closures of a kind; None if none has ended."""
        return self._shortest.get(kind)

    def note_dispatch(self, seconds: float) -> None:
        """Records the processor time that the coordinator took to start an attempt."""
        mean = seconds if self.dispatch is None else self.dispatch
        self.dispatch = mean + _WEIGHT * (seconds - mean)

    def forget_worker(self, worker: WorkerIndex) -> None:
        """Drops the times of a lost worker: programs compile anew in its next life."""
        for key in [key for key in self._means if key[1] == worker]:
            del self._means[key]

    def n_seen(self, kind: Hashable) -> int:
        """Returns how many closures of a kind have ended."""
        mean = self._means.get((kind, None))
        return 0 if mean is None else mean.n_seen

    def straggles(self, kind: Hashable, seconds: float, n_closures: int = 1) -> bool:
        """Whether closures of a kind that have run for this long take much longer than others."""
        each = self.expected(kind)
        if each is None:
            return False
        return seconds > max(STRAGGLES_AFTER_S, STRAGGLES_BY * each * n_closures)

    def _note(self, key: tuple[Hashable, WorkerIndex | None], each: float, n_closures: int) -> None:
        mean = self._means.get(key)
        if mean is None:
            self._means[key] = _Mean(each, n_closures)
            return
        # The first run of a program registers and compiles it, so it counts for nothing later.
        weight = 1.0 if mean.n_seen == 1 else _WEIGHT
        mean.seconds += weight * (each - mean.seconds)
        mean.n_seen += n_closures
