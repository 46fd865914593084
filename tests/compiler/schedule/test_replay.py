"""The fast simulator and the search on it, against the simulator that makes timelines."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jflow.compiler.schedule import (
    BUFFERED,
    ONE_PORT,
    UNLIMITED,
    Constraints,
    Problem,
    Schedule,
    simulate,
)
from jflow.compiler.schedule import anneal as annealing
from jflow.compiler.schedule.anneal import anneal
from jflow.compiler.schedule.compact import can_compile, compact
from jflow.compiler.schedule.graph import Dependency, OperationGraph
from jflow.compiler.schedule.problem import room_of
from jflow.compiler.schedule.replay import begin_run, new_plan, new_run, new_saved, replay
from jflow.compiler.schedule.schedule import check
from jflow.compiler.schedule.simulate import makespan
from jflow.compiler.schedule.strategies.simple import random
from jflow.lab.families import FAMILIES, random_problem
from tests.compiler.schedule import event_simulator
from tests.drawn import examples


@st.composite
def problems(draw) -> Problem:
    """Random problems; tensors with many consumers, equal times, shared processors, classes."""
    n, p = draw(st.integers(1, 18)), draw(st.integers(1, 4))
    problem = random_problem(
        draw(st.sampled_from([*FAMILIES])),
        n,
        p,
        ccr=draw(st.sampled_from([0.1, 2.0])),
        network=draw(st.sampled_from([ONE_PORT, BUFFERED, UNLIMITED])),
        seed=draw(st.integers(0, 1000)),
    )
    graph, costs = problem.graph, problem.costs
    if draw(st.booleans()):
        edges = [
            Dependency(i, tuple(after), 1.0) for i, after in enumerate(graph.successors) if after
        ]
        graph = OperationGraph(graph.operations, tuple(edges))
    if draw(st.booleans()):
        costs = replace(costs, seconds=np.round(costs.seconds), latency=costs.latency + 0.5)
    if draw(st.booleans()):
        costs = replace(costs, processors=tuple(i // 2 for i in range(p)))
    part, is_half = draw(st.sampled_from([0.0, 0.4, 1.0])), draw(st.booleans())
    costs = replace(costs, port_share=part, half_duplex=is_half)
    classes = tuple(i // 2 for i in range(len(graph))) if draw(st.booleans()) else ()
    return problem._replace(graph=graph, costs=costs, constraints=Constraints(classes))


@settings(max_examples=examples(60))
@given(problems(), st.integers(0, 100))
def test_a_simulated_step_is_what_each_event_makes_of_it(problem, seed) -> None:
    """The simulator looks at transfers only; the one of the tests delivers every tensor."""
    schedule = random(*problem, seed=seed)
    timeline, expected = simulate(problem, schedule), event_simulator.simulate(problem, schedule)
    assert (timeline.start, timeline.finish) == (expected.start, expected.finish)
    assert timeline.transfers == expected.transfers
    assert makespan(problem, schedule) == expected.makespan


@settings(max_examples=examples(40))
@given(problems(), st.integers(0, 100))
def test_a_replay_takes_what_the_simulator_says(problem, seed) -> None:
    schedule = random(*problem, seed=seed)
    flat = compact(problem)
    plan, run = new_plan(flat, schedule, arrays=False), new_run(flat, arrays=False)
    begin_run(flat, plan, run)
    found = replay(flat, plan, run, new_saved(flat, arrays=False), 0, math.inf)
    assert found == simulate(problem, schedule).makespan


@settings(max_examples=examples(25))
@given(problems(), st.integers(0, 100), st.integers(1, 60))
def test_runs_that_continue_saved_states_end_as_the_simulator_says(problem, seed, moves) -> None:
    """After any number of accepted and refused moves, all of what is known of a run is exact."""
    start = random(*problem, seed=seed)
    n = len(problem.graph)
    flat = compact(problem)
    draws = np.random.default_rng(seed).random((moves, 4)).tolist()
    slack = [0.3 * (i % 3) for i in range(moves)]
    plan, best = new_plan(flat, start, arrays=False), ([0] * n, [0] * n, [0] * n)
    runs = new_run(flat, arrays=False), new_run(flat, arrays=False)
    saved = new_saved(flat, arrays=False, least_interval=2)
    room = room_of(problem, start.devices)
    found = anneal(flat, plan, runs, saved, room, best, draws, slack)
    schedule = Schedule(tuple(best[0]), tuple(best[1]))
    check(problem, schedule, "search")
    assert found == simulate(problem, schedule).makespan
    last = Schedule(tuple(plan.devices), tuple(plan.order))
    check(problem, last, "search")
    assert plan == new_plan(flat, last, arrays=False)


def test_a_run_ends_once_it_is_certain_to_take_longer() -> None:
    problem = random_problem("layered", 30, 3, seed=1)
    schedule = random(*problem)
    flat, time = compact(problem), simulate(problem, schedule).makespan
    for limit, expected in ((time, time), (time * 0.9, float("inf"))):
        run, saved = new_run(flat, arrays=False), new_saved(flat, arrays=False)
        plan = new_plan(flat, schedule, arrays=False)
        begin_run(flat, plan, run)
        assert replay(flat, plan, run, saved, 0, limit) == expected
        assert (0 in run.ended) == (expected > limit)


def test_search_finds_a_better_schedule_the_same_each_time() -> None:
    problem = random_problem("wavefront", 40, 4, seed=3)
    start = random(*problem)
    found = annealing.improved(problem, start, moves=2000, seed=1)
    assert found == annealing.improved(problem, start, moves=2000, seed=1)
    assert simulate(problem, found).makespan < 0.7 * simulate(problem, start).makespan


@pytest.mark.skipif(not can_compile(), reason="Numba, the extra fast, is not installed")
def test_compiled_search_finds_what_interpreted_search_finds(monkeypatch) -> None:
    problem = random_problem("layered", 40, 4, seed=3)
    start = random(*problem)
    interpreted = annealing.improved(problem, start, moves=500, seed=1)
    monkeypatch.setattr(annealing, "_COMPILED_MOVES", 0)
    assert annealing.improved(problem, start, moves=500, seed=1) == interpreted
