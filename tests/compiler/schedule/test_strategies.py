"""What holds for every strategy, and what a strategy of a user's is told."""

from __future__ import annotations

import importlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jflow.compiler.schedule import (
    Constraints,
    Costs,
    Dependency,
    OperationGraph,
    Problem,
    Schedule,
    graph_of,
    scheduled,
    simulate,
)
from jflow.compiler.schedule.exhaustive import exhaustive_optimum
from jflow.compiler.schedule.schedule import check
from jflow.compiler.schedule.strategies import (
    OPTIONAL,
    STRATEGIES,
    choose,
    coplaced,
    fitted,
    grouped,
)
from jflow.compiler.schedule.strategies.grouping import with_groups
from jflow.compiler.schedule.strategies.memory import fitting
from jflow.compiler.schedule.strategies.metis import can_cut
from jflow.compiler.schedule.strategies.sct import favorite_children
from jflow.errors import FailedPreconditionError, InvalidArgumentError, ResourceExhaustedError
from jflow.lab.families import FAMILIES, random_problem
from tests.drawn import examples

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


@settings(max_examples=examples(80))
@given(constrained(), st.sampled_from(FAST), st.booleans())
def test_every_strategy_holds_the_constraints(problem, name, with_coplacing) -> None:
    place = STRATEGIES[name]
    schedule = scheduled(problem, coplaced(place) if with_coplacing else place)
    assert simulate(problem, schedule).makespan > 0


@settings(max_examples=examples(10))
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


@pytest.mark.parametrize(("small", "is_left"), [(1.0, False), (4.0, True)])
def test_estimates_have_a_margin_and_exact_costs_have_none(small: float, is_left: bool) -> None:
    drawn = random_problem("layered", 2, 2, seed=1)
    seconds = np.array([[20.0, 20.0], [small, small]])
    exact = drawn._replace(
        graph=graph_of(range(2), []), costs=replace(drawn.costs, seconds=seconds)
    )
    estimated = exact._replace(costs=replace(exact.costs, are_estimates=True))
    assert choose(exact).strategy != "single"
    assert (choose(estimated).strategy != "single") == is_left


