"""The devices of this process under the names that its task gives them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import jax

from jflow.cluster import Device, Task
from jflow.values import is_host, is_switched_off


def local_devices(task: Task) -> Mapping[Device, jax.Device]:
    """JAX's devices by their name in the cluster, accelerators before CPUs."""
    found = jax.local_devices()
    if all(device.platform != "cpu" for device in found):
        found = [*found, *jax.local_devices(backend="cpu")]
    return _named(task, tuple(found))


@lru_cache
def _named(task: Task, found: Sequence[jax.Device]) -> Mapping[Device, jax.Device]:
    counts: Counter[str] = Counter()
    named = {}
    for device in found:
        kind = device.platform.upper()
        named[Device(task, kind, counts[kind])] = device
        counts[kind] += 1
    return MappingProxyType(named)


def put(value: Any, device: jax.Device) -> Any:
    """A value where programs of a device take it: on the device, or for host tensors as it is.

    JAX would truncate 64-bit values, which programs cannot take.
    """
    stays = is_host(value) or is_switched_off(value.dtype)
    return value if stays else jax.device_put(value, device)
