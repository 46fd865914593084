"""Local search for the placement with the least step time in stages, as the runtime runs it.

Annealing over colocation classes. The search over single operations (`improved`) finds placements
that overlap what stages cannot, so it rarely ends at the best of these. Most moves take a class and
some of its neighbors to one device, because moving one operation between two devices adds stages.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from jflow.compiler.schedule.problem import (
    Problem,
    capacity_of,
    class_members,
    classes_of,
    room_of,
)
from jflow.compiler.schedule.schedule import Schedule
from jflow.compiler.schedule.stages import StageTimes

_SIZES = (1, 1, 2, 4, 8, 16, 32)
"""How many classes a move takes at most."""

_HOT = 0.03
"""The first temperature, as a share of the time of the step."""


def improved_in_stages(
    problem: Problem, schedule: Schedule, *, moves: int, seed: int = 0
) -> Schedule:
    """Searches for a placement that takes less in stages; contention for ports is ignored.

    Args:
      problem: what was scheduled.
      schedule: where the search begins. Its order is kept.
      moves: how many changes to try.
      seed: of the choices.
    """
    search = _Search(problem, schedule.devices, random.Random(seed))
    for number in range(moves if search.free else 0):
        search.move(1 - number / moves)
    return Schedule(search.best, schedule.order)


class _Search:
    def __init__(self, problem: Problem, devices: Sequence[int], rng: random.Random) -> None:
        self._rng = rng
        self._times = StageTimes(problem)
        classes, every = classes_of(problem), tuple(range(len(problem.devices)))
        self._members = class_members(problem)
        restricted = problem.constraints.allowed
        self._allowed = {number: restricted.get(number, every) for number in self._members}
        self.free = [number for number, allowed in self._allowed.items() if len(allowed) > 1]
        self._neighbors: dict[int, dict[int, None]] = {number: {} for number in self._members}
        for edge in problem.graph.edges:
            for consumer in edge.consumers:
                one, other = classes[edge.producer], classes[consumer]
                if one != other:
                    self._neighbors[one][other] = self._neighbors[other][one] = None
        self._problem = problem
        self._is_limited = any(map(math.isfinite, capacity_of(problem)))
        self._devices = [*devices]
        self._now = self._least = self._times.seconds(devices)
        self._heat = _HOT * self._now
        self.best = tuple(devices)

    def move(self, temperature: float) -> None:
        """Tries one random move; `temperature` goes from 1 to 0."""
        first = self._rng.choice(self.free)
        here = self._devices[self._members[first][0]]
        target = self._rng.choice([each for each in self._allowed[first] if each != here])
        moved = [*self._devices]
        for number in self._together(first, self._rng.choice(_SIZES)):
            if target in self._allowed[number]:
                for i in self._members[number]:
                    moved[i] = target
        if self._is_limited and min(room_of(self._problem, moved)) < 0:
            return
        seconds = self._times.seconds(moved)
        gain = self._now - seconds
        heat = self._heat * temperature
        if gain >= 0 or (heat > 0 and self._rng.random() < math.exp(gain / heat)):
            self._devices, self._now = moved, seconds
            if seconds < self._least:
                self._least, self.best = seconds, tuple(moved)

    def _together(self, first: int, size: int) -> dict[int, None]:
        """Returns a class and up to `size` - 1 others that are connected to it."""
        members, around = {first: None}, [*self._neighbors[first]]
        while around and len(members) < size:
            chosen = around.pop(self._rng.randrange(len(around)))
            if chosen not in members:
                members[chosen] = None
                around += self._neighbors[chosen]
        return members