@pytest.mark.parametrize(
    ("work", "messages", "is_left"), [(0.0, 0.0, True), (0.3, 0.1, True), (0.3, 0.5, False)]
)
def test_a_gain_has_to_be_left_if_costs_are_as_far_off_as_they_may_be(
    work: float, messages: float, is_left: bool
) -> None:
    # One device takes 2 s, two of them 1 s and a message of 0.5 s; at the worst 1.4 s, and 0.7 s
    # and one of 0.55 or 0.75 s.
    off = 0.5 * (1 - np.eye(2))
    costs = Costs(
        np.array([[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]),
        off,
        0 * off,
        are_estimates=True,
        work_error=work,
        message_error=messages,
    )
    graph = graph_of(range(3), [(0, 1, 1.0), (0, 2, 1.0)])
    chosen = choose(Problem(graph, ["a", "b"], costs, Constraints()).checked())
    assert (chosen.strategy != "single") == is_left
    assert min(chosen.predicted.values()) == pytest.approx(1.5), "it is found in any case"


def test_errors_of_costs_that_cannot_be_are_refused() -> None:
    nothing = np.zeros((1, 1))
    with pytest.raises(InvalidArgumentError, match="a work_error from 0 to below 1"):
        Costs(nothing, nothing, nothing, work_error=1.0)
    with pytest.raises(InvalidArgumentError, match="message_error that is not negative"):
        Costs(nothing, nothing, nothing, message_error=-0.5)


def test_memory_that_no_device_has_is_said_in_bytes() -> None:
    problem = random_problem("layered", 6, 2, memory=0.2, seed=1)
    with pytest.raises(ResourceExhaustedError, match=r"no device has room for .*more than"):
        scheduled(problem, STRATEGIES["heft"])
    with pytest.raises(ResourceExhaustedError, match="no strategy found a placement"):
        choose(problem)


def test_why_nothing_is_feasible_is_said_once() -> None:
    """Not once for each of some thirty strategies."""
    problem = random_problem("layered", 40, 2, memory=0.9, seed=1)
    with pytest.raises(ResourceExhaustedError, match=r"of \d\d that were tried") as raised:
        choose(problem)
    kept, room = sum(problem.constraints.resident), sum(problem.constraints.capacity)
    assert raised.value.message.count(f"{kept:.0f} bytes are kept on devices") == 1
    assert f"that can keep {room:.0f}" in raised.value.message
    assert raised.value.message.count("no device has room") == 1


@settings(max_examples=examples(8))
@given(
    st.sampled_from([*FAMILIES]),
    st.integers(4, 9),
    st.sampled_from([1.05, 1.1, 1.2, 1.3]),
    st.integers(0, 1000),
)
def test_auto_finds_a_plan_whenever_memory_lets_one_exist(family, n, memory, seed) -> None:
    problem = random_problem(family, n, 3, memory=memory, seed=seed)
    try:
        exhaustive_optimum(problem)
    except ResourceExhaustedError:
        with pytest.raises(ResourceExhaustedError):
            choose(problem, moves=0, exact=False)
    else:
        chosen = choose(problem, moves=0, exact=False)
        check(problem, chosen.schedule, "auto")


def test_a_placement_is_fitted_with_the_least_work_moved() -> None:
    problem = random_problem("layered", 6, 2, seed=1)
    limits = Constraints(resident=(4.0, 3.0, 3.0, 2.0, 2.0, 2.0), capacity=(8.0, 8.0))
    packed = problem._replace(constraints=limits)
    with pytest.raises(ResourceExhaustedError, match="no device has room"):
        scheduled(packed, STRATEGIES["round_robin"])
    devices = fitting(packed, (0,) * 6)
    assert sorted(sum(limits.resident[i] for i in range(6) if devices[i] == d) for d in (0, 1)) == [
        8.0,
        8.0,
    ]
    assert scheduled(packed, fitted(STRATEGIES["single"])).devices == tuple(devices)
    assert fitting(problem, (0, 1, 0, 1, 0, 1)) == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize("family", [*FAMILIES])
@pytest.mark.parametrize("memory", [None, 4.0])
def test_groups_are_as_many_as_asked_for_and_hold_the_constraints(family, memory) -> None:
    problem = random_problem(family, 300, 4, memory=memory, seed=1)
    n = len(problem.graph)
    classes = tuple(i // 2 for i in range(n))
    pinned = {0: (1,), 5: (2, 3)}
    old = problem.constraints
    problem = problem._replace(constraints=replace(old, classes=classes, allowed=pinned)).checked()
    merged = with_groups(problem, 20).checked()
    groups = merged.constraints.classes
    assert len(set(groups)) <= 20 or memory is not None
    assert all(groups[2 * i] == groups[2 * i + 1] for i in range(n // 2))
    assert merged.constraints.allowed[groups[0]] == (1,)
    assert groups == with_groups(problem, 20).constraints.classes
    scheduled(problem, grouped(STRATEGIES["heft_c"], 20))


def test_groups_of_a_wide_graph_are_chains() -> None:
    """Of eight chains that do not depend on each other none is torn and no two are joined."""
    edges = [(8 * i + j, 8 * (i + 1) + j, 1.0) for i in range(9) for j in range(8)]
    drawn = random_problem("layered", 80, 4, ccr=5.0, seed=1)
    problem = drawn._replace(graph=graph_of(range(80), edges))
    groups = with_groups(problem, 8).constraints.classes
    assert [len({groups[8 * i + j] for i in range(10)}) for j in range(8)] == [1] * 8
    assert len(set(groups)) == 8


def test_a_favorite_child_is_the_one_that_the_most_is_sent_to() -> None:
    drawn = random_problem("layered", 3, 2, network="unlimited", seed=1)
    problem = drawn._replace(graph=graph_of(range(3), [(0, 1, 9.0), (0, 2, 0.1)]))
    assert favorite_children(problem) == {0: 1}


def test_metis_says_what_to_install(monkeypatch) -> None:
    module = importlib.import_module("jflow.compiler.schedule.strategies.metis")
    monkeypatch.setattr(module, "can_cut", lambda: False)
    with pytest.raises(FailedPreconditionError, match=r"pip install 'jflow\[metis\]'"):
        scheduled(random_problem("layered", 6, 2), OPTIONAL["metis"])


@pytest.mark.skipif(not can_cut(), reason="pymetis, the extra metis, is not installed")
def test_metis_cuts_where_little_is_sent() -> None:
    drawn = random_problem("layered", 4, 2, seed=1)
    edges = [(0, 1, 9.0), (1, 2, 0.1), (2, 3, 9.0)]
    schedule = scheduled(drawn._replace(graph=graph_of(range(4), edges)), OPTIONAL["metis"])
    assert schedule.devices[0] == schedule.devices[1] != schedule.devices[2] == schedule.devices[3]


@pytest.mark.parametrize(("n", "n_devices"), [(12, 3), (300, 8)])
def test_every_strategy_is_a_candidate_of_auto(n: int, n_devices: int) -> None:
    """So no graph of such a size can be found on which another one is better."""
    problem = random_problem("layered", n, n_devices, seed=2)
    chosen = choose(problem, moves=0, margin=0.0, exact=False)
    assert {*STRATEGIES} - {"auto"} <= {*chosen.predicted}
    assert chosen.predicted[chosen.strategy] == min(chosen.predicted.values())


def test_auto_is_at_least_as_good_as_every_strategy_on_adversarial_graphs() -> None:
    """Annealing of the costs of a graph finds none on which another strategy is much better."""
    rng = np.random.default_rng(0)
    problem = random_problem("layered", 8, 3, seed=2)
    worst = 0.0
    for _ in range(12):
        costs = problem.costs
        changed = costs.seconds * rng.lognormal(0, 0.5, costs.seconds.shape)
        candidate = problem._replace(costs=replace(costs, seconds=changed))
        ratio = _worst_ratio(candidate)
        if ratio >= worst:
            problem, worst = candidate, ratio
    assert worst <= 1 + 1e-9


def _worst_ratio(problem: Problem) -> float:
    """The time of `auto`, without its search, by the least of all strategies that ship."""
    chosen = choose(problem, moves=0, exact=False)
    mine = simulate(problem, chosen.schedule).makespan
    return max(mine / simulate(problem, scheduled(problem, STRATEGIES[n])).makespan for n in FAST)


def test_a_large_graph_is_placed_in_groups() -> None:
    problem = random_problem("layered", 4001, 4, ccr=1.0, seed=1)
    chosen = choose(problem)
    assert "heft_c+2000 groups" in chosen.predicted
    assert chosen.predicted[chosen.strategy] < chosen.predicted["single"]


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
