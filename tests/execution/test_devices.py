import jax

from jflow.cluster import Device, Task
from jflow.execution import local_devices

TASK = Task("worker", 3)


class _FakeDevice:
    def __init__(self, platform):
        self.platform = platform


def test_this_process_has_the_cpu_devices_that_jax_has():
    devices = {d: j for d, j in local_devices(TASK).items() if d.type == "CPU"}
    assert list(devices) == [Device(TASK, "CPU", i) for i in range(3)]
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
