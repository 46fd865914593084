"""The pipeline by itself: what it gives, and that it is a pure function of what it is given."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import jflow as tf
from jflow.base.cluster import Device, Task
from jflow.compiler.lowering.segment import HOISTED_BYTES
from jflow.compiler.pipeline import (
    CompiledStep,
    StepRequest,
    compile_placed,
    compile_step,
    prune_step,
)
from jflow.compiler.placement import Inventory, Placer, assign
from jflow.plan import Call, Run, xla

PS, WORKER = Task("ps", 0), Task("worker", 0)
DEVICES = {task: (Device(task, "CPU", 0),) for task in (PS, WORKER)}
PLATFORMS = {device: "cpu" for devices in DEVICES.values() for device in devices}
CLUSTER = Inventory(WORKER, (PS, WORKER), DEVICES, PLATFORMS)
HERE = Inventory(WORKER, (PS, WORKER), DEVICES)
LARGE = np.ones(HOISTED_BYTES, np.float32)


def _step() -> tuple[tf.Graph, StepRequest]:
    """Variables on another task, a feed, strings, a large constant and a control edge."""
    x = tf.placeholder("float32", (len(LARGE),), name="x")
    v = tf.Variable(np.zeros(len(LARGE), np.float32), name="v")
    with tf.control_dependencies([v.assign_add(x * LARGE, name="add")]):
        word = tf.identity(tf.constant(["a"]), name="word")
        total = tf.numpy.sum(v.read_value() * LARGE, name="total")
    return tf.get_default_graph(), StepRequest((), (total, word), (x,))


def _equal(one: CompiledStep, other: CompiledStep) -> None:
    assert one.placement == other.placement
    assert one.plans == other.plans
    assert one.artifacts.keys() == other.artifacts.keys()
    for name, artifact in one.artifacts.items():
        np.testing.assert_array_equal(artifact, other.artifacts[name])
    assert one.programs.keys() == other.programs.keys()
    for name, program in one.programs.items():
        assert str(program.jaxpr) == str(other.programs[name].jaxpr)
    assert (one.callbacks, one.n_fetches) == (other.callbacks, other.n_fetches)


@pytest.mark.parametrize("inventory", [HERE, CLUSTER])
def test_equal_requests_give_equal_plans(inventory: Inventory) -> None:
    graph, request = _step()
    _equal(compile_step(graph, request, inventory), compile_step(graph, request, inventory))


def test_the_halves_of_the_pipeline_give_what_the_whole_gives() -> None:
    graph, request = _step()
    ops = prune_step(graph, request)
    placement = assign(ops, Inventory(WORKER, (PS, WORKER))).place(DEVICES)
    assert list(placement) == ops
    _equal(compile_step(graph, request, CLUSTER), compile_placed(request, placement, PLATFORMS))


def test_for_a_cluster_every_artifact_is_named_by_its_digest() -> None:
    compiled = compile_step(*_step(), CLUSTER)
    assert not compiled.programs
    assert {plan.device.task for plan in compiled.plans} == {PS, WORKER}
    assert frozenset().union(*(plan.artifacts for plan in compiled.plans)) == {*compiled.artifacts}
    assert all(xla.digest_of(value) == name for name, value in compiled.artifacts.items())


def test_a_constant_of_two_programs_is_one_artifact() -> None:
    compiled = compile_step(*_step(), CLUSTER)
    users = [program for plan in compiled.plans for program in plan.programs if program.constants]
    assert len(users) == 2
    assert {name for program in users for name in program.constants} == {xla.digest_of(LARGE)}


def test_for_this_process_programs_stay_jaxprs() -> None:
    compiled = compile_step(*_step(), HERE)
    names = {program.digest for plan in compiled.plans for program in plan.programs}
    assert names == {*compiled.programs}
    assert {name for plan in compiled.plans for name in plan.constants} == {*compiled.artifacts}
    assert compiled.n_fetches == 2


def test_a_request_says_whether_to_look_for_nan() -> None:
    graph, request = _step()
    plain = compile_step(graph, request, HERE)
    checking = compile_step(graph, request._replace(checks_nans=True), HERE)
    assert not any(plan.checks_nans for plan in plain.plans)
    assert any(plan.checks_nans for plan in checking.plans)


def test_every_instruction_names_what_there_is() -> None:
    compiled = compile_step(*_step(), CLUSTER)
    for plan in compiled.plans:
        for instruction in (one for stage in plan.stages for one in stage):
            if isinstance(instruction, Run) and instruction.program is not None:
                assert instruction.program.digest in compiled.artifacts
                assert {*instruction.program.constants} <= compiled.artifacts.keys()
            elif isinstance(instruction, Call):
                assert {*instruction.constants} <= compiled.artifacts.keys()


@pytest.mark.parametrize("inventory", [HERE, CLUSTER], ids=["here", "cluster"])
def test_the_text_of_a_step_has_its_placement_its_plans_and_the_types_of_its_programs(
    inventory: Inventory,
) -> None:
    compiled = compile_step(*_step(), inventory)
    text = compiled.text()
    assert text.startswith("placement\n  /job:worker/task:0/device:CPU:0  constant\n")
    for plan in compiled.plans:
        assert f"plan for {plan.device}, {plan.n_slots} slots\n" in text
        assert all(str(instruction) in text for instruction in plan.instructions)
        for program in plan.programs:
            assert f"    {program}: (float32 ({len(LARGE)},)" in text
    assert text == compile_step(*_step_again(), inventory).text()


def _step_again() -> tuple[tf.Graph, StepRequest]:
    tf.reset_default_graph()
    return _step()


def test_an_operation_that_is_not_needed_is_not_placed() -> None:
    graph, request = _step()
    with tf.device("/job:chief"):
        tf.constant(1.0)
    compile_step(graph, request, CLUSTER)


def test_placing_again_leaves_state_where_it_is() -> None:
    x = tf.Variable(1.0)
    request = StepRequest((), (x.value(),), ())
    graph = tf.get_default_graph()
    handles = {x.op: DEVICES[WORKER][0]}
    assert {*compile_step(graph, request, HERE).placement.values()} == {*DEVICES[PS]}
    moved = compile_step(graph, request, HERE, handles=handles)
    assert {*moved.placement.values()} == {*DEVICES[WORKER]}


def test_another_strategy_places_all_operations_of_a_step() -> None:
    class Everywhere:
        """Places operations on all tasks in turns."""

        def __init__(self, ops, inventory, *, soft, handles) -> None:
            self._ops, self.tasks = ops, inventory.tasks

        def place(self, devices, memory=None):
            return {
                op: devices[self.tasks[i % len(self.tasks)]][0] for i, op in enumerate(self._ops)
            }

    a = tf.numpy.sin(tf.constant(1.0))
    request = StepRequest((), (tf.numpy.cos(a),), ())
    graph = tf.get_default_graph()
    compiled = compile_step(graph, request, HERE, strategy=Everywhere)
    assert [device.task for device in compiled.placement.values()] == [PS, WORKER, PS]
    placer = Placer(soft=False, log=False, strategy=Everywhere)
    assert placer.assign([a.op], HERE).place(DEVICES) == {a.op: DEVICES[PS][0]}


ALONE = """
import importlib, sys, types
root = types.ModuleType("jflow")
root.__path__ = [sys.argv[1]]
sys.modules["jflow"] = root  # whose own file imports everything

