"""Ports that transfers occupy for a part of their time, and ports that serve both directions."""

from __future__ import annotations

import numpy as np
import pytest

from jflow.compiler.schedule import (
    BUFFERED,
    ONE_PORT,
    Constraints,
    Costs,
    Problem,
    Schedule,
    graph_of,
    simulate,
)
from jflow.compiler.schedule.partial import PartialSchedule
from jflow.errors import InvalidArgumentError

OFF = 1.0 - np.eye(3)


def problem(edges, n: int, **options: object) -> Problem:
    """Operations and bytes of one second each on three devices."""
    costs = Costs(np.ones((n, 3)), 0 * OFF, OFF, **options)
    return Problem(graph_of(range(n), edges), [*"abc"], costs, Constraints()).checked()


def starts(problem: Problem, devices: tuple[int, ...]) -> tuple[float, ...]:
    """When operations start, in the simulator and in a schedule that books ports."""
    simulated = simulate(problem, Schedule(devices, tuple(range(len(devices))))).start
    partial = PartialSchedule(problem, books_ports=True)
    for operation, device in enumerate(devices):
        partial.place(operation, device)
    assert tuple(partial.start) == pytest.approx(simulated)
    return simulated


@pytest.mark.parametrize(("port_share", "last"), [(1.0, 9.0), (0.5, 7.0), (0.0, 5.0)])
def test_a_transfer_waits_for_the_share_of_the_one_before(port_share: float, last: float) -> None:
    fork = problem([(0, 1, 4.0), (0, 2, 4.0)], 3, port_share=port_share)
    assert starts(fork, (0, 1, 2)) == (0.0, 5.0, last)


@pytest.mark.parametrize(("half_duplex", "last"), [(False, 5.0), (True, 9.0)])
def test_a_device_that_sends_receives_at_the_same_time_unless_it_is_half_duplex(
    half_duplex: bool, last: float
) -> None:
    # a sends to b from 1 s on, c sends to a from 1 s on.
    crossing = problem([(0, 2, 4.0), (1, 3, 4.0)], 4, half_duplex=half_duplex)
    assert starts(crossing, (0, 2, 1, 0)) == (0.0, 0.0, 5.0, last)


@pytest.mark.parametrize(("network", "last"), [(ONE_PORT, 10.0), (BUFFERED, 6.0)])
def test_with_buffers_a_busy_receiver_does_not_hold_up_what_is_sent_to_others(
    network: str, last: float
) -> None:
    # c receives from a until 5 s, so it receives from b until 9 s; b also sends to a.
    edges = [(0, 2, 4.0), (1, 3, 4.0), (1, 4, 1.0)]
    crossing = problem(edges, 5, network=network)
    assert starts(crossing, (0, 1, 2, 2, 0)) == (0.0, 0.0, 5.0, 9.0, last)


@pytest.mark.parametrize(
    "options", [{"port_share": 1.5}, {"port_share": -0.1}, {"step_seconds": -1.0}]
)
def test_shares_and_steps_out_of_range_are_refused(options) -> None:
    with pytest.raises(InvalidArgumentError, match="port_share from 0 to 1"):
        problem([], 1, **options)
