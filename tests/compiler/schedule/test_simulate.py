"""The simulator against hand-made timelines, and its own rules on random problems."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow.compiler.schedule import (
    BUFFERED,
    ONE_PORT,
    UNLIMITED,
    Constraints,
    Costs,
    Dependency,
    OperationGraph,
    Problem,
    Schedule,
    graph_of,
    lower_bound,
    scheduled,
    simulate,
)
from jflow.compiler.schedule.strategies import STRATEGIES
from jflow.lab.families import FAMILIES, random_problem


def problem(graph: OperationGraph, seconds: list[float], n_devices: int, network: str) -> Problem:
    """A problem of equal devices, a second a byte and half a second of latency."""
    off = 1.0 - np.eye(n_devices)
    costs = Costs(np.array([seconds] * n_devices).T, off / 2, off, network)
    return Problem(graph, [*"abcdefgh"[:n_devices]], costs, Constraints()).checked()


def test_a_chain_on_one_device_takes_the_sum() -> None:
    chain = problem(graph_of("xyz", [(0, 1, 9), (1, 2, 9)]), [1, 2, 3], 2, ONE_PORT)
    timeline = simulate(chain, Schedule((0, 0, 0), (0, 1, 2)))
    assert (timeline.start, timeline.makespan, timeline.transfers) == ((0, 1, 3), 6, ())


def test_a_transfer_takes_its_bytes_and_the_latency() -> None:
    pair = problem(graph_of("xy", [(0, 1, 2)]), [1, 1], 2, ONE_PORT)
    timeline = simulate(pair, Schedule((0, 1), (0, 1)))
    assert timeline.start == (0, 3.5)
    (sent,) = timeline.transfers
    assert (sent.source, sent.target, sent.start, sent.finish) == (0, 1, 1, 3.5)


@pytest.mark.parametrize(("network", "starts"), [(ONE_PORT, (3.5, 5.5)), (UNLIMITED, (3.5, 3.5))])
def test_one_port_sends_one_tensor_at_a_time(network, starts) -> None:
    fork = problem(graph_of("xyz", [(0, 1, 2), (0, 2, 2)]), [1, 1, 1], 3, network)
    timeline = simulate(fork, Schedule((0, 1, 2), (0, 1, 2)))
    assert timeline.start[1:] == starts


@pytest.mark.parametrize(("network", "start"), [(ONE_PORT, 5.5), (UNLIMITED, 3.5)])
def test_one_port_receives_one_tensor_at_a_time(network, start) -> None:
    join = problem(graph_of("xyz", [(0, 2, 2), (1, 2, 2)]), [1, 1, 1], 3, network)
    assert simulate(join, Schedule((0, 1, 2), (0, 1, 2))).start[2] == start


def test_a_tensor_is_sent_once_to_a_device() -> None:
    graph = OperationGraph((*"xyz",), (Dependency(0, (1, 2), 2.0),))
    timeline = simulate(problem(graph, [1, 1, 1], 2, ONE_PORT), Schedule((0, 1, 1), (0, 1, 2)))
    assert len(timeline.transfers) == 1
    assert timeline.start == (0, 3.5, 4.5)


def test_devices_with_one_processor_run_one_operation_at_a_time() -> None:
    free = problem(graph_of("xyz", []), [1, 5, 2], 3, ONE_PORT)
    shared = free._replace(costs=replace(free.costs, processors=(7, 7, 9)))
    timeline = simulate(shared, Schedule((0, 1, 2), (0, 1, 2)))
    assert (timeline.start, timeline.makespan) == ((0, 1, 0), 6)
    assert lower_bound(shared) == 5


def test_a_device_keeps_the_planned_order() -> None:
    free = problem(graph_of("xy", []), [1, 5], 1, ONE_PORT)
    assert simulate(free, Schedule((0, 0), (1, 0))).start == (5, 0)


PROBLEMS = st.builds(
    random_problem,
    st.sampled_from([*FAMILIES]),
    st.integers(2, 24),
    st.integers(1, 5),
    ccr=st.sampled_from([0.1, 1.0, 5.0]),
    heterogeneity=st.sampled_from([1.0, 4.0]),
    network=st.sampled_from([ONE_PORT, BUFFERED, UNLIMITED]),
    seed=st.integers(0, 1000),
)
FAST = [name for name in STRATEGIES if name != "auto"]


@given(PROBLEMS, st.sampled_from(FAST))
def test_a_timeline_holds_what_a_device_and_a_port_can_do(drawn: Problem, name: str) -> None:
    schedule = scheduled(drawn, STRATEGIES[name])
    timeline = simulate(drawn, schedule)
    for device in range(len(drawn.devices)):
        mine = [i for i in schedule.order if schedule.devices[i] == device]
        for one, other in pairwise(mine):
            assert timeline.finish[one] <= timeline.start[other]
    arrived = {(t.edge, t.target): t.finish for t in timeline.transfers}
    assert len(arrived) == len(timeline.transfers)
    for number, edge in enumerate(drawn.graph.edges):
        for consumer in edge.consumers:
            target = schedule.devices[consumer]
            there = timeline.finish[edge.producer]
            if target != schedule.devices[edge.producer]:
                there = arrived[number, target]
            assert there <= timeline.start[consumer]
    if drawn.costs.network == ONE_PORT:
        for side in ("source", "target"):
            for device in range(len(drawn.devices)):
                used = [t for t in timeline.transfers if getattr(t, side) == device]
                busy = sorted((t.start, t.start + drawn.graph.edges[t.edge].n_bytes) for t in used)
                for (_, end), (start, _) in pairwise(busy):
                    assert end <= start + 1e-9
    assert timeline.makespan >= lower_bound(drawn) * (1 - 1e-9)


@given(PROBLEMS, st.sampled_from(["heft", "cpop", "peft", "etf", "earliest_finish"]))
def test_the_simulator_takes_no_longer_than_a_scheduler_planned(drawn: Problem, name: str) -> None:
    """Without contention each operation starts as planned or earlier."""
    free = drawn._replace(costs=replace(drawn.costs, network=UNLIMITED))
    schedule = scheduled(free, STRATEGIES[name])
    contended = simulate(drawn, schedule).makespan
    assert simulate(free, schedule).makespan <= contended + 1e-9


@given(PROBLEMS)
def test_ports_make_nothing_faster_on_a_single_device(drawn: Problem) -> None:
    timeline = simulate(drawn, scheduled(drawn, STRATEGIES["single"]))
    assert not timeline.transfers
    assert timeline.makespan == pytest.approx(drawn.costs.seconds.sum(axis=0).min())
