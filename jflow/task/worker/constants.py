"""Cache of the constants of programs and host functions, by digest and device."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import jax

from jflow.base.values import memory_bytes
from jflow.net.protocol import Array
from jflow.task.execution.devices import put


class ConstantCache:
    """LRU cache of arrays by digest and device; thread-safe.

    Args:
      capacity_bytes: how much to keep; linked plans keep their constants alive beyond it.
    """

    def __init__(self, capacity_bytes: int = 4 << 30) -> None:
        self._capacity_bytes = capacity_bytes
        self._lock = threading.Lock()
        self._arrays: OrderedDict[tuple[str, str], Any] = OrderedDict()

    def has(self, digest: str, device: jax.Device) -> bool:
        """Whether the constant is on the device."""
        with self._lock:
            return (digest, str(device)) in self._arrays

    def get(self, digest: str, device: jax.Device, source: Callable[[], Array]) -> Any:
        """A constant on the device, transferred from `source()` if it is not cached; see `put`."""
        key = (digest, str(device))
        with self._lock:
            if key not in self._arrays:
                self._arrays[key] = put(source(), device)
            self._arrays.move_to_end(key)
            array = self._arrays[key]
            while sum(map(memory_bytes, self._arrays.values())) > self._capacity_bytes:
                self._arrays.popitem(last=False)
        return array
