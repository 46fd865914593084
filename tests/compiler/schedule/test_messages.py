"""Messages as operations: what they take of processors, and what a lone one takes in all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from jflow.compiler.schedule import (
    UNLIMITED,
    Constraints,
    Costs,
    Problem,
    Schedule,
    graph_of,
    predicted_seconds,
    scheduled,
    simulate,
)
from jflow.compiler.schedule.messages import MessagePart, with_messages
from jflow.compiler.schedule.stages import StageTimes
from jflow.compiler.schedule.strategies import STRATEGIES
from jflow.errors import InvalidArgumentError
from jflow.lab.families import random_problem

N_BYTES = 8.0
OFF = 1.0 - np.eye(2)


def costs(overhead: float, busy: float, n_operations: int, **others) -> Costs:
    """Operations of one second; links of two seconds, and one for each byte."""
    return Costs(
        np.ones((n_operations, 2)),
        2.0 * OFF,
        1.0 * OFF,
        overhead=overhead * OFF,
        processor_share=busy * OFF,
        **others,
    )


def sent_beside(n_sent: int, overhead: float, busy: float) -> Problem:
    """Operation 0 gives something to each of the next ones, and there are two that need nothing."""
    edges = [(0, i + 1, N_BYTES) for i in range(n_sent)]
    graph = graph_of(range(n_sent + 3), edges)
    return Problem(graph, ["a", "b"], costs(overhead, busy, n_sent + 3), Constraints()).checked()


@pytest.mark.parametrize("overhead", [0.0, 0.5, 5.0])
@pytest.mark.parametrize("busy", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_a_lone_transfer_takes_what_the_link_says(overhead: float, busy: float) -> None:
    problem = sent_beside(1, overhead, busy)
    apart = Schedule((0, 1, 1, 1), (0, 1, 2, 3))
    problem = problem._replace(costs=costs(overhead, busy, 4))
    timeline = simulate(*with_messages(problem, apart))
    # 0 runs, is sent, then 1 runs and after it 2 and 3.
    assert timeline.makespan == pytest.approx(1 + problem.costs.transfer(N_BYTES, 0, 1) + 3)


def test_a_device_computes_nothing_while_it_sends_and_receives() -> None:
    beside = Schedule((0, 1, 0, 1), (0, 3, 1, 2))  # 2 follows the send, 3 comes before the receive
    free, busy = (sent_beside(1, 0.5 * part, 0.75 * part) for part in (0.0, 1.0))
    assert simulate(*with_messages(free, beside)).makespan == 1 + 2 + N_BYTES + 1
    problem, schedule = with_messages(busy, beside)
    timeline = simulate(problem, schedule)
    numbers = {operation: i for i, operation in enumerate(problem.graph.operations)}
    sending = 0.5 + 0.25 * N_BYTES
    assert timeline.start[numbers[2]] == pytest.approx(1 + sending + 0.5 * N_BYTES)
    receive = numbers[MessagePart(0, 1, "receive")]
    assert timeline.finish[receive] - timeline.start[receive] == pytest.approx(0.5 + 6.0)
    assert timeline.finish[numbers[1]] == pytest.approx(1 + 2 + N_BYTES + 1)


def test_messages_of_one_sender_follow_each_other() -> None:
    problem = sent_beside(3, 1.0, 0.5)
    apart = Schedule((0, 1, 1, 1, 0, 0), tuple(range(6)))
    timeline = simulate(*with_messages(problem, apart))
    # Each message takes 1 + 4 seconds of either end; the last one is received after three.
    assert timeline.makespan == pytest.approx(1 + 5 + 3 * 5 + 3)


def test_what_is_sent_to_several_operations_of_a_device_is_one_message() -> None:
    graph = graph_of(range(3), [(0, 1, N_BYTES), (0, 2, N_BYTES)])
    edges = graph.edges
    assert len(edges) in (1, 2)
    shared = type(edges[0])(0, (1, 2), N_BYTES)
    graph = type(graph)(graph.operations, (shared,))
    problem = Problem(graph, ["a", "b"], costs(1.0, 0.5, 3), Constraints())
    expanded, _ = with_messages(problem, Schedule((0, 1, 1), (0, 1, 2)))
    messages = [each for each in expanded.graph.operations if isinstance(each, MessagePart)]
    assert [each.part for each in messages] == ["send", "receive"]


def test_nothing_changes_where_messages_take_nothing() -> None:
    problem = random_problem("layered", 20, 3)
    schedule = scheduled(problem, STRATEGIES["heft"])
    assert with_messages(problem, schedule) == (problem, schedule)
    none = np.zeros((3, 3))
    zero = problem._replace(costs=replace(problem.costs, overhead=none, processor_share=none))
    assert simulate(*with_messages(zero, schedule)).makespan == pytest.approx(
        simulate(problem, schedule).makespan
    )


def test_tasks_beyond_that_of_the_master_add_to_a_step() -> None:
    problem = sent_beside(1, 0.0, 0.0)
    added = problem._replace(costs=replace(problem.costs, task_seconds=7.0, tasks=(0, 1)))
    for devices, n_further in (((0, 0, 0, 0), 0), ((0, 1, 0, 1), 1), ((1, 1, 1, 1), 1)):
        schedule = Schedule(devices, (0, 1, 2, 3))
        more = predicted_seconds(added, schedule) - predicted_seconds(problem, schedule)
        assert more == pytest.approx(7.0 * n_further)


@pytest.mark.parametrize("family", ["layered", "fork_join", "cholesky"])
@pytest.mark.parametrize("busy", [0.0, 0.3, 0.8])
def test_the_times_of_stages_are_those_of_the_simulator_without_ports(family, busy) -> None:
    drawn = random_problem(family, 40, 3, ccr=1.0)
    off = 1.0 - np.eye(3)
    each = float(drawn.costs.mean_seconds[0])
    changed = replace(
        drawn.costs,
        network=UNLIMITED,
        latency=off * each,
        overhead=off * each * 0.2,
        processor_share=off * busy,
        in_stages=True,
        task_seconds=each,
        tasks=(0, 1, 2),
    )
    problem = drawn._replace(costs=changed)
    times = StageTimes(problem)
    for name in ("single", "round_robin", "heft", "etf_c"):
        schedule = scheduled(problem, STRATEGIES[name])
        wanted = predicted_seconds(problem, schedule)
        assert times.seconds(schedule.devices) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"processor_share": 2.0 * OFF}, "processor_share from 0 to 1"),
        ({"overhead": -OFF}, "overhead that are finite and not negative"),
        ({"overhead": np.zeros((3, 3))}, r"overhead of shape \(2, 2\), got \(3, 3\)"),
        ({"tasks": (0, 1, 2)}, "tasks of 2 devices, got 3"),
        ({"task_seconds": -1.0}, "task_seconds, got 1.0, 0.0 and -1.0"),
    ],
)
def test_costs_that_cannot_be_are_refused(changes, words) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        replace(costs(0.0, 0.0, 1), **changes)