import numpy as np
from jflow.base.cluster import Device, Task
from jflow.compiler.graph import Graph
from jflow.compiler.pipeline import StepRequest, compile_step
from jflow.compiler.placement import Inventory

task = Task("worker", 0)
device = Device(task, "CPU", 0)
graph = Graph()
x = graph.constant(np.float32(2.0), name="x")
(y,) = [graph.apply(lambda a: a * 3, (x,))]
for platforms in (None, {device: "cpu"}):
    inventory = Inventory(task, (task,), {task: (device,)}, platforms)
    compiled = compile_step(graph, StepRequest((), (y,), ()), inventory)
    assert set(compiled.placement.values()) == {device}
    assert len(compiled.plans) == 1
    assert bool(compiled.programs) == (platforms is None)
    assert bool(compiled.artifacts) == (platforms is not None)
print(*sys.modules)
"""


def test_it_runs_in_a_process_that_knows_nothing_of_state_or_of_running() -> None:
    found = subprocess.run(
        [sys.executable, "-c", ALONE, tf.__path__[0]], capture_output=True, text=True, check=True
    )
    loaded = set(found.stdout.split())
    assert {"jflow.plan", "jflow.compiler.pipeline", "jflow.compiler.lowering"} <= loaded
    running = ("jflow.state.resources", "jflow.net", "jflow.task", "jflow.client")
    assert not [name for name in loaded if name.startswith(running)]
