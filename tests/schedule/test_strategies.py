"""What holds for every strategy, and what a strategy of a user's is told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jflow.errors import InvalidArgumentError, ResourceExhaustedError
from jflow.lab.families import FAMILIES, random_problem
from jflow.schedule import (
    Constraints,
    Dependency,
    OperationGraph,
    Problem,
    Schedule,
    scheduled,
    simulate,
)
from jflow.schedule.schedule import check
from jflow.schedule.strategies import STRATEGIES, choose, coplaced

FAST = [name for name in STRATEGIES if name != "auto"]


@st.composite
def constrained(draw) -> Problem:
    """A problem with colocation classes, pins and memory limits that leave a lot of room."""
    n_devices = draw(st.integers(1, 4))
    problem = random_problem(
        draw(st.sampled_from([*FAMILIES])),
        draw(st.integers(2, 20)),
        n_devices,
        ccr=draw(st.sampled_from([0.1, 5.0])),
        heterogeneity=draw(st.sampled_from([1.0, 4.0])),
        memory=draw(st.sampled_from([None, 4.0 * n_devices])),
        seed=draw(st.integers(0, 100)),
    )
    n = len(problem.graph)
    classes = tuple(draw(st.lists(st.integers(0, n - 1), min_size=n, max_size=n)))
    allowed = {
        number: tuple(sorted(draw(st.sets(st.integers(0, n_devices - 1), min_size=1))))
        for number in draw(st.sets(st.sampled_from(classes), max_size=3))
    }
    old = problem.constraints
    constraints = Constraints(classes, allowed, old.resident, old.capacity)
    return problem._replace(constraints=constraints).checked()


@settings(max_examples=200)
@given(constrained(), st.sampled_from(FAST), st.booleans())
def test_every_strategy_holds_the_constraints(problem, name, with_coplacing) -> None:
    place = STRATEGIES[name]
    schedule = scheduled(problem, coplaced(place) if with_coplacing else place)
    assert simulate(problem, schedule).makespan > 0


@settings(max_examples=20)
@given(constrained(), st.sampled_from([*STRATEGIES]))
def test_equal_problems_give_equal_schedules(problem, name) -> None:
    assert scheduled(problem, STRATEGIES[name]) == scheduled(problem, STRATEGIES[name])


@pytest.mark.parametrize("family", [*FAMILIES])
@pytest.mark.parametrize("ccr", [0.1, 20.0])
def test_auto_is_never_slower_than_one_device_or_a_candidate(family, ccr) -> None:
    problem = random_problem(family, 40, 4, ccr=ccr, seed=5)
    chosen = choose(problem, moves=50)
    makespan = simulate(problem, chosen.schedule).makespan
    single = chosen.predicted["single"]
    assert makespan <= single
    assert makespan == single or makespan <= min(chosen.predicted.values()) * (1 + 1e-9)
    assert chosen.bound <= makespan * (1 + 1e-9)


def test_auto_leaves_one_device_only_for_a_gain_over_the_margin() -> None:
    problem = random_problem("layered", 20, 2, ccr=0.1, seed=1)
    assert choose(problem, moves=0, margin=0.0).strategy != "single"
    assert choose(problem, moves=0, margin=0.99).strategy == "single"


def test_memory_that_no_device_has_is_said_in_bytes() -> None:
    problem = random_problem("layered", 6, 2, memory=0.2, seed=1)
    with pytest.raises(ResourceExhaustedError, match=r"no device has room for .*more than"):
        scheduled(problem, STRATEGIES["heft"])
    with pytest.raises(ResourceExhaustedError, match="no strategy found a placement"):
        choose(problem)


# Strategies of users ----------------------------------------------------------------------------


def test_a_mapping_is_enough() -> None:
    problem = random_problem("layered", 12, 3)

    def alternate(graph, devices, costs, constraints):
        return {op: devices[i % len(devices)] for i, op in enumerate(graph.operations)}

    schedule = scheduled(problem, alternate)
    assert schedule.devices == tuple(i % 3 for i in range(12))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda g, d: None, "mine gives a device for each operation as a mapping, .* got NoneType"),
        (
            lambda g, d: dict.fromkeys(g.operations, "x"),
            "mine places 0 on 'x', which is not one of",
        ),
        (lambda g, d: dict.fromkeys(g.operations[1:], d[0]), "mine gives no device for 0"),
        (
            lambda g, d: Schedule((0,) * 5, (0, 1, 2)),
            "each of 6 operations one device and one position",
        ),
        (lambda g, d: Schedule((7,) * 6, tuple(range(6))), "unknown device"),
        (lambda g, d: Schedule((0,) * 6, tuple(reversed(g.order))), "before .*, whose result it"),
    ],
)
def test_a_wrong_answer_is_refused_by_name(answer, message) -> None:
    problem = random_problem("layered", 6, 2, seed=1)

    def mine(graph, devices, costs, constraints):
        return answer(graph, devices)

    with pytest.raises(InvalidArgumentError, match=message):
        scheduled(problem, mine)


def test_broken_constraints_are_refused_by_name() -> None:
    problem = random_problem("layered", 6, 2, memory=2.0, seed=1)
    order, split = problem.graph.order, Schedule((0, 1, 0, 1, 0, 1), problem.graph.order)
    cases = [
        (Constraints(classes=(0, 0, 2, 3, 4, 5)), split, "0 and 1 on different devices"),
        (Constraints(allowed={0: (1,)}), split, r"0 on device 0; it may go to \['device 1'\]"),
        (replace(problem.constraints, capacity=(1.0, 1.0)), split, "bytes on device 0, .* more"),
    ]
    for constraints, schedule, message in cases:
        with pytest.raises(InvalidArgumentError, match=message):
            check(problem._replace(constraints=constraints), Schedule(schedule.devices, order), "s")


def test_a_cycle_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="cycle, among them x, y"):
        OperationGraph(("x", "y"), (Dependency(0, (1,), 1.0), Dependency(1, (0,), 1.0)))


def test_what_a_strategy_raises_reaches_its_caller() -> None:
    def mine(*_):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        scheduled(random_problem("layered", 6, 2), mine)
