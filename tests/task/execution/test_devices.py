"""Devices by their names, and what is moved to one before a program takes it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jflow.base.cluster import Device, Task
from jflow.base.values import NUMBERS
from jflow.task.execution import devices, local_devices, put
from jflow.task.execution.devices import SMALL_BYTES

TASK = Task("worker", 3)


class _FakeDevice:
    def __init__(self, platform):
        self.platform = platform


def test_this_process_has_the_cpu_devices_that_jax_has():
    devices = {d: j for d, j in local_devices(TASK).items() if d.type == "CPU"}
    assert list(devices) == [Device(TASK, "CPU", i) for i in range(len(jax.local_devices()))]
    assert list(devices.values()) == jax.local_devices(backend="cpu")


def test_accelerators_come_before_the_cpu_and_are_numbered_by_kind(monkeypatch):
    found = {None: [_FakeDevice("gpu"), _FakeDevice("gpu")], "cpu": [_FakeDevice("cpu")]}
    monkeypatch.setattr(jax, "local_devices", lambda backend=None: found[backend])
    devices = local_devices(TASK)
    assert [str(device) for device in devices] == [
        "/job:worker/task:3/device:GPU:0",
        "/job:worker/task:3/device:GPU:1",
        "/job:worker/task:3/device:CPU:0",
    ]
    assert list(devices.values()) == [*found[None], *found["cpu"]]


@pytest.mark.parametrize("dtype", [*NUMBERS.values()], ids=[*NUMBERS])
def test_a_small_numpy_array_goes_to_programs_as_it_is(dtype, monkeypatch):
    monkeypatch.setattr(jax, "device_put", _unexpected)
    for value in (np.ones((), dtype), np.ones(3, dtype)):
        assert put(value, _FakeDevice("gpu")) is value


def test_large_arrays_and_those_of_other_devices_are_moved(monkeypatch):
    moved = []
    monkeypatch.setattr(jax, "device_put", lambda value, device: moved.append(value))
    monkeypatch.setattr(devices, "to_device", lambda value, device: moved.append(value))
    large, elsewhere = np.zeros(SMALL_BYTES + 1, np.uint8), jnp.ones(())
    for value in (large, elsewhere):
        put(value, _FakeDevice("gpu"))
    assert [id(value) for value in moved] == [id(large), id(elsewhere)]


def _unexpected(*_):
    raise AssertionError("a value was moved that programs take as it is")
