"""Gives every operation a device.

The rules, in their order:

1. An operation on a variable goes where the variable is.
2. What the user asked for is obeyed; fields that are missing come from a default.
3. A stateless operation's default is the master's own first device, a GPU before a CPU.
4. A variable's default does not depend on the master, so that sessions on different servers share
   it: the first task of the job `ps` if the cluster has one, else of the first job by name.
5. A constant that nobody placed goes to its consumers if they are all on one device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jflow.cluster import Device, DeviceSpec, Task
from jflow.errors import InvalidArgumentError
from jflow.graph import Operation
from jflow.graph.primitives import ACCESSES, constant_p, variable_p

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


def place(ops: Sequence[Operation], inventory: Inventory) -> Placement:
    """A device for each operation.

    Args:
      ops: operations in the graph's order.
      inventory: what to place them on.

    Raises:
      InvalidArgumentError: if an operation asks for a device that does not exist.
    """
    placement: dict[Operation, Device] = {}
    variables: dict[Operation, Device] = {}
    for op in ops:
        if op.eqn.primitive in ACCESSES:
            owner = op.graph.variable(op.eqn.params["variable"])
            if owner not in variables:
                variables[owner] = _choose(owner, inventory)
            placement[op] = variables[owner]
        else:
            placement[op] = _choose(op, inventory)
    _move_constants(ops, placement)
    return placement


def _choose(op: Operation, inventory: Inventory) -> Device:
    default = inventory.home if op.eqn.primitive is variable_p else inventory.master
    spec = op.spec
    task = _task(op, spec, inventory, default)
    fitting = [
        device
        for device in inventory.devices(task)
        if spec.type in (None, device.type) and spec.index in (None, device.index)
    ]
    if not fitting:
        raise _no_device(op, [str(device) for device in inventory.devices(task)])
    return min(fitting, key=lambda device: (device.type == "CPU", device.type, device.index))


def _task(op: Operation, spec: DeviceSpec, inventory: Inventory, default: Task) -> Task:
    job = default.job if spec.job is None else spec.job
    if spec.task is not None:
        task = Task(job, spec.task)
        if task in inventory.tasks:
            return task
    elif job == default.job:
        return default
    else:
        tasks = [task for task in inventory.tasks if task.job == job]
        if tasks:
            return tasks[0]
    raise _no_device(op, [str(task) for task in inventory.tasks])


def _no_device(op: Operation, available: list[str]) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"Cannot assign a device for operation {op.name!r} (made at {op.origin}): "
        f"it asks for {op.device!r}, available are {available}",
        op=op.name,
    )


def _move_constants(ops: Sequence[Operation], placement: dict[Operation, Device]) -> None:
    targets: dict[Operation, set[Device]] = {}
    for op in ops:
        for tensor in op.inputs:
            targets.setdefault(tensor.op, set()).add(placement[op])
    for op in ops:
        free = op.eqn.primitive is constant_p and op.spec.is_empty
        if free and len(targets.get(op, ())) == 1:
            (placement[op],) = targets[op]
