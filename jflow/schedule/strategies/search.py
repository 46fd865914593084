"""Improves a schedule by simulated annealing on the simulator."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable

from jflow.schedule.problem import Problem, capacity_of, classes_of, resident_of
from jflow.schedule.schedule import Schedule
from jflow.schedule.simulate import simulate

_HOT, _COLD = 0.05, 0.001
"""Temperatures at the begin and the end, as shares of the first makespan."""


def improved(
    problem: Problem,
    schedule: Schedule,
    *,
    moves: int,
    seconds: float = math.inf,
    seed: int = 0,
    clock: Callable[[], float] = time.monotonic,
) -> Schedule:
    """The best schedule found from one by moving classes and operations (Kirkpatrick et al., 1983).

    A move puts one colocation class on another device that has room for it, or an operation earlier
    or later in the order, as far as its inputs and consumers let it.

    Args:
      problem: what is scheduled.
      schedule: where to start.
      moves: how many to try.
      seconds: after which to stop; without this limit equal arguments give equal schedules.
      seed: of the random numbers.
      clock: tells the time in seconds.
    """
    search = _Search(problem, schedule, random.Random(seed))
    end = clock() + seconds
    for number in range(moves):
        if number % 16 == 0 and clock() > end:
            break
        search.step(_HOT * (_COLD / _HOT) ** (number / moves))
    return search.best


class _Search:
    def __init__(self, problem: Problem, schedule: Schedule, rng: random.Random) -> None:
        self.problem, self.rng = problem, rng
        self.devices, self.order = [*schedule.devices], [*schedule.order]
        self.best = schedule
        self.scale = self.present = self.least = simulate(problem, schedule).makespan
        self.classes = classes_of(problem)
        self.members: dict[int, list[int]] = {}
        self.needed: dict[int, float] = {}
        self.room = list(capacity_of(problem))
        for operation, number in enumerate(self.classes):
            self.members.setdefault(number, []).append(operation)
            n_bytes = resident_of(problem)[operation]
            self.needed[number] = self.needed.get(number, 0.0) + n_bytes
            self.room[self.devices[operation]] -= n_bytes
        self.numbers = [*self.members]
        self.all = tuple(range(len(problem.devices)))

    def step(self, temperature: float) -> None:
        """Tries one move; keeps it if it is better, or with a chance that falls with the loss."""
        revert = self._move_class() if self.rng.random() < 0.6 else self._move_in_order()
        if revert is None:
            return
        candidate = Schedule(tuple(self.devices), tuple(self.order))
        found = simulate(self.problem, candidate).makespan
        loss = (found - self.present) / (self.scale or 1.0)
        if loss > 0 and self.rng.random() >= math.exp(-loss / temperature):
            revert()
            return
        self.present = found
        if found < self.least:
            self.least, self.best = found, candidate

    def _move_class(self) -> Callable[[], None] | None:
        number = self.rng.choice(self.numbers)
        old = self.devices[self.members[number][0]]
        allowed = self.problem.constraints.allowed.get(number, self.all)
        needed = self.needed[number]
        options = [each for each in allowed if each != old and self.room[each] >= needed]
        if not options:
            return None
        self._put(number, self.rng.choice(options))
        return lambda: self._put(number, old)

    def _put(self, number: int, device: int) -> None:
        old = self.devices[self.members[number][0]]
        self.room[old] += self.needed[number]
        self.room[device] -= self.needed[number]
        for operation in self.members[number]:
            self.devices[operation] = device

    def _move_in_order(self) -> Callable[[], None] | None:
        """Moves an operation within the positions that its predecessors and successors leave."""
        order, graph = self.order, self.problem.graph
        at = self.rng.randrange(len(order))
        operation = order[at]
        before, after = set(graph.predecessors[operation]), set(graph.successors[operation])
        low = next((i + 1 for i in range(at - 1, -1, -1) if order[i] in before), 0)
        high = next((i for i in range(at + 1, len(order)) if order[i] in after), len(order))
        to = self.rng.randrange(low, high)
        if to == at:
            return None
        order.insert(to, order.pop(at))
        return lambda: order.insert(at, order.pop(to))
