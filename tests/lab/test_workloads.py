"""Workloads: what they compute does not depend on where their operations and variables are."""

from __future__ import annotations

import math

import pytest

import jflow as tf
from jflow import errors
from jflow.compiler.schedule import scheduled, simulate
from jflow.compiler.schedule.strategies import STRATEGIES
from jflow.lab.measure import TOLERANCE, single_device_losses
from jflow.lab.workloads import WORKLOADS
from jflow.lab.workloads.workload import problem_of, simulated_devices

DEVICES = ["/device:CPU:0", "/device:CPU:1", "/device:CPU:2"]


def scattered(graph, devices, costs, constraints):
    """A strategy that puts each class on the next of its devices, so that most tensors move."""
    chosen = {}
    for operation, number in zip(graph.operations, constraints.classes, strict=True):
        allowed = constraints.allowed.get(number, range(len(devices)))
        chosen[operation] = devices[allowed[number % len(allowed)]]
    return chosen


def losses(name: str, placement) -> list[float]:
    """The losses of a small step on three devices, over which its variables are distributed."""
    step = WORKLOADS[name].build("small", DEVICES)
    config = tf.ConfigProto(placement=placement)
    with tf.Session(graph=step.graph, config=config) as session:
        session.run(step.initialize)
        return step.losses(session)


LARGE = pytest.mark.long
"""Compiling the programs that a scattered graph falls into takes seconds."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "actor_learner" else LARGE, id=name)
        for name in WORKLOADS
    ],
)
def test_a_scattered_workload_trains_as_on_one_device(name) -> None:
    wanted = single_device_losses(WORKLOADS[name].build("small"))
    assert losses(name, scattered) == pytest.approx(wanted, rel=TOLERANCE)
    assert wanted[0] > wanted[1] > wanted[2], "it learns"


@pytest.mark.long
@pytest.mark.parametrize("placement", ["rules", *STRATEGIES])
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_trains_as_on_one_device_under_every_strategy(name, placement) -> None:
    wanted = single_device_losses(WORKLOADS[name].build("small"))
    assert losses(name, placement) == pytest.approx(wanted, rel=TOLERANCE)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_is_a_problem_of_a_cluster_that_need_not_exist(name) -> None:
    servers = [str(device) for device in simulated_devices(4)]
    problem = problem_of(WORKLOADS[name].build("small", servers), 4)
    alone = simulate(problem, scheduled(problem, STRATEGIES["etf_c"])).makespan
    assert 0 < alone < math.inf
    free = [i for i, n in enumerate(problem.constraints.classes) if _is_free(problem, n)]
    assert len(free) > 5, "operations between which a strategy chooses"


def _is_free(problem, number: int) -> bool:
    return len(problem.constraints.allowed.get(number, problem.devices)) > 1


def test_equal_arguments_give_equal_graphs() -> None:
    first, second = (WORKLOADS["moe"].build("small", DEVICES) for _ in range(2))
    assert str(first.graph) == str(second.graph)
    assert str(first.graph) != str(WORKLOADS["moe"].build("small").graph)


def test_an_unknown_scale_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="no scale 'huge', but small, cpu, large"):
        WORKLOADS["mlp"].build("huge")
