"""Simulated steps in the form of traces."""

from __future__ import annotations

import numpy as np

from jflow.compiler.schedule import (
    Constraints,
    Costs,
    Problem,
    Schedule,
    graph_of,
    scheduled,
    simulate,
    trace_of,
)
from jflow.compiler.schedule.strategies import STRATEGIES
from jflow.lab.families import FAMILIES, random_problem
from tests.plan.trace.chrome import checked_events, slices_of


def test_the_trace_has_the_operations_where_and_when_they_were_simulated() -> None:
    off = 1.0 - np.eye(2)
    costs = Costs(np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]), off / 2, off)
    problem = Problem(graph_of("xyz", [(0, 1, 2), (0, 2, 4)]), "ab", costs, Constraints())
    timeline = simulate(problem, Schedule((0, 1, 0), (0, 2, 1)))
    trace = trace_of(problem, timeline, "predicted")
    assert trace.title == "predicted"
    assert trace.seconds == timeline.makespan == 5.5
    assert [(s.name, s.kind, s.device, s.start, s.finish) for s in trace.spans] == [
        ("x", "operation", "a", 0.0, 1.0),
        ("z", "operation", "a", 1.0, 4.0),
        ("y", "operation", "b", 3.5, 5.5),
    ]
    (sent,) = trace.transfers
    assert (sent.name, sent.source, sent.target, sent.n_bytes) == ("x", "a", "b", 2)
    assert (sent.start, sent.finish) == (1.0, 3.5)


def test_every_operation_and_transfer_of_a_random_problem_is_in_the_chrome_form() -> None:
    for family in FAMILIES:
        problem = random_problem(family, 40, 4, seed=3)
        timeline = simulate(problem, scheduled(problem, STRATEGIES["heft"]))
        trace = trace_of(problem, timeline)
        events = checked_events(trace.to_chrome())
        assert len(slices_of(events, "operation")) == len(problem.graph)
        assert len(slices_of(events, "send")) == len(timeline.transfers)
        assert trace.seconds == timeline.makespan
