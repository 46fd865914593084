"""The memory of devices is a constraint of strategies in sessions; the rules do not know it."""

from __future__ import annotations

from collections import Counter

import jax
import numpy as np
import pytest

import jflow as tf
from jflow import errors
from jflow.base.cluster import Device, Task
from jflow.compiler.placement import Inventory
from jflow.compiler.placement.memory import resident_bytes
from jflow.compiler.placement.scheduled import ByFunction
from jflow.compiler.schedule.strategies import STRATEGIES
from tests.clusters import in_process

SHIPPED = [name for name in STRATEGIES if name != "metis"]
"""Those that need no package that may not be there."""

TASK = Task("worker", 0)
DEVICES = tuple(Device(TASK, "CPU", i) for i in range(3))


@pytest.fixture
def one_kibibyte(monkeypatch) -> None:
    """Each device of what starts meanwhile can keep 1024 bytes."""
    monkeypatch.setenv("JFLOW_DEVICE_MEMORY", "1KiB")


def variable(name: str = "v", device: str = "") -> tf.Variable:
    """A variable of 800 bytes."""
    with tf.device(device or None):
        return tf.Variable(np.ones(200, np.float32), name=name)


def config(placement) -> tf.ConfigProto:
    return tf.ConfigProto(placement=placement)


def test_a_variable_counts_once() -> None:
    with tf.Graph().as_default() as graph:
        v = variable()
        _ = v + v.assign_add(np.ones(200, np.float32))
        assert sum(resident_bytes(graph.get_operations())) == 800


def all_on_the_second(graph, devices, costs, constraints):
    return {
        op: devices[1 if 1 in constraints.allowed.get(number, range(len(devices))) else 0]
        for op, number in zip(graph.operations, constraints.classes, strict=True)
    }


# What a session refuses


@pytest.mark.parametrize("placement", ["auto", "heft", all_on_the_second])
def test_variables_that_do_not_fit_on_their_device_are_refused(one_kibibyte, placement) -> None:
    y = variable("v") + variable("w")
    wanted = r"CPU:0 can keep 1024 bytes.*576 more \(.*v.*\); request other devices"
    with tf.Session(config=config(placement)) as session:
        for fetch in (tf.global_variables_initializer(), y):
            with pytest.raises(errors.ResourceExhaustedError, match=wanted):
                session.run(fetch)


def test_variables_that_fit_run(one_kibibyte) -> None:
    y = variable("v", "/cpu:1") + variable("w", "/cpu:2")
    with tf.Session(config=config("auto")) as session:
        session.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(session.run(y), np.full(200, 2.0))


def test_the_rules_know_no_limit(one_kibibyte) -> None:
    y = variable("v") + variable("w")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(y)[0] == 2.0


def test_a_cluster_tells_what_its_devices_can_keep(one_kibibyte) -> None:
    with in_process({"worker": 1, "ps": 1}) as backend:
        v, w = variable("v"), variable("w")
        with backend.session(config=config("heft")) as session:
            limits = {(d.device_type, d.memory_limit_bytes) for d in session.list_devices()}
            assert limits == {("CPU", 1024), ("MESH", 1024 * jax.local_device_count())}
            for use in (session.run, session.explain):
                with pytest.raises(errors.ResourceExhaustedError, match=r"job:ps.*576 more"):
                    use(v + w)


def test_state_does_not_move_to_where_it_does_not_fit(one_kibibyte) -> None:
    y = variable("v") + variable("w")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(y)
        with pytest.raises(errors.InvalidArgumentError, match="576 more than it can"):
            session.replace(all_on_the_second)
        assert session.run(y)[0] == 2.0


# What strategies may choose


def placed(name: str, n_variables: int, limit: float) -> Counter[Device]:
    """How many variables of 800 bytes a strategy that places state puts on each device."""
    with tf.Graph().as_default() as graph:
        for i in range(n_variables):
            _ = variable(f"v{i}") * 2.0
    ops = [op for op in graph.get_operations() if op.type in ("read", "mul")]
    inventory = Inventory(
        TASK, (TASK,), {TASK: DEVICES}, memory=dict.fromkeys(DEVICES, limit) if limit else {}
    )
    strategy = ByFunction(STRATEGIES[name], places_state=True)
    found = strategy(ops, inventory, soft=False, handles={})
    found = found.place(inventory.devices, inventory.memory)
    return Counter(device for op, device in found.items() if op.type == "read")


@pytest.mark.parametrize("name", SHIPPED)
def test_each_strategy_keeps_on_a_device_what_it_has_room_for(name) -> None:
    assert placed(name, 3, 1000.0) == dict.fromkeys(DEVICES, 1)
    with pytest.raises(errors.ResourceExhaustedError, match="memory limit"):
        placed(name, 4, 1000.0)


def test_devices_of_unknown_memory_have_no_limit() -> None:
    assert placed("single", 4, 0.0) == {DEVICES[0]: 4}
