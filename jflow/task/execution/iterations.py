"""`Iterations`: which stages of which iterations of a loop may run on a device.

A state machine without I/O. Each iteration runs the stages of the loop's body; the pair of a stage
and an iteration is an *instance*. An instance is ready when those that it needs have ended: stages
of its own iteration, stages of the iteration before that make the carries it reads, and its
arrivals, the values that other devices send it. Of the ready instances the one of the latest stage
is first, then the one of the oldest iteration: what ends an iteration comes before what begins one.

At most `window` iterations are under way. Iterations begin in order, and one begins only when all
up to that `window` before it have ended, so a device holds the values of so many iterations at
most. There is no deadlock for any window: the instances of an iteration need only each other and
earlier iterations, and the oldest one that has not ended is always under way.

A loop with a predicate begins iterations before the predicate is there; `stop` drops those that are
not run.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

Instance = tuple[int, int]
"""A stage, and an iteration."""


@dataclass(frozen=True)
class BodyOrder:
    """What the stages of the body of a loop need on one device.

    Attributes:
      after: for each stage, the stages of the same iteration that must end before.
      after_previous: likewise, stages of the iteration before.
      has_arrivals: for each stage, whether other devices send it values.
    """

    after: Sequence[Sequence[int]]
    after_previous: Sequence[Sequence[int]]
    has_arrivals: Sequence[bool]


@dataclass
class _Iteration:
    """An iteration under way: how much each stage still needs, and the stages that have ended."""

    missing: list[int]
    ended: set[int] = field(default_factory=set)


class Iterations:
    """The iterations of a loop on a device.

    Args:
      order: the order of the stages.
      trips: the number of iterations, or the largest.
      window: how many may be under way.

    Attributes:
      n_begun: the number of iterations that have begun.
      n_ended: the number of those that have ended, without gaps.
    """

    def __init__(self, order: BodyOrder, trips: int, window: int) -> None:
        self._order = order
        self._trips = trips
        self._window = window
        self.n_begun = 0
        self.n_ended = 0
        self._under_way: dict[int, _Iteration] = {}
        self._ready: list[Instance] = []
        n_stages = len(order.after)
        self._followers: list[list[int]] = [[] for _ in range(n_stages)]
        self._next_followers: list[list[int]] = [[] for _ in range(n_stages)]
        for stage in range(n_stages):
            for needed in order.after[stage]:
                self._followers[needed].append(stage)
            for needed in order.after_previous[stage]:
                self._next_followers[needed].append(stage)

    @property
    def is_over(self) -> bool:
        """Whether all iterations have ended."""
        return self.n_ended == self._trips

    @property
    def may_begin(self) -> bool:
        """Whether another iteration may begin."""
        return self.n_begun < min(self._trips, self.n_ended + self._window)

    def begin(self) -> int:
        """Begins the next iteration, which must be allowed; returns its number."""
        number, order = self.n_begun, self._order
        previous = self._under_way.get(number - 1)
        missing = [len(needed) for needed in order.after]
        for stage, has_arrivals in enumerate(order.has_arrivals):
            missing[stage] += has_arrivals
            if previous is not None:
                missing[stage] += sum(
                    needed not in previous.ended for needed in order.after_previous[stage]
                )
        self._under_way[number] = _Iteration(missing)
        self.n_begun += 1
        for stage, n_missing in enumerate(missing):
            if not n_missing:
                self._add_ready(stage, number)
        return number

    def arrive(self, stage: int, number: int) -> None:
        """Records that all values have arrived that other devices send an instance."""
        self._has_one_more(stage, number)

    def take(self) -> Instance | None:
        """Returns the first ready instance, which is running from now on; None if there is none."""
        if not self._ready:
            return None
        negated, number = heapq.heappop(self._ready)
        return -negated, number

    def end(self, stage: int, number: int) -> bool:
        """Records that an instance has ended; returns whether its iteration has."""
        iteration = self._under_way[number]
        iteration.ended.add(stage)
        for follower in self._followers[stage]:
            self._has_one_more(follower, number)
        if number + 1 in self._under_way:
            for follower in self._next_followers[stage]:
                self._has_one_more(follower, number + 1)
        if len(iteration.ended) < len(iteration.missing):
            return False
        while (oldest := self._under_way.get(self.n_ended)) is not None:
            if len(oldest.ended) < len(oldest.missing):
                break
            del self._under_way[self.n_ended]
            self.n_ended += 1
        return True

    def stop(self, number: int) -> None:
        """Records that the loop ends before an iteration, which must not have ended."""
        self._trips = number
        for later in [one for one in self._under_way if one >= number]:
            del self._under_way[later]
        self._ready = [instance for instance in self._ready if instance[1] < number]
        heapq.heapify(self._ready)
        self.n_begun = min(self.n_begun, number)

    def _has_one_more(self, stage: int, number: int) -> None:
        missing = self._under_way[number].missing
        missing[stage] -= 1
        if not missing[stage]:
            self._add_ready(stage, number)

    def _add_ready(self, stage: int, number: int) -> None:
        heapq.heappush(self._ready, (-stage, number))
