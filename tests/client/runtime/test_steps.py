"""What the runtime asks a backend for on the way of a step, and in which order."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import jax
import numpy as np
import pytest

import jflow as tf
from jflow.base.cluster import Device, Task
from jflow.base.deadline import FOREVER, Deadline
from jflow.client.runtime.steps import place_step, register_step
from jflow.compiler.pipeline import CompiledStep, StepRequest
from jflow.compiler.placement import Inventory, Placer
from tests.clusters import BACKENDS

TASKS = (Task("ps", 0), Task("worker", 0), Task("worker", 1))


class _Backend:
    """Notes what it is asked; programs for it are exported."""

    owner = "a session"
    keeps_weak_types = False
    tasks_leave = False

    def __init__(self) -> None:
        self.requested: list[set[Task]] = []
        self.registered: list[CompiledStep] = []

    def inventory(self, tasks: Collection[Task], deadline: Deadline) -> Inventory:
        self.requested.append({*tasks})
        devices = {task: [Device(task, "CPU", 0)] for task in tasks}
        platforms = {device: "cpu" for found in devices.values() for device in found}
        return Inventory(TASKS[1], TASKS, devices, platforms)

    def forget_members(self) -> None:
        pass

    def register(self, compiled: CompiledStep) -> Any:
        self.registered.append(compiled)
        return "an executable"


def _request(*fetches: tf.Tensor) -> tuple[tf.Graph, StepRequest]:
    return tf.get_default_graph(), StepRequest((), fetches, ())


def test_only_tasks_that_a_step_needs_are_asked_all_at_once() -> None:
    with tf.device("/job:worker/task:1"):
        tf.numpy.cos(tf.constant(1.0))
    v = tf.Variable(1.0)
    backend: Any = _Backend()
    request = _request(tf.numpy.sin(v))
    placer = Placer(soft=False, log=False)
    places = place_step(*request, backend, placer, FOREVER)
    assert {device.task for device in places.values()} == {TASKS[0], TASKS[1]}
    assert backend.requested == [set(), {TASKS[0], TASKS[1]}]
    assert not backend.registered


def test_a_task_that_does_not_exist_is_an_error_before_any_task_is_asked() -> None:
    with tf.device("/job:chief"):
        lost = tf.constant(1.0)
    backend: Any = _Backend()
    with pytest.raises(tf.errors.InvalidArgumentError, match="available are"):
        place_step(*_request(lost), backend, Placer(soft=False, log=False), FOREVER)
    assert backend.requested == [set(), set()], "it may have joined just now"


def test_a_registered_step_is_compiled_for_the_platforms_that_tasks_tell() -> None:
    backend: Any = _Backend()
    graph, request = _request(tf.constant(1.0) + 1)
    placer = Placer(soft=False, log=False)
    executable: Any = register_step(graph, request, backend, placer, FOREVER)
    assert executable.inner == "an executable"
    (compiled,) = backend.registered
    assert compiled.placement == place_step(graph, request, backend, placer, FOREVER)
    assert compiled.artifacts
    assert not compiled.programs


def test_state_stays_where_the_first_step_put_it() -> None:
    with tf.Graph().as_default() as graph:
        v = tf.Variable(1.0)
        placer, backend = Placer(soft=False, log=False), _Backend()
        request = StepRequest((), (v.value(),), ())
        first = place_step(graph, request, backend, placer, FOREVER)  # type: ignore[arg-type]
        with tf.colocate_with(v), tf.device("/job:worker/task:1"):
            tf.no_op()
        assert place_step(graph, request, backend, placer, FOREVER) == first  # type: ignore[arg-type]


def test_a_session_on_a_cluster_asks_each_task_but_its_own_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from jflow.net.protocol import MasterClient, MasterSession  # noqa: PLC0415 - only with a cluster

    requested: list[Any] = []
    call = MasterClient.call

    def listing(self: Any, method: Any, *arguments: Any) -> Any:
        if method is MasterSession.list_devices:
            requested.extend(arguments[0])
        return call(self, method, *arguments)

    with BACKENDS["in_process"]() as cluster, tf.Graph().as_default():
        steps = []
        for device in cluster.devices:
            with tf.device(device):
                steps.append(tf.numpy.sin(tf.constant(1.0)))
        with cluster.session() as session:
            own = Device.parse(session.list_devices()[0].name).task
            monkeypatch.setattr(MasterClient, "call", listing)
            for step in steps:
                session.run(step)
            session.run(steps)
            session.placement(steps)
    others = {Device.parse(d).task for d in cluster.devices} - {own}
    assert others
    assert sorted(requested) == sorted(others), "the devices of its own are in the handshake"


def test_a_step_that_calls_python_is_not_started_on_a_cluster() -> None:
    """What is started waits for nothing, so that no thread of the client could call it."""
    with BACKENDS["in_process"]() as cluster, tf.Graph().as_default(), cluster.session() as session:
        x = tf.constant(1.0)
        y = tf.function(lambda x: jax.pure_callback(np.sin, x, x, vmap_method="sequential"))(x)
        assert session.run(y) == np.sin(np.float32(1))
        (executable,) = session._steps._executables.values()
        with pytest.raises(tf.errors.UnimplementedError, match="calls Python"):
            executable.start([], FOREVER)
