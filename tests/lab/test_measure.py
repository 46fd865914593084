"""Measurements on real processes: what is measured is the placement that was asked for."""

from __future__ import annotations

import math
import os
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import jflow as tf
from jflow import errors
from jflow.compiler.placement.calibration import PRIOR
from jflow.compiler.schedule import scheduled
from jflow.compiler.schedule.strategies import STRATEGIES
from jflow.lab.calibration.site import alternated
from jflow.lab.families import random_problem
from jflow.lab.fused import FusedStep
from jflow.lab.measure import (
    FUSED,
    Measurement,
    MeasuringCluster,
    RecordedStrategy,
    cores_for,
)
from jflow.lab.workloads import WORKLOADS


def test_turns_alternate_and_each_counts() -> None:
    order: list[str] = []
    times = alternated([lambda: order.append("a"), lambda: order.append("b")], rounds=3)
    assert [len(found) for found in times] == [3, 3]
    called = "".join(order[6:])  # after three uncounted calls each
    assert sum(a != b for a, b in pairwise(called)) == 5


def test_a_recorded_strategy_answers_as_the_strategy_does() -> None:
    problem = random_problem("layered", 20, 3)
    recorded = RecordedStrategy("heft")
    answer = recorded.place(*problem)
    assert answer == scheduled(problem, STRATEGIES["heft"])
    assert recorded.answered()[1] == answer
    assert recorded.name == "heft"
    assert recorded.seconds > 0


def test_a_strategy_is_asked_once_about_the_same_operations() -> None:
    problem = random_problem("layered", 20, 3)
    recorded = RecordedStrategy("random")
    answer = recorded.place(*problem)
    # As when the state that the strategy has placed is somewhere.
    allowed = {i: (device,) for i, device in enumerate(answer.devices)}
    again = problem._replace(constraints=replace(problem.constraints, allowed=allowed))
    assert recorded.place(*again) is answer
    assert len(recorded.place(*random_problem("layered", 30, 3)).devices) == 30


def test_the_rules_have_no_alternatives_to_check() -> None:
    with pytest.raises(ValueError, match="'rules' has chosen among no alternatives"):
        RecordedStrategy("rules").answered()


def test_noise_is_relative_to_the_median() -> None:
    found = Measurement("single", (1.0, 2.0, 3.0), 1.0, 1.0, 0.0, 1, 0.0)
    assert (found.minimum, found.median, found.noise) == (1.0, 2.0, 0.5)
    assert found.is_correct
    assert not Measurement("single", (1.0,), 1.0, 1.0, 1e-3, 1, 0.0).is_correct


def test_processes_share_cores_in_turns_where_there_are_too_few() -> None:
    available = sorted(os.sched_getaffinity(0))
    assert cores_for(len(available) + 1) == [*available, available[0]]


def test_a_core_that_is_not_there_is_refused_before_a_process_starts() -> None:
    with pytest.raises(ValueError, match="not \\[100000\\]"):
        tf.LocalCluster(ps=0, workers=1, cores=[100_000])
    with pytest.raises(ValueError, match="a core for each of 2 tasks"):
        tf.LocalCluster(ps=0, workers=2, cores=[0])


def test_placements_are_measured_beside_each_other_on_pinned_processes(leaves_nothing) -> None:
    cores = cores_for(2)
    with MeasuringCluster(2) as cluster:
        assert [os.sched_getaffinity(cluster.pid(i)) for i in (0, 1)] == [{core} for core in cores]
        # As if calibrated on a machine on which the reference program takes an hour.
        cluster._calibration = replace(PRIOR, reference_seconds=3600.0)
        found = cluster.measure(WORKLOADS["mlp"], "small", ["single", "round_robin"], rounds=2)
    assert all(0 < each.slowdown < 1 for each in found.values())
    assert [*found] == ["single", "round_robin"]
    assert all(each.is_correct and len(each.times) == 2 for each in found.values())
    assert found["round_robin"].n_devices_used == 2
    assert all(each.predicted > 0 and each.staged > 0 for each in found.values())


