"""Peak memory of each device in a step, from the intervals in which values are live.

Variables live always. A value lives from the start of the operation that makes it to the end of the
last one on its device that uses it, or until it has been sent; a copy that a device receives lives
from the start of its transfer. Temporary memory within programs is not included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jflow.base.cluster import Device
from jflow.compiler.graph import Operation, VariableRef
from jflow.compiler.graph.primitives import ACCESSES
from jflow.compiler.placement.equations import size_of
from jflow.compiler.placement.strategy import Memory
from jflow.compiler.schedule import Problem, Schedule, Timeline, simulate
from jflow.compiler.schedule.problem import classes_of, resident_of
from jflow.errors import ResourceExhaustedError
from jflow.plan.state import axes_by_dimension

_NAMED = 3
"""Operations that an error names."""


@dataclass(frozen=True)
class MemoryUse:
    """Memory that one device needs, in bytes.

    Attributes:
      resident: variables.
      peak: the most at any time, with the variables.
      at: the operation that starts when that is reached first; None if nothing runs here.
    """

    resident: float
    peak: float
    at: int | None


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


def memory_use(
    problem: Problem, schedule: Schedule, timeline: Timeline | None = None
) -> tuple[MemoryUse, ...]:
    """Returns the memory that each device needs when a schedule is run.

    Args:
      problem: what was scheduled; `Constraints.resident` are its variables.
      schedule: where and in which order operations run.
      timeline: when; `simulate(problem, schedule)` if None.
    """
    timeline = timeline or simulate(problem, schedule)
    resident = [0.0] * len(problem.devices)
    for operation, n_bytes in enumerate(resident_of(problem)):
        resident[schedule.devices[operation]] += n_bytes
    changes = _changes(problem, schedule, timeline)
    return tuple(
        _swept(problem, schedule, timeline, device, resident[device], changes[device])
        for device in range(len(problem.devices))
    )


_Change = tuple[float, int, float]
"""A time, 0 for an end and 1 for a beginning, and the bytes that are added."""


def _changes(problem: Problem, schedule: Schedule, timeline: Timeline) -> list[list[_Change]]:
    """Returns the allocations and frees on each device, with their times."""
    changes: list[list[_Change]] = [[] for _ in problem.devices]
    sent: dict[int, float] = {}
    copies: dict[tuple[int, int], float] = {}
    for transfer in timeline.transfers:
        sent[transfer.edge] = max(sent.get(transfer.edge, 0.0), transfer.finish)
        copies[transfer.edge, transfer.target] = transfer.start
    for number, edge in enumerate(problem.graph.edges):
        origin = schedule.devices[edge.producer]
        ends = {origin: max(timeline.finish[edge.producer], sent.get(number, 0.0))}
        for consumer in edge.consumers:
            device = schedule.devices[consumer]
            ends[device] = max(ends.get(device, 0.0), timeline.finish[consumer])
        for device, end in ends.items():
            begin = timeline.start[edge.producer] if device == origin else copies[number, device]
            changes[device] += [(begin, 1, edge.n_bytes), (end, 0, -edge.n_bytes)]
    return changes


def _swept(
    problem: Problem,
    schedule: Schedule,
    timeline: Timeline,
    device: int,
    resident: float,
    changes: list[_Change],
) -> MemoryUse:
    now = peak = resident
    when = 0.0
    for time, _, n_bytes in sorted(changes):
        now += n_bytes
        if now > peak:
            peak, when = now, time
    here = [i for i in schedule.order if schedule.devices[i] == device]
    started = [i for i in here if timeline.start[i] <= when]
    return MemoryUse(resident, peak, started[-1] if started else next(iter(here), None))
