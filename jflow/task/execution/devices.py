"""The devices of this process, and meshes of them, by their names in the cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from jflow.base.cluster import Device, Task
from jflow.base.values import is_string_tensor, is_switched_off
from jflow.plan.xla.hardware import DeviceOrMesh, mesh_on
from jflow.plan.xla.internals import to_device

SMALL_BYTES = 4096
"""Up to this size, in bytes, a program takes a NumPy array in less time than `device_put` does."""

_N_MESHES = 256
"""How many meshes are kept by their names."""


class DevicesOfTask(Mapping[Device, DeviceOrMesh]):
    """The devices of a task by their names; also finds meshes of them, which it does not list.

    Args:
      devices: the devices.
    """

    def __init__(self, devices: Mapping[Device, jax.Device]) -> None:
        self._devices = devices
        self._meshes: dict[Device, jax.sharding.Mesh] = {}

    def __getitem__(self, device: Device) -> DeviceOrMesh:
        if not device.axes:
            return self._devices[device]
        if device not in self._meshes:
            members = device.members([*self._devices])
            if len(members) < device.n_devices or members[0].task != device.task:
                raise KeyError(device)
            found = [self._devices[one] for one in members]
            if len(self._meshes) >= _N_MESHES:
                self._meshes.clear()  # JAX has one object for equal meshes
            self._meshes[device] = mesh_on(device.axes, found)
        return self._meshes[device]

    def __iter__(self) -> Iterator[Device]:
        return iter(self._devices)

    def __len__(self) -> int:
        return len(self._devices)


class DevicesByName(Mapping[str, DeviceOrMesh]):
    """The devices of a task, and meshes of them, by their full names.

    Args:
      devices: the devices.
    """

    def __init__(self, devices: Mapping[Device, DeviceOrMesh]) -> None:
        self._devices = devices

    def __getitem__(self, name: str) -> DeviceOrMesh:
        try:
            return self._devices[Device.parse(name)]
        except ValueError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return map(str, self._devices)

    def __len__(self) -> int:
        return len(self._devices)


def local_devices(
    task: Task, counts: Mapping[str, int] = MappingProxyType({})
) -> Mapping[Device, jax.Device]:
    """Returns the devices of JAX by their names in the cluster, accelerators before CPUs.

    Args:
      task: the task that has them.
      counts: the largest number of devices of a type.
    """
    devices = jax.local_devices()
    if all(device.platform != "cpu" for device in devices):
        devices = [*devices, *jax.local_devices(backend="cpu")]
    named = _name_devices(task, tuple(devices))
    if not counts:
        return named
    return {
        one: devices
        for one, devices in named.items()
        if one.index < counts.get(one.type, 1 + one.index)
    }


@lru_cache
def _name_devices(task: Task, devices: Sequence[jax.Device]) -> Mapping[Device, jax.Device]:
    counts: Counter[str] = Counter()
    named = {}
    for device in devices:
        kind = device.platform.upper()
        named[Device(task, kind, counts[kind])] = device
        counts[kind] += 1
    return MappingProxyType(named)


def put(value: Any, device: DeviceOrMesh) -> Any:
    """Moves a value to a device for use by programs; host tensors stay as they are.

    A program on a mesh distributes what it takes itself.

    NumPy arrays also stay if they are small, as fed values do, or if the device is a CPU, because
    programs there take them without a copy; and 64-bit values if JAX has 64-bit types disabled,
    because JAX would truncate them.
    """
    if isinstance(device, jax.sharding.Mesh):
        return value
    if is_string_tensor(value) or is_switched_off(value.dtype):
        return value
    if not isinstance(value, np.ndarray):
        return jax.device_put(value, device)
    stays = device.platform == "cpu" or value.nbytes <= SMALL_BYTES
    return value if stays else to_device(value, device)
