"""Optimal schedules of tiny graphs under any network model, by exhaustive search.

Depth first, first over placements in topological order, then for each placement over the orders.
A branch ends where a bound reaches the best makespan so far. The bounds take transfers as
if nothing else were sent, so they hold under the one-port model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from jflow.compiler.schedule.compact import compact
from jflow.compiler.schedule.exact import Optimum
from jflow.compiler.schedule.problem import UNLIMITED, Problem, capacity_of, classes_of, resident_of
from jflow.compiler.schedule.replay import begin_run, new_plan, new_run, new_saved, replay
from jflow.compiler.schedule.schedule import Schedule
from jflow.compiler.schedule.simulate import simulate
from jflow.errors import ResourceExhaustedError

_ROUNDING = 1 - 1e-12


def exhaustive_optimum(
    problem: Problem, upper: Schedule | None = None, *, nodes: float = math.inf
) -> Optimum:
    """Finds the optimal schedule of at most about 10 operations.

    Optimal among what `simulate` can run: a device runs its operations in a planned order, and
    ports serve transfers in the order in which they are requested.

    Args:
      problem: under its own network model.
      upper: a schedule that is known, which makes the search shorter.
      nodes: of the search tree, after which the best schedule so far is taken and the bound is 0;
        10 operations take up to 100,000, or a second.

    Raises:
      ResourceExhaustedError: if no placement holds the constraints.
    """
    search = _Search(problem, upper, nodes)
    for devices in search.placements():
        search.try_orders(devices)
    if search.best is None:
        reason = "exists" if search.nodes > 0 else "was found"
        raise ResourceExhaustedError(f"no placement that holds the constraints {reason}")
    return Optimum(search.best, search.makespan, search.makespan if search.nodes > 0 else 0.0)


class _Search:
    def __init__(self, problem: Problem, upper: Schedule | None, nodes: float) -> None:
        self.nodes = nodes  # that are left
        self.problem, self.best = problem, upper
        self.makespan = simulate(problem, upper).makespan if upper else math.inf
        self.graph, self.costs = problem.graph, problem.costs
        self.n, self.p = len(problem.graph), len(problem.devices)
        self.seconds = self.costs.seconds.tolist()
        self.least = [min(row) for row in self.seconds]
        self.flat = compact(problem)
        self.run = new_run(self.flat, arrays=False)
        self.saved = new_saved(self.flat, arrays=False, least_interval=1 << 60)
        self.are_equal = _devices_are_equal(problem)
        self.siblings = _siblings(problem)

    def placements(self) -> Iterator[list[int]]:
        """Yields the feasible placements whose lower bound is below the best makespan so far."""
        devices = [-1] * self.n
        room = list(capacity_of(self.problem))
        yield from self._placements(0, devices, room, [0.0] * self.n, [0.0] * self.p)

    def _placements(
        self,
        at: int,
        devices: list[int],
        room: list[float],
        finish: list[float],
        load: list[float],
    ) -> Iterator[list[int]]:
        if at == self.n:
            yield devices
            return
        operation = self.graph.order[at]
        used = 1 + max((devices[i] for i in self.graph.order[:at]), default=-1)
        for device in range(min(self.p, used + 1) if self.are_equal else self.p):
            if not self._may_go(operation, device, devices, room):
                continue
            ready = max(
                (
                    finish[edge.producer]
                    + self.costs.transfer(edge.n_bytes, devices[edge.producer], device)
                    for edge in (self.graph.edges[e] for e in self.graph.inputs[operation])
                ),
                default=0.0,
            )
            done = finish[operation] = ready + self.seconds[operation][device]
            processor = self.costs.processor_of[device]
            load[processor] += self.seconds[operation][device]
            bound = max(done + self.flat.tail[operation], load[processor])
            self.nodes -= 1
            if bound < self.makespan * _ROUNDING and self.nodes > 0:
                devices[operation] = device
                room[device] -= resident_of(self.problem)[operation]
                yield from self._placements(at + 1, devices, room, finish, load)
                room[device] += resident_of(self.problem)[operation]
                devices[operation] = -1
            load[processor] -= self.seconds[operation][device]

    def _may_go(self, operation: int, device: int, devices: list[int], room: list[float]) -> bool:
        classes = classes_of(self.problem)
        allowed = self.problem.constraints.allowed.get(classes[operation])
        if allowed is not None and device not in allowed:
            return False
        if room[device] * (1 + 1e-9) < resident_of(self.problem)[operation]:
            return False
        return all(
            devices[i] in (-1, device) for i in range(self.n) if classes[i] == classes[operation]
        )

    def try_orders(self, devices: list[int]) -> None:
        """Simulates the orders of a placement whose bound is below the best makespan so far."""
        tails = self._tails(devices)
        missing = [len(before) for before in self.graph.predecessors]
        finish, free = [0.0] * self.n, [0.0] * self.costs.n_processors
        self._orders([], devices, tails, missing, finish, free)

    def _orders(
        self,
        order: list[int],
        devices: list[int],
        tails: list[float],
        missing: list[int],
        finish: list[float],
        free: list[float],
    ) -> None:
        if len(order) == self.n:
            self._simulate(Schedule(tuple(devices), tuple(order)))
            return
        for operation in range(self.n):
            if missing[operation] or operation in order:
                continue
            processor = self.costs.processor_of[devices[operation]]
            if order and self._commutes(order[-1], operation, devices):
                continue
            was = free[processor]
            start = max(was, self._ready(operation, devices, finish))
            done = start + self.seconds[operation][devices[operation]]
            self.nodes -= 1
            if done + tails[operation] >= self.makespan * _ROUNDING or self.nodes <= 0:
                continue
            free[processor] = finish[operation] = done
            for after in self.graph.successors[operation]:
                missing[after] -= 1
            order.append(operation)
            self._orders(order, devices, tails, missing, finish, free)
            order.pop()
            for after in self.graph.successors[operation]:
                missing[after] += 1
            free[processor] = was

    def _commutes(self, last: int, operation: int, devices: list[int]) -> bool:
        """Whether swapping the last two operations, which is tried as well, gives the same run."""
        processors = self.costs.processor_of
        return (
            operation < last
            and processors[devices[last]] != processors[devices[operation]]
            and last not in self.graph.predecessors[operation]
            and operation not in self.siblings[last]
        )

    def _ready(self, operation: int, devices: list[int], finish: list[float]) -> float:
        ready = 0.0
        for number in self.graph.inputs[operation]:
            edge = self.graph.edges[number]
            source = devices[edge.producer]
            sent = self.costs.transfer(edge.n_bytes, source, devices[operation])
            ready = max(ready, finish[edge.producer] + sent)
        return ready

    def _tails(self, devices: list[int]) -> list[float]:
        """Returns the longest path after each operation of a placement, in seconds."""
        tails = [0.0] * self.n
        for operation in reversed(self.graph.order):
            for number in self.graph.outputs[operation]:
                edge = self.graph.edges[number]
                for consumer in edge.consumers:
                    target = devices[consumer]
                    sent = self.costs.transfer(edge.n_bytes, devices[operation], target)
                    after = sent + self.seconds[consumer][target] + tails[consumer]
                    tails[operation] = max(tails[operation], after)
        return tails

    def _simulate(self, schedule: Schedule) -> None:
        plan = new_plan(self.flat, schedule, arrays=False)
        begin_run(self.flat, plan, self.run)
        makespan = replay(self.flat, plan, self.run, self.saved, 0, self.makespan)
        if makespan < self.makespan:
            self.best, self.makespan = schedule, makespan


def _devices_are_equal(problem: Problem) -> bool:
    """Whether all devices are interchangeable."""
    costs, constraints = problem.costs, problem.constraints
    off = ~np.eye(len(problem.devices), dtype=bool)
    return (
        not constraints.allowed
        and len(set(constraints.capacity)) <= 1
        and costs.n_processors == len(problem.devices)
        and bool((costs.seconds == costs.seconds[:, :1]).all())
        and all(len(np.unique(table[off])) <= 1 for table in (costs.latency, costs.byte_seconds))
    )


def _siblings(problem: Problem) -> list[set[int]]:
    """Returns the operations that share an input with each, if the order of sends can matter."""
    siblings: list[set[int]] = [set() for _ in range(len(problem.graph))]
    if problem.costs.network != UNLIMITED and problem.costs.half_duplex:
        # What a device receives delays what it sends, so the order of all operations can matter.
        return [{*range(len(problem.graph))} for _ in siblings]
    if problem.costs.network != UNLIMITED:
        for edge in problem.graph.edges:
            for consumer in edge.consumers:
                siblings[consumer].update(edge.consumers)
    return siblings
