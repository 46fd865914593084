"""Gives every operation a device.

The rules, in their order:

1. An operation on a variable goes where the variable is.
2. Operations that are colocated are placed as one, by what they ask for together (`group.py`).
3. What the user asked for is obeyed; fields that are missing come from a default. With soft
   placement, a device type and index that are not there count as missing; a job or task never.
4. A stateless operation's default is the master's own first device, a GPU before a CPU.
5. A variable's default does not depend on the master, so that sessions on different servers share
   it: the first task of the job `ps` if the cluster has one, else of the first job by name.
6. A constant that nobody placed goes to its consumers if they are all on one device.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from jflow.cluster import Device, DeviceSpec, Task
from jflow.errors import InvalidArgumentError
from jflow.graph import Operation
from jflow.graph.primitives import constant_p
from jflow.placement.group import Group, Homes, anchor, groups

Placement = Mapping[Operation, Device]

_PARAMETER_SERVER = "ps"


@dataclass(frozen=True)
class Inventory:
    """The devices there are.

    Attributes:
      master: the task whose first device is the default for stateless operations.
      tasks: every task, by job name and then by index.
      devices: the devices of a task; may wait until the task is up, and raise if it is not.
    """

    master: Task
    tasks: tuple[Task, ...]
    devices: Callable[[Task], Sequence[Device]]

    @property
    def home(self) -> Task:
        """Where a variable lives that nobody placed."""
        servers = [task for task in self.tasks if task.job == _PARAMETER_SERVER]
        return (servers or list(self.tasks))[0]


def place(
    ops: Sequence[Operation],
    inventory: Inventory,
    *,
    soft: bool = False,
    homes: Homes = MappingProxyType({}),
) -> Placement:
    """A device for each operation.

    Args:
      ops: operations of one graph, in its order.
      inventory: what to place them on.
      soft: whether a device type or index that is not there, or that operations which are
        colocated do not agree on, is dropped; a job or task never is.
      homes: where variables are already; they stay there.

    Raises:
      InvalidArgumentError: if an operation asks for a device that does not exist, or operations
        that are colocated ask for different devices.
    """
    chooser = _Chooser({anchor(op) for op in ops}, inventory, soft, homes)
    colocated = groups(ops[0].graph.get_operations()) if ops else {}
    chosen: dict[Group, Device] = {}
    placement: dict[Operation, Device] = {}
    for op in ops:
        owner = anchor(op)
        group = colocated.setdefault(owner, Group((owner,)))
        if group not in chosen:
            chosen[group] = chooser.device(owner, group)
        placement[op] = chosen[group]
    _move_constants(ops, placement, colocated)
    return placement


@dataclass(frozen=True)
class _Chooser:
    """Gives groups of operations their devices; the attributes are arguments of `place`."""

    needed: Collection[Operation]
    inventory: Inventory
    soft: bool
    homes: Homes

    def device(self, op: Operation, group: Group) -> Device:
        """The device of a group, for the sake of one operation in it."""
        spec = group.request(self.needed, self.homes, self.soft)
        task = self._task(spec, self.inventory.home if group.has_state else self.inventory.master)
        if task is None:
            raise _no_device(op, group, spec, self.inventory.tasks)
        devices = self.inventory.devices(task)
        fitting = [
            device
            for device in devices
            if spec.type in (None, device.type) and spec.index in (None, device.index)
        ]
        if not fitting and not self.soft:
            raise _no_device(op, group, spec, devices)
        return min(
            fitting or devices, key=lambda device: (device.type == "CPU", device.type, device.index)
        )

    def _task(self, spec: DeviceSpec, default: Task) -> Task | None:
        job = default.job if spec.job is None else spec.job
        if spec.task is not None:
            wanted = [Task(job, spec.task)]
        elif job == default.job:
            wanted = [default]
        else:
            wanted = [task for task in self.inventory.tasks if task.job == job]
        return next((task for task in wanted if task in self.inventory.tasks), None)


def _no_device(
    op: Operation, group: Group, spec: DeviceSpec, available: Sequence[Device | Task]
) -> InvalidArgumentError:
    others = [f"{o.name!r} (made at {o.origin})" for o in group.members if o is not op]
    together = f" together with {', '.join(others)}" if others else ""
    return InvalidArgumentError(
        f"Cannot assign a device for operation {op.name!r} (made at {op.origin}): "
        f"it asks for {str(spec)!r}{together}, available are {[str(each) for each in available]}",
        op=op.name,
    )


def _move_constants(
    ops: Sequence[Operation],
    placement: dict[Operation, Device],
    colocated: Mapping[Operation, Group],
) -> None:
    targets: dict[Operation, set[Device]] = {}
    for op in ops:
        for tensor in op.inputs:
            targets.setdefault(tensor.op, set()).add(placement[op])
    for op in ops:
        free = op.eqn.primitive is constant_p and op.spec.is_empty
        if free and len(colocated[op].members) == len(targets.get(op, ())) == 1:
            (placement[op],) = targets[op]
