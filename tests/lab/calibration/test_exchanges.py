"""Exchanges between two devices, and the link that explains what they take."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from jflow.base.cluster import Device, Task, Wiring
from jflow.compiler.pipeline import region_problem
from jflow.compiler.placement.calibration import PRIOR, Link
from jflow.compiler.placement.costs import costs_of
from jflow.compiler.schedule import Constraints, Problem, Schedule, graph_of, predicted_seconds
from jflow.lab.calibration.exchanges import EXCHANGES, LinkProbe, Pattern, exchange_step, fit_link
from jflow.lab.calibration.site import Site

DEVICES = [Device(Task("worker", i), "CPU", 0) for i in (0, 1)]
WIRING = Wiring("grpc", {}, DEVICES[0].task)
TRUE = replace(
    PRIOR,
    links={"grpc/host": Link(latency=3e-3, bandwidth=2e8, overhead=1e-3, processor_share=0.7)},
    task_seconds={"grpc": 4e-3},
)


def drawn(exchange: LinkProbe, scale: float = 1.0, away: float = 1.0) -> tuple[Problem, Schedule]:
    """The regions of an exchange, whose programs take 10 ms or, short ones, 50 µs.

    Those of the second device take `away` times as long.
    """
    sent = [float(exchange.n_bytes)] * exchange.number
    first, second = [(0, 1, each) for each in sent], [(1, 2, each) for each in sent]
    edges, places = {
        "nothing": ([], (0,)),
        "away": ([], (1,)),
        "there": (first, (0, 1)),
        "back": (first + second, (0, 1, 0)),
        "swap": ([(0, 3, each) for each in sent] + [(1, 2, each) for each in sent], (0, 1, 0, 1)),
        "beside": (first, (0, 1, 0)),
    }[exchange.pattern]
    taken = 0.01 if exchange.products else 5e-5
    seconds = np.full((len(places), 2), taken * scale) * [1.0, away]
    costs = costs_of(seconds, DEVICES, TRUE, WIRING)
    graph = graph_of(range(len(places)), edges)
    return Problem(graph, DEVICES, costs, Constraints()), Schedule(places, (*range(len(places)),))


def times_of(steps: list[tuple[Problem, Schedule]]) -> list[float]:
    return [predicted_seconds(*step) + step[0].costs.step_seconds for step in steps]


def test_a_link_is_found_by_what_steps_take() -> None:
    steps = [drawn(exchange) for exchange in EXCHANGES]
    found = fit_link("grpc/host", EXCHANGES, steps, times_of(steps), PRIOR, WIRING)
    true = TRUE.links["grpc/host"]
    assert found.link.bandwidth == pytest.approx(true.bandwidth, rel=0.25)
    assert found.link.overhead == pytest.approx(true.overhead, rel=0.25)
    assert found.median_error < 0.03
    assert found.work_error < 0.05


def test_programs_that_take_longer_than_estimated_are_no_messages() -> None:
    few = [each for each in EXCHANGES if each.is_quick]
    steps = [drawn(exchange) for exchange in few]
    slower = [drawn(exchange, 1.5) for exchange in few]
    found = fit_link("grpc/host", few, steps, times_of(slower), PRIOR, WIRING)
    assert found.work_error == pytest.approx(0.5, abs=0.1)
    true, n_bytes = TRUE.links["grpc/host"], 1 << 20
    wanted = true.latency + n_bytes / true.bandwidth
    assert found.link.latency + n_bytes / found.link.bandwidth == pytest.approx(wanted, rel=0.25)


def test_programs_that_take_longer_on_another_task_are_not_what_that_task_adds() -> None:
    few = [each for each in EXCHANGES if each.is_quick]
    steps = [drawn(exchange) for exchange in few]
    measured = times_of([drawn(exchange, away=3.0) for exchange in few])
    found = fit_link("grpc/host", few, steps, measured, PRIOR, WIRING)
    assert found.task_seconds == pytest.approx(TRUE.task_seconds["grpc"], rel=0.3)


def test_the_kind_of_step_that_no_constants_explain_is_told() -> None:
    few = [each for each in EXCHANGES if each.is_quick]
    steps = [drawn(exchange) for exchange in few]
    slow = [
        taken * (5 if each.pattern is Pattern.SWAP else 1)
        for each, taken in zip(few, times_of(steps), strict=True)
    ]
    found = fit_link("grpc/host", few, steps, slow, PRIOR, WIRING)
    assert found.worst_error > 0.5
    right = fit_link("grpc/host", few, steps, times_of(steps), PRIOR, WIRING)
    assert right.worst_error < 0.1


def test_each_kind_of_exchange_sends_what_it_says() -> None:
    with Site("", time.perf_counter) as site:
        a, b = site.devices[:2]
        for pattern, factor in zip(Pattern, (0, 0, 1, 2, 2, 1), strict=True):
            step = exchange_step(site, LinkProbe(pattern, 3, 1 << 14), a, b)
            problem, schedule = region_problem(site.compiled(step))
            sent = [
                edge.n_bytes
                for edge in problem.graph.edges
                if any(
                    schedule.devices[c] != schedule.devices[edge.producer] for c in edge.consumers
                )
            ]
            assert sent == [16384.0] * 3 * factor, pattern  # too large to travel together
