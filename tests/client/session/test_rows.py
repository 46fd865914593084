"""Sessions as TensorFlow's users know them, each behaviour on every backend."""

from __future__ import annotations

import pytest

import jflow as tf
from jflow.base.cluster import Device, DeviceSpec, Task
from tests.clusters import Backend


def task_of(device: str) -> Task:
    """The task of one of the devices of a backend."""
    spec = DeviceSpec.parse(device)
    return Task(spec.job or "localhost", spec.task or 0)


def test_devices_of_the_sessions_own_server_come_first_and_compute_what_asks_for_none(
    backend: Backend,
) -> None:
    y = tf.constant(1.0) + 1.0
    for i in range(len(backend.targets)):
        own = task_of(backend.devices[i])
        with backend.session(i) as session:
            infos = session.list_devices()
            tasks = [Device.parse(info.name).task for info in infos]
            assert {place.task for place in session.placement(y).values()} == {own}
            assert session.run(y) == 2.0
        n_own = tasks.count(own)
        assert tasks[:n_own] == [own] * n_own
        assert len({*tasks}) == (2 if backend.shared else 1)
        for info in infos:
            assert Device.parse(info.name).type == info.device_type
            assert (info.incarnation != 0) == backend.shared
            assert info.memory_limit_bytes > 2**20


def test_only_what_is_needed_runs_and_each_operation_once(backend: Backend) -> None:
    used, before, unused = (tf.Variable(0.0, name=name) for name in ("used", "before", "unused"))
    unused.assign_add(1.0)
    first, second = used.assign_add(1.0), before.assign_add(1.0)
    with tf.device(backend.devices[1]), tf.control_dependencies([second]):
        end = first * 10.0
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run([end, {"again": end}, first, end.op, first.op]) == [
            *(10.0, {"again": 10.0}, 1.0, None, None)
        ]
        assert session.run([used, before, unused]) == [1.0, 1.0, 0.0]


def test_what_a_fed_tensor_waited_for_does_not_run(backend: Backend) -> None:
    count = tf.Variable(0.0, name="count")
    with tf.control_dependencies([count.assign_add(1.0)]):
        value = tf.constant(2.0)
    tripled = value * 3.0
    with backend.session() as session:
        session.run(count.initializer)
        assert session.run(tripled, {value: 5.0}) == 15.0
        assert session.run(count) == 0.0
        assert session.run(tripled) == 6.0
        assert session.run(count) == 1.0


def test_a_callable_goes_on_with_the_state_while_its_graph_grows(backend: Backend) -> None:
    x, by = tf.Variable(1.0, name="x"), tf.placeholder(tf.float32, ())
    with backend.session() as session:
        session.run(x.initializer)
        call = session.make_callable([x * by], [by])
        assert call(2.0) == [2.0]
        session.run(x.assign_add(1.0))
        assert call(3.0) == [6.0]
    with pytest.raises(RuntimeError, match="Attempted to use a closed Session"):
        call(1.0)


def test_an_error_on_two_devices_is_the_cause_and_keeps_a_long_message(backend: Backend) -> None:
    x, words = tf.placeholder(tf.float32, ()), tf.constant("long" * 20_000)
    checks = []
    for i, device in enumerate(backend.devices[:2]):
        with tf.device(device):
            checks.append(tf.Assert(x > 0, [words], name=f"check{i}"))
    with backend.session() as session:
        # What the other device does is cancelled, but that is not what is reported.
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            session.run(checks, {x: -1.0})
        session.run(checks, {x: 1.0})
    error = raised.value
    assert error.error_code == tf.errors.Code.INVALID_ARGUMENT
    assert error.op in ("check0", "check1")
    assert "long" * 20_000 in error.message
    assert f"{__file__}:" in error.message
    if backend.shared:
        assert error.task == str(task_of(backend.devices[int(error.op[-1])]))
