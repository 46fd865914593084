"""Proves optima without contention by CP-SAT (OR-tools), in an environment of its own.

OR-tools holds protobuf back, so it is no dependency; see docs/decisions/placement.md#0021.
"""

from __future__ import annotations

from typing import Any

import ortools
from ortools.sat.python import cp_model

from jflow.compiler.schedule import Schedule, simulate
from jflow.compiler.schedule.strategies import choose
from jflow.lab.optima import KnownOptimum, OptimumCase, digest_of

SOLVER = f"CP-SAT {ortools.__version__}"
_UNITS = 2_000_000
"""Integer units in the makespan that is known; each time is rounded down, so bounds hold."""


def prove(case: OptimumCase, *, seconds: float = 60.0) -> KnownOptimum:
    """The optimum of a case without contention, memory limits and colocation."""
    problem = case.problem()
    upper = choose(problem, margin=0.0, moves=2_000, exact=False).schedule
    limit = simulate(problem, upper).makespan
    unit = limit / _UNITS
    model, variables = _model(problem, unit)
    start, on, end = variables
    for i, device in enumerate(upper.devices):
        for d, literal in enumerate(on[i]):
            model.add_hint(literal, d == device)
    model.minimize(end)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.symmetry_level = 2
    status = solver.solve(model)
    makespan = limit
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        devices = tuple(
            next(d for d, literal in enumerate(row) if solver.value(literal)) for row in on
        )
        position = {i: at for at, i in enumerate(problem.graph.order)}
        order = sorted(position, key=lambda i: (solver.value(start[i]), position[i]))
        makespan = min(makespan, simulate(problem, Schedule(devices, tuple(order))).makespan)
    bound = min(solver.best_objective_bound * unit, makespan)
    return KnownOptimum(case, digest_of(problem), makespan, bound, SOLVER)


def _model(problem: Any, unit: float) -> tuple[Any, Any]:
    model = cp_model.CpModel()
    graph, costs = problem.graph, problem.costs
    n, p = costs.seconds.shape
    start = [model.new_int_var(0, _UNITS, "") for _ in range(n)]
    on = [[model.new_bool_var("") for _ in range(p)] for _ in range(n)]
    end = model.new_int_var(0, _UNITS, "")
    ticks = (costs.seconds / unit).astype(int)
    for d in range(p):
        intervals = [
            model.new_optional_fixed_size_interval_var(start[i], int(ticks[i, d]), on[i][d], "")
            for i in range(n)
        ]
        model.add_no_overlap(intervals)
    for i in range(n):
        model.add_exactly_one(on[i])
        finish = start[i] + sum(int(ticks[i, d]) * on[i][d] for d in range(p))
        model.add(finish <= end)
        for edge in (graph.edges[number] for number in graph.outputs[i]):
            for consumer in edge.consumers:
                model.add(start[consumer] >= finish)
                for s in range(p):
                    for t in range(p):
                        sent = int(costs.transfer(edge.n_bytes, s, t) / unit)
                        if sent:
                            both = [on[i][s], on[consumer][t]]
                            model.add(start[consumer] >= finish + sent).only_enforce_if(both)
    return model, (start, on, end)
