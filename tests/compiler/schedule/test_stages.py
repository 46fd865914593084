"""Stages of schedules: the work is the same, and it waits as the runtime makes it wait."""

from __future__ import annotations

import numpy as np
import pytest

from jflow.compiler.pipeline import StepRequest, compile_step
from jflow.compiler.placement import Inventory
from jflow.compiler.schedule import (
    Constraints,
    Costs,
    Problem,
    Schedule,
    graph_of,
    scheduled,
    simulate,
)
from jflow.compiler.schedule.cut import SPLIT_S, cut
from jflow.compiler.schedule.graph import Dependency, OperationGraph
from jflow.compiler.schedule.stages import messages_of, of_stages
from jflow.compiler.schedule.strategies import STRATEGIES
from jflow.lab.families import random_problem
from jflow.lab.timed import timed_graph, timed_problem
from jflow.lab.workloads.workload import simulated_devices
from jflow.plan import Call


def staged(problem: Problem, schedule: Schedule) -> tuple[Problem, Schedule]:
    """The problem with stages as operations, and their schedule."""
    return of_stages(problem, schedule.devices, cut(problem, schedule.devices))


def diamond(seconds: float) -> Problem:
    """Two equal operations between a first and a last one, for two devices."""
    edges = [(0, 1, 0.0), (0, 2, 0.0), (1, 3, 0.0), (2, 3, 0.0)]
    nothing = np.zeros((2, 2))
    costs = Costs(np.full((4, 2), seconds), nothing, nothing)
    return Problem(graph_of(range(4), edges), ["a", "b"], costs, Constraints()).checked()


def test_a_stage_begins_when_all_of_its_inputs_are_there() -> None:
    problem = diamond(seconds=1.0)
    apart = Schedule((0, 0, 1, 0), (0, 1, 2, 3))
    stages = cut(problem, apart.devices)
    assert [stages.stages[number].depth for (number,) in stages.of] == [0, 0, 1, 2]
    # Operation 3 is in a stage with nothing else, and 2 waits for 0 only: it is sent before 1 runs.
    assert simulate(problem, apart).makespan == 3.0
    assert simulate(*staged(problem, apart)).makespan == 3.0


def test_what_is_short_is_one_program_with_what_is_sent() -> None:
    problem = diamond(seconds=SPLIT_S)
    apart = Schedule((0, 0, 1, 0), (0, 1, 2, 3))
    # Operations 0 and 1 are one program, and 2 gets the result of 0 only when 1 is done too.
    assert simulate(problem, apart).makespan == pytest.approx(3 * SPLIT_S)
    assert simulate(*staged(problem, apart)).makespan == pytest.approx(4 * SPLIT_S)


def test_what_travels_together_is_one_message_that_comes_for_the_first_that_uses_it() -> None:
    def messages(*bundles: str) -> list[tuple[int, int, float]]:
        edges = [Dependency(i, (3 + i,), 10.0, each) for i, each in enumerate(bundles)]
        edges.append(Dependency(2, (4,), 0.0))  # a signal
        stages = [[0], [0], [0], [2], [1], [1]]
        graph = OperationGraph(tuple(range(6)), tuple(edges))
        found = messages_of(graph, (0, 0, 0, 1, 1, 2), stages)
        return [(each.source, each.target, each.n_bytes) for each in found]

    assert messages("f", "f") == [(0, 1, 20.0), (0, 1, 0.0)]
    assert messages("f", "i") == messages("", "") == [(0, 2, 10.0), (0, 1, 10.0), (0, 1, 0.0)]
    # The third goes to another device.
    assert messages("f", "f", "f") == [(0, 1, 20.0), (0, 1, 10.0), (0, 1, 0.0)]


@pytest.mark.parametrize("family", ["layered", "wavefront", "cholesky"])
@pytest.mark.parametrize("name", ["etf_c", "heft", "round_robin"])
def test_stages_hold_all_work_and_are_never_predicted_to_be_faster_than_their_work(
    family, name
) -> None:
    problem = random_problem(family, 30, 3, ccr=1.0)
    schedule = scheduled(problem, STRATEGIES[name])
    by_stage, in_stages = staged(problem, schedule)
    for device in range(3):
        wanted = sum(
            problem.costs.seconds[i, device]
            for i in range(len(problem.graph))
            if schedule.devices[i] == device
        )
        assert by_stage.costs.seconds[:, device].sum() == pytest.approx(wanted)
        assert simulate(by_stage, in_stages).makespan >= wanted - 1e-9


@pytest.mark.parametrize("family", ["layered", "fork_join", "wavefront"])
def test_the_stages_are_those_of_the_plans_that_the_pipeline_makes(family) -> None:
    problem = timed_problem(random_problem(family, 25, 3, seed=2), seconds=1.0)
    schedule = scheduled(problem, STRATEGIES["etf_c"])
    devices = simulated_devices(3)
    graph, fetched = timed_graph(problem, schedule, [*map(str, devices)])
    inventory = Inventory(
        devices[0].task,
        tuple(device.task for device in devices),
        {device.task: [device] for device in devices},
        dict.fromkeys(devices, "cpu"),
    )
    compiled = compile_step(graph, StepRequest((), tuple(fetched), ()), inventory)
    found = {
        (plan.device, frozenset(one.op for one in stage if isinstance(one, Call)))
        for plan in compiled.plans
        for stage in plan.stages
    }
    stages = cut(problem, schedule.devices)
    wanted = {
        (
            devices[stage.device],
            frozenset(f"operation_{i}" for i, numbers in enumerate(stages.of) if numbers == [n]),
        )
        for n, stage in enumerate(stages.stages)
    }
    assert {each for each in found if each[1]} == wanted