@pytest.mark.parametrize("is_spread", [False, True])
def test_all_strategies_have_the_same_freedom_about_state(is_spread, monkeypatch) -> None:
    seen: list[dict[str, set[str]]] = []
    monkeypatch.setattr(MeasuringCluster, "_sessions", watched(MeasuringCluster._sessions, seen))
    with MeasuringCluster(2) as cluster:
        names = ["single", "round_robin", last_device]
        found = cluster.measure(WORKLOADS["mlp"], "small", names, rounds=1, is_spread=is_spread)
    single, _, last = seen
    assert all(each.is_correct for each in found.values())
    tasks = {task for used in single.values() for task in used}
    if is_spread:  # a pin is one for every strategy
        assert single == last
    else:
        assert tasks == {"/job:worker/task:0"}
        assert {task for used in last.values() for task in used} == {"/job:worker/task:1"}


def last_device(graph, devices, costs, constraints):
    classes, allowed = constraints.classes, constraints.allowed
    every = range(len(devices))
    return {
        op: devices[allowed.get(classes[i], every)[-1]] for i, op in enumerate(graph.operations)
    }


def watched(sessions, seen):
    """`MeasuringCluster._sessions`, which notes the tasks of the variables of each step."""

    @contextmanager
    def noting(self, steps, placements):
        with sessions(self, steps, placements) as opened:
            for step, session in opened:
                placement = session.placement(step.train)
                used: dict[str, set[str]] = {}
                for op, device in placement.items():
                    for variable in step.graph.get_collection("variables"):
                        if op.name.startswith(f"{variable.op.name}/"):
                            used.setdefault(variable.op.name, set()).add(str(device.task))
                seen.append(used)
            yield opened

    return noting


@pytest.mark.long
def test_the_fused_step_trains_as_a_session_does() -> None:
    step = WORKLOADS["mlp"].build()
    fused = FusedStep(step)
    with tf.Session(graph=step.graph) as session:
        session.run(step.initialize)
        for _ in range(2):
            fused.run_step()
            session.run(step.train)
        for variable in step.graph.get_collection("variables"):
            found = fused.variables[variable.op.name]
            np.testing.assert_allclose(found, session.run(variable), rtol=1e-5, atol=1e-6)


def test_a_step_that_uses_a_queue_is_no_single_program() -> None:
    with pytest.raises(errors.UnimplementedError, match="is no single program"):
        FusedStep(WORKLOADS["actor_learner"].build())


@pytest.mark.long
def test_the_fused_step_takes_turns_with_placements() -> None:
    with MeasuringCluster(1) as cluster:
        found = cluster.measure(WORKLOADS["mlp"], "small", ["auto"], rounds=2, with_fused=True)
    assert [*found] == ["auto", FUSED]
    assert len(found[FUSED].times) == 2


@pytest.mark.long
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_is_correct_on_processes(name) -> None:
    with MeasuringCluster(2) as cluster:
        found = cluster.measure(WORKLOADS[name], "small", ["rules", "heft_c"], rounds=1)
    assert all(each.is_correct for each in found.values()), found


@pytest.mark.long
def test_stages_on_meshes_are_measured_beside_their_prediction() -> None:
    with MeasuringCluster(2, mesh={"model": 2}) as cluster:
        assert cluster.devices[1] == "/job:worker/task:1/device:MESH:0[model=2]"
        found = cluster.measure(
            WORKLOADS["pipelined"], "small", ["auto"], rounds=2, is_spread=True
        )["auto"]
    assert found.is_correct, found
    assert 0 < found.predicted < math.inf
    assert 0 < found.staged < math.inf


@pytest.mark.long
def test_alternatives_that_explain_predicts_run_where_they_are_pinned() -> None:
    with MeasuringCluster(2) as cluster:
        found = cluster.check_alternatives(WORKLOADS["moe"], "cpu", "heft_c", seed=1)
    assert len({each.operation for each in found}) == 3
    assert len(found) == 6, "two devices for each operation"
    assert sum(each.is_chosen for each in found) == 3
    chosen = {each.predicted for each in found if each.is_chosen}
    assert len(chosen) == 1, "all of them are the strategy's own schedule"
    assert all(math.isfinite(np.median(each.times)) for each in found)
