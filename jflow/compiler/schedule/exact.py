"""Optimal schedules of small graphs, by mixed-integer linear programming (HiGHS in SciPy).

The network is the one without contention, whose times are linear: a result arrives a fixed time
after it is made. An optimum under it is also a lower bound under the one-port model.

The program: for each operation one device (binary `on`) and a start; an operation starts after each
input has arrived, where the time of the transfer counts if producer and consumer are on that pair
of devices; of two operations on one device that do not depend on each other, one comes first
(binary).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from jflow.compiler.schedule.problem import UNLIMITED, Problem, capacity_of, classes_of, resident_of
from jflow.compiler.schedule.schedule import Schedule
from jflow.compiler.schedule.simulate import simulate
from jflow.errors import ResourceExhaustedError

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

TOLERANCE = 1e-6
_INFEASIBLE, _SOLVE_ERROR = 2, 4  # statuses of scipy.optimize.milp

_ATTEMPTS = ((1 + 1e-9, True), (1.01, False), (1.3, True), (2.0, False))
"""Factors of the limit of all times, and whether to simplify the program first.

Now and then HiGHS checks its own optimum and finds it infeasible by a few 1e-6. With other limits
it takes another way.
"""


@dataclass(frozen=True)
class Optimum:
    """The best schedule that the solver found, and its lower bound.

    Attributes:
      schedule: the schedule.
      makespan: what it takes without contention, in seconds.
      bound: what every schedule takes at least, in seconds.
    """

    schedule: Schedule
    makespan: float
    bound: float

    @property
    def is_proven(self) -> bool:
        """Whether the schedule is proven optimal, up to rounding."""
        return self.makespan <= self.bound * (1 + 1e-4) + TOLERANCE


def optimal(
    problem: Problem,
    *,
    upper: Schedule | None = None,
    seconds: float = 60.0,
    nodes: int | None = None,
) -> Optimum:
    """Computes the optimal schedule without contention of transfers.

    Args:
      problem: at most about 20 operations; the network of its costs does not count.
      upper: a schedule that is known, which makes the search shorter.
      seconds: after which the best schedule so far is taken.
      nodes: of the search tree, after which likewise; unlike seconds it ends every run at the same
        schedule and bound.

    Raises:
      ResourceExhaustedError: if no placement holds the constraints, or none was found in time.
    """
    problem = problem._replace(costs=replace(problem.costs, network=UNLIMITED))
    program = _Program(problem)
    limit = simulate(problem, upper).makespan if upper else program.horizon
    for factor, presolve in _ATTEMPTS:
        solution = program.solve(limit * factor, seconds, nodes, presolve=presolve)
        if solution.status != _SOLVE_ERROR:
            break
    if solution.x is None:
        if upper is not None and solution.status != _INFEASIBLE:
            return Optimum(upper, limit, float(solution.mip_dual_bound or 0.0))
        reason = "exists" if solution.status == _INFEASIBLE else f"was found in {seconds:g} s"
        raise ResourceExhaustedError(f"no placement that holds the constraints {reason}")
    schedule = program.schedule(solution.x)
    makespan = simulate(problem, schedule).makespan
    if upper is not None and limit < makespan:
        schedule, makespan = upper, limit
    return Optimum(schedule, makespan, float(solution.mip_dual_bound))


class _Program:
    """The mixed-integer program: `on[op, device]`, `start[op]`, an order of each pair, `end`."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.n, self.p = len(problem.graph), len(problem.devices)
        self.pairs = [*self._unordered()]
        self.horizon = self._horizon()
        shared: dict[int, list[int]] = {}
        for device, processor in enumerate(problem.costs.processor_of):
            shared.setdefault(processor, []).append(device)
        self.shared = [*shared.values()]
        self.first_start = self.n * self.p
        self.first_pair = self.first_start + self.n
        self.end = self.first_pair + len(self.pairs)
        self._rows: list[tuple[dict[int, float], float]]  # sum of coefficients >= value

    def solve(
        self, limit: float, seconds: float, nodes: int | None, *, presolve: bool
    ) -> OptimizeResult:
        # Few programs use them, and every one that imports jflow would wait for their import.
        import scipy.optimize  # noqa: PLC0415
        import scipy.sparse  # noqa: PLC0415

        n_variables = self.end + 1
        self._rows = []
        for add in (self._devices, self._precedence, self._ordering, self._memory):
            add()
        entries = [
            (i, j, value) for i, (row, _) in enumerate(self._rows) for j, value in row.items()
        ]
        rows, columns, values = zip(*entries, strict=True)
        matrix = scipy.sparse.csr_array((values, (rows, columns)), (len(self._rows), n_variables))
        least = np.array([value for _, value in self._rows])
        upper = np.ones(n_variables)
        upper[self.first_start : self.first_pair] = limit
        upper[self.end] = limit
        for operation, number in enumerate(classes_of(self.problem)):
            allowed = self.problem.constraints.allowed.get(number)
            if allowed is not None:
                for device in range(self.p):
                    upper[self._on(operation, device)] = device in allowed
        integral = np.ones(n_variables)
        integral[self.first_start : self.first_pair] = 0
        objective = np.zeros(n_variables)
        objective[self.end], integral[self.end] = 1, 0
        options = {"time_limit": seconds, "mip_rel_gap": 1e-6, "presolve": presolve}
        if nodes is not None:
            options["node_limit"] = nodes
        return scipy.optimize.milp(
            objective,
            integrality=integral,
            bounds=scipy.optimize.Bounds(np.zeros(n_variables), upper),
            constraints=scipy.optimize.LinearConstraint(matrix, least, np.inf),
            options=options,
        )

    def schedule(self, x: np.ndarray) -> Schedule:
        """Converts a solution of the program to a schedule."""
        on = x[: self.first_start].reshape(self.n, self.p)
        start = x[self.first_start : self.first_pair]
        position = {operation: i for i, operation in enumerate(self.problem.graph.order)}
        devices = tuple(int(device) for device in on.argmax(axis=1))
        # Starts are exact up to rounding, so operations without duration need the order as well.
        rounded = np.round(start / max(self.horizon, 1e-300), 9)
        order = sorted(position, key=lambda i: (rounded[i], position[i]))
        return Schedule(devices, tuple(_repaired(order, self.problem)))

    def _on(self, operation: int, device: int) -> int:
        return operation * self.p + device

    def _require(self, coefficients: dict[int, float], least: float) -> None:
        self._rows.append((coefficients, least))

    def _duration(self, operation: int, sign: float = 1.0) -> dict[int, float]:
        seconds = self.problem.costs.seconds[operation]
        return {self._on(operation, d): sign * float(seconds[d]) for d in range(self.p)}

    def _devices(self) -> None:
        first: dict[int, int] = {}
        for operation, number in enumerate(classes_of(self.problem)):
            every = {self._on(operation, d): 1.0 for d in range(self.p)}
            self._require(every, 1.0)
            self._require(dict.fromkeys(every, -1.0), -1.0)
            leader = first.setdefault(number, operation)
            for device in range(self.p) if leader != operation else ():
                same = {self._on(operation, device): 1.0, self._on(leader, device): -1.0}
                self._require(same, 0.0)
            finish = self._duration(operation, -1.0)
            self._require(finish | {self.end: 1.0, self.first_start + operation: -1.0}, 0.0)

    def _precedence(self) -> None:
        for edge in self.problem.graph.edges:
            for consumer in edge.consumers:
                base = self._duration(edge.producer, -1.0)
                base |= {
                    self.first_start + consumer: 1.0,
                    self.first_start + edge.producer: -1.0,
                }
                self._require(base, 0.0)
                for source in range(self.p):
                    self._require(
                        *self._transfer_constraint(
                            edge.producer, consumer, edge.n_bytes, source, base
                        )
                    )

    def _transfer_constraint(
        self, producer: int, consumer: int, n_bytes: float, source: int, base: dict[int, float]
    ) -> tuple[dict[int, float], float]:
        """Returns a constraint: the consumer waits for the transfer if its producer is on `source`.

        start[c] >= finish[p] + sum over t of sent(s, t) on[c, t] - largest(s) (1 - on[p, s])
        """
        sent = [self.problem.costs.transfer(n_bytes, source, t) for t in range(self.p)]
        largest = max(sent)
        row = dict(base)
        for target in range(self.p):
            column = self._on(consumer, target)
            row[column] = row.get(column, 0.0) - sent[target]
        column = self._on(producer, source)
        row[column] = row.get(column, 0.0) - largest
        return row, -largest

    def _ordering(self) -> None:
        for number, (one, other) in enumerate(self.pairs):
            is_first = self.first_pair + number
            for devices in self.shared:
                both = {
                    self._on(operation, device): -self.horizon
                    for operation in (one, other)
                    for device in devices
                }
                for before, after, sign in ((one, other, -1.0), (other, one, 1.0)):
                    row = {
                        **both,
                        self.first_start + after: 1.0,
                        self.first_start + before: -1.0,
                        is_first: sign * self.horizon,
                    }
                    for device in devices:
                        seconds = float(self.problem.costs.seconds[before, device])
                        row[self._on(before, device)] -= seconds
                    least = -3.0 if sign < 0 else -2.0
                    self._require(row, least * self.horizon)

    def _memory(self) -> None:
        resident = resident_of(self.problem)
        for device, capacity in enumerate(capacity_of(self.problem)):
            if np.isfinite(capacity):
                row = {self._on(i, device): -resident[i] for i in range(self.n) if resident[i]}
                self._require(row, -capacity)

    def _unordered(self) -> Iterator[tuple[int, int]]:
        """Yields pairs of operations that may run in either order."""
        graph = self.problem.graph
        after: list[set[int]] = [set() for _ in range(self.n)]
        for operation in reversed(graph.order):
            for successor in graph.successors[operation]:
                after[operation] |= {successor} | after[successor]
        for one, other in combinations(range(self.n), 2):
            if one not in after[other] and other not in after[one]:
                yield one, other

    def _horizon(self) -> float:
        """Returns an upper bound on the makespan: all work and all transfers in sequence."""
        costs = self.problem.costs
        slowest = float(costs.latency.max()), float(costs.byte_seconds.max())
        sent = sum(
            (slowest[0] + edge.n_bytes * slowest[1]) * len(edge.consumers)
            for edge in self.problem.graph.edges
        )
        return float(costs.seconds.max(axis=1).sum()) + sent


def _repaired(order: list[int], problem: Problem) -> list[int]:
    """Returns a topological order that differs as little as possible from the given one."""
    done: dict[int, None] = {}

    def visit(operation: int) -> None:
        for before in problem.graph.predecessors[operation]:
            if before not in done:
                visit(before)
        done[operation] = None

    for operation in order:
        if operation not in done:
            visit(operation)
    return [*done]
