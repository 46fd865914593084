"""The exact solver against brute force, which shares nothing with it but the simulator."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jflow.compiler.schedule import (
    ONE_PORT,
    UNLIMITED,
    Constraints,
    Problem,
    Schedule,
    graph_of,
    scheduled,
    simulate,
)
from jflow.compiler.schedule.exact import optimal
from jflow.compiler.schedule.exhaustive import exhaustive_optimum
from jflow.compiler.schedule.schedule import check
from jflow.compiler.schedule.strategies import STRATEGIES
from jflow.errors import ResourceExhaustedError
from jflow.lab.families import FAMILIES, random_problem
from tests.drawn import examples


def brute_force(problem: Problem) -> float:
    """The least makespan over all devices and all topological orders."""
    n, p = len(problem.graph), len(problem.devices)
    least = float("inf")
    before = problem.graph.predecessors
    orders = [
        order
        for order in permutations(range(n))
        if all(order.index(b) < i for i, op in enumerate(order) for b in before[op])
    ]
    for devices in product(range(p), repeat=n):
        for order in orders:
            candidate = Schedule(devices, order)
            try:
                check(problem, candidate, "brute force")
            except Exception:
                break
            least = min(least, simulate(problem, candidate).makespan)
    return least


@settings(max_examples=examples(6))
@example("wavefront", 4, 1.0, 1.0, 14)  # HiGHS refuses its own optimum under the first two limits
@given(
    st.sampled_from(["layered", "fork_join", "wavefront", "series_parallel"]),
    st.integers(3, 5),
    st.sampled_from([0.1, 1.0, 5.0]),
    st.sampled_from([1.0, 3.0]),
    st.integers(0, 100),
)
def test_the_optimum_is_that_of_brute_force(family, n, ccr, heterogeneity, seed) -> None:
    problem = random_problem(
        family, n, 2, ccr=ccr, heterogeneity=heterogeneity, network=UNLIMITED, seed=seed
    )
    if len(problem.graph) > 6:
        return
    found = optimal(problem)
    assert found.is_proven
    assert found.makespan == pytest.approx(brute_force(problem), rel=1e-4)


@settings(max_examples=examples(6))
@given(
    st.sampled_from(["layered", "fork_join", "wavefront", "series_parallel"]),
    st.integers(3, 5),
    st.sampled_from([0.1, 1.0, 5.0]),
    st.sampled_from([1.0, 3.0]),
    st.sampled_from([None, 1.3]),
    st.integers(0, 100),
)
def test_exhaustive_search_finds_the_optimum_of_brute_force_with_one_port(
    family, n, ccr, heterogeneity, memory, seed
) -> None:
    options = {"ccr": ccr, "heterogeneity": heterogeneity, "memory": memory, "seed": seed}
    problem = random_problem(family, n, 2, network=ONE_PORT, **options)
    if len(problem.graph) > 5:
        return
    expected = brute_force(problem)
    if expected == float("inf"):
        with pytest.raises(ResourceExhaustedError, match="constraints exists"):
            exhaustive_optimum(problem)
        return
    found = exhaustive_optimum(problem)
    assert found.is_proven
    check(problem, found.schedule, "exhaustive")
    assert found.makespan == simulate(problem, found.schedule).makespan
    assert found.makespan == pytest.approx(expected)


def test_a_limited_search_proves_nothing_and_is_the_same_each_time() -> None:
    problem = random_problem("layered", 10, 3, network=ONE_PORT, seed=1)
    best = exhaustive_optimum(problem)
    upper = scheduled(problem, STRATEGIES["single"])
    limited = exhaustive_optimum(problem, upper, nodes=200)
    assert best.is_proven
    assert not limited.is_proven
    assert limited.makespan >= best.makespan
    assert exhaustive_optimum(problem, upper, nodes=200) == limited
    with pytest.raises(ResourceExhaustedError, match="was found"):
        exhaustive_optimum(problem, nodes=5)


def test_the_solver_ends_at_a_number_of_nodes() -> None:
    problem = random_problem("layered", 9, 3, ccr=5.0, network=UNLIMITED, seed=1)
    upper = scheduled(problem, STRATEGIES["heft"])
    limited = optimal(problem, upper=upper, nodes=1)
    assert limited.bound < limited.makespan <= simulate(problem, upper).makespan
    assert limited == optimal(problem, upper=upper, nodes=1)


def test_devices_with_one_processor_are_no_faster_than_one() -> None:
    drawn = random_problem("layered", 4, 3, network=UNLIMITED, seed=4)
    problem = drawn._replace(graph=graph_of(range(4), []))  # nothing waits for anything
    shared = problem._replace(costs=replace(problem.costs, processors=(0, 0, 1)))
    found = optimal(shared)
    assert found.makespan == pytest.approx(brute_force(shared), rel=1e-4)
    assert found.makespan > optimal(problem).makespan


def test_constraints_hold_in_an_optimum() -> None:
    problem = random_problem("layered", 5, 2, network=UNLIMITED, memory=1.6, seed=3)
    constraints = replace(
        problem.constraints, classes=(0, 1, 2, 3, 0), allowed={1: (1,)}, capacity=()
    )
    constrained = problem._replace(constraints=constraints)
    found = optimal(constrained)
    check(constrained, found.schedule, "optimal")
    assert found.makespan == pytest.approx(brute_force(constrained), rel=1e-4)
    assert found.makespan >= optimal(problem._replace(constraints=Constraints())).makespan - 1e-6


def test_a_plan_is_found_whenever_memory_lets_one_exist() -> None:
    problem = random_problem("layered", 6, 2, network=UNLIMITED, memory=1.05, seed=1)
    try:
        expected = brute_force(problem)
    except ValueError:
        expected = float("inf")
    if expected == float("inf"):
        with pytest.raises(ResourceExhaustedError):
            optimal(problem)
    else:
        assert optimal(problem).makespan == pytest.approx(expected, rel=1e-4)


def test_too_little_memory_is_refused() -> None:
    problem = random_problem("layered", 6, 2, network=UNLIMITED, memory=0.9, seed=1)
    with pytest.raises(ResourceExhaustedError, match="no placement that holds the constraints"):
        optimal(problem)


@pytest.mark.parametrize("family", [*FAMILIES])
def test_no_strategy_is_below_a_proven_optimum(family) -> None:
    problem = random_problem(family, 8, 3, ccr=1.0, network=UNLIMITED, seed=2)
    best = optimal(problem)
    assert best.is_proven
    for place in STRATEGIES.values():
        assert simulate(problem, scheduled(problem, place)).makespan >= best.makespan * (1 - 1e-4)
