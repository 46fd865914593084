"""How a task identifies a variable."""

from __future__ import annotations

from typing import NamedTuple

from jflow.base.cluster import Device
from jflow.plan import VariableKey


class VariableId(NamedTuple):
    """Identifies a variable of a task; the default container is ""."""

    container: str
    device: str
    name: str

    @classmethod
    def of(cls, device: Device, key: VariableKey) -> VariableId:
        """The variable that a plan for a device names."""
        container = "" if key.container == device.task.job else key.container
        return cls(container, str(device), key.name)

    def __str__(self) -> str:
        return f"variable {self.name!r} (container {self.container!r}) on {self.device}"
