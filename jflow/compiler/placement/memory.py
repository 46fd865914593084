"""Memory in placement: what variables keep on a device, and what devices can keep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from jflow.base.cluster import Device
from jflow.compiler.graph import Operation, VariableRef
from jflow.compiler.graph.primitives import ACCESSES
from jflow.compiler.placement.equations import size_of
from jflow.compiler.placement.strategy import Memory
from jflow.compiler.schedule import Problem
from jflow.compiler.schedule.problem import classes_of, resident_of
from jflow.errors import ResourceExhaustedError
from jflow.plan.state import axes_by_dimension

_NAMED = 3
"""Operations that an error names."""


def resident_bytes(ops: Sequence[Operation]) -> tuple[float, ...]:
    """Returns the persistent bytes of each operation: a variable's, at its first access."""
    seen: set[VariableRef] = set()
    resident = []
    for op in ops:
        is_first = op.eqn.primitive in ACCESSES and op.eqn.params["variable"] not in seen
        if is_first:
            seen.add(op.eqn.params["variable"])
        resident.append(_bytes_of(op.eqn.params["variable"]) if is_first else 0.0)
    return tuple(resident)


def _bytes_of(variable: VariableRef) -> float:
    """Returns the bytes of a variable; on a mesh, of each device that is declared to have it."""
    n_copies = 1
    if variable.spec.axes and variable.sharding:
        divided = {axis for axes in axes_by_dimension(variable.sharding) for axis in axes}
        n_copies = math.prod(size for axis, size in variable.spec.axes if axis not in divided)
    return size_of(variable.aval) * n_copies


def capacities(
    devices: Sequence[Device], memory: Memory, pinned: Mapping[Device, float]
) -> tuple[float, ...]:
    """Returns the bytes that each device or mesh can keep.

    Args:
      devices: the devices, and meshes of them.
      memory: what the devices can keep.
      pinned: the bytes of what has to be on a device or mesh. On its devices others have less room.
    """
    single = [device for device in devices if not device.axes]

    def members(one: Device) -> Sequence[Device]:
        return one.members([device for device in single if device.task == one.task])

    free = {device: memory.get(device, math.inf) for device in single}
    for one, n_bytes in pinned.items():
        for member in members(one):
            free[member] -= n_bytes / one.n_devices
    return tuple(
        max(0.0, sum(free[member] for member in members(one)) + pinned.get(one, 0.0))
        for one in devices
    )


def check_pinned(problem: Problem) -> None:
    """Raises ResourceExhaustedError if classes pinned to a device exceed its memory."""
    if not problem.constraints.capacity:
        return
    pinned: dict[int, list[int]] = {}
    for operation, (number, n_bytes) in enumerate(
        zip(classes_of(problem), resident_of(problem), strict=True)
    ):
        devices = problem.constraints.allowed.get(number, ())
        if n_bytes and len(devices) == 1:
            pinned.setdefault(devices[0], []).append(operation)
    for device, operations in pinned.items():
        needed = sum(resident_of(problem)[i] for i in operations)
        room = problem.constraints.capacity[device]
        if needed > room:
            names = ", ".join(str(problem.graph.operations[i]) for i in operations[:_NAMED])
            raise ResourceExhaustedError(
                f"{problem.devices[device]} can keep {room:.0f} bytes, and the variables that are "
                f"placed there take {needed - room:.0f} more ({names}{_more(operations)}); request "
                "other devices for some of them, or raise the limit (JFLOW_DEVICE_MEMORY)"
            )


def _more(operations: Sequence[int]) -> str:
    return f" and {len(operations) - _NAMED} others" if len(operations) > _NAMED else ""
