"""The search in stages: it keeps constraints, and finds what the search by operations does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jflow.compiler.schedule import Constraints, Problem, graph_of, predicted_seconds, scheduled
from jflow.compiler.schedule.problem import capacity_of
from jflow.compiler.schedule.schedule import check
from jflow.compiler.schedule.strategies import STRATEGIES, choose
from jflow.compiler.schedule.strategies.stage_search import improved_in_stages
from jflow.lab.families import random_problem


def in_stages(problem: Problem, overhead: float = 0.0) -> Problem:
    off = 1.0 - np.eye(len(problem.devices))
    costs = replace(
        problem.costs,
        latency=problem.costs.latency + 2 * overhead * off,
        overhead=overhead * off,
        processor_share=0.8 * off,
        in_stages=True,
    )
    return problem._replace(costs=costs)


@pytest.mark.parametrize("family", ["layered", "fork_join", "wavefront"])
@pytest.mark.parametrize("start", ["single", "heft", "random"])
def test_a_search_in_stages_never_ends_with_a_slower_step(family, start) -> None:
    problem = in_stages(random_problem(family, 30, 3, ccr=0.5))
    begun = scheduled(problem, STRATEGIES[start])
    found = improved_in_stages(problem, begun, moves=300)
    check(problem, found, "search")
    assert predicted_seconds(problem, found) <= predicted_seconds(problem, begun) * 1.05
    assert found.order == begun.order


def test_a_search_in_stages_keeps_classes_places_and_memory() -> None:
    problem = in_stages(random_problem("layered", 30, 3, ccr=0.1))
    classes = tuple(i // 2 for i in range(30))
    allowed = {0: (1,), 1: (0, 2)}
    room = Constraints(classes, allowed, resident=(1.0,) * 30, capacity=(14.0, 12.0, 8.0))
    limited = problem._replace(constraints=room).checked()
    begun = scheduled(limited, STRATEGIES["etf_c"])
    found = improved_in_stages(limited, begun, moves=500)
    check(limited, found, "search")  # raises if one of them is broken
    assert capacity_of(limited) == (14.0, 12.0, 8.0)
    assert found.devices != begun.devices


def test_where_nothing_can_move_nothing_does() -> None:
    problem = in_stages(random_problem("layered", 10, 2))
    pinned = Constraints(tuple(range(10)), {i: (i % 2,) for i in range(10)})
    schedule = scheduled(problem._replace(constraints=pinned), STRATEGIES["single"])
    problem = problem._replace(constraints=pinned)
    assert improved_in_stages(problem, schedule, moves=10) == schedule


def test_auto_divides_a_step_where_its_stages_pay() -> None:
    """Two chains that meet at both ends."""
    edges = [(0, 1, 0.0), (0, 5, 0.0), *((i, i + 1, 0.0) for i in (1, 2, 3, 5, 6, 7))]
    edges += [(4, 9, 0.0), (8, 9, 0.0)]
    graph = graph_of(range(10), edges)
    drawn = random_problem("layered", 10, 2)
    costs = replace(drawn.costs, seconds=np.full((10, 2), 1.0), latency=0.2 * (1 - np.eye(2)))
    problem = in_stages(Problem(graph, drawn.devices, costs, Constraints()), 0.05)
    chosen = choose(problem)
    apart = [chosen.schedule.devices[i] for i in (1, 2, 3, 4)]
    assert len({*apart}) == 1
    assert chosen.predicted[chosen.strategy] < 0.75 * chosen.predicted["single"]


@pytest.mark.parametrize("kind", ["messages", "tasks"])
@pytest.mark.parametrize("family", ["layered", "fork_join"])
def test_what_is_chosen_is_chosen_by_the_time_of_its_step_not_of_its_operations(
    family, kind
) -> None:
    for seed in range(8):
        problem = random_problem(family, 16, 3, ccr=0.3, seed=seed)
        changes = {"overhead": 0.2 * (1.0 - np.eye(3)), "latency": 0.4 * (1.0 - np.eye(3))}
        if kind == "tasks":
            changes = {"task_seconds": 3.0, "tasks": (0, 1, 2)}
        problem = problem._replace(costs=replace(problem.costs, **changes))
        chosen = choose(problem, [STRATEGIES["heft"], STRATEGIES["etf_c"]], moves=0, exact=False)
        alone = predicted_seconds(problem, scheduled(problem, STRATEGIES["single"]))
        found = predicted_seconds(problem, chosen.schedule)
        assert found <= alone
        assert chosen.predicted[chosen.strategy] == found
