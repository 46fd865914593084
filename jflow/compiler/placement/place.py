"""The default placement strategy: gives every operation a device.

The rules, in order of precedence:

1. An operation on a variable runs where the variable is.
2. Colocated operations are placed as one, by their combined request (`group.py`).
3. The user's request is obeyed; missing fields come from a default. With soft placement, a device
   type and index that do not exist count as missing; a job, a task or a mesh never does. A mesh is
   only chosen where it is requested.
4. The default of a stateless operation is the master's first device, a GPU before a CPU.
5. The default of a variable does not depend on the master, so that sessions on different servers
   share it: the first task of the job `ps` if the cluster has one, else of the first job by name.
6. A constant without a device request is placed with its consumers if they share one device.
7. In a function, an operation without a request goes where fewer bytes are sent, if it computes
   little (`locality.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from jflow.base.cluster import MESH, Device, DeviceSpec, Task, mesh_of_all, rank_of
from jflow.compiler.graph import Operation, Tensor
from jflow.compiler.graph.primitives import constant_p
from jflow.compiler.placement.group import Group, groups, owner_op
from jflow.compiler.placement.locality import localized, may_move
from jflow.compiler.placement.strategy import (
    UNLIMITED_MEMORY,
    Handles,
    Inventory,
    Memory,
    Placement,
)
from jflow.errors import InvalidArgumentError

_NO_HANDLES: Handles = MappingProxyType({})


def assign(
    ops: Sequence[Operation],
    inventory: Inventory,
    *,
    soft: bool = False,
    handles: Handles = _NO_HANDLES,
    fetches: Collection[Tensor] | None = None,
) -> GroupAssignment:
    """Computes the first half of a placement; see `Strategy`.

    Args:
      ops, inventory, soft, handles: as there.
      fetches: what a function's step returns; None for the step of a session, in which rule 7 does
        not hold.
    """
    owners = {op: owner_op(op) for op in ops}
    needed = set(owners.values())
    colocated = groups(ops[0].graph.get_operations()) if ops else {}
    requests: dict[Group, _Request] = {}
    request_by_key: dict[tuple[DeviceSpec, bool], _Request] = {}
    for owner in owners.values():
        group = colocated.get(owner)
        if group is None:
            group = colocated[owner] = Group((owner,))
        if group not in requests:
            key = group.request(needed, handles, soft), group.has_state
            if key not in request_by_key:
                request_by_key[key] = _requested(owner, group, key[0], inventory)
            requests[group] = request_by_key[key]
    tasks = {request.task for request in requests.values()}
    return GroupAssignment(owners, colocated, requests, tasks, soft, fetches)


def same_device(
    inventory: Inventory,
    soft: bool,
    devices_of: Callable[[Task], Sequence[Device]],
    specs: Collection[DeviceSpec],
) -> DeviceSpec | None:
    """Returns the device that all of some requests of stateless operations mean by rules 3 and 4.

    Args:
      inventory: the tasks.
      soft: see `Strategy`.
      devices_of: returns the devices of a task; called only if all requests mean that task.
      specs: the requests.

    Returns:
      None if they mean several devices, or one that does not exist.
    """
    tasks = {_task(spec, inventory.master, inventory) for spec in specs}
    (task, *others) = tasks
    if others or task is None:
        return None
    (device, *more) = {_chosen(spec, devices_of(task), soft) for spec in specs}
    return None if more or device is None else DeviceSpec.parse(str(device))


@dataclass(frozen=True, eq=False, slots=True)
class _Request:
    """The combined request of groups; groups with equal requests share one object.

    Attributes:
      spec: the combined request of a group.
      task: the task that they run on.
    """

    spec: DeviceSpec
    task: Task


@dataclass(frozen=True)
class GroupAssignment:
    """The first half of a placement by the rules: a task for each group of operations.

    Attributes:
      owners: the owner op of each operation that is placed.
      colocated: the group of each owner op.
      requests: the request of each group.
      tasks: the tasks that the groups run on.
      soft: whether a device type and index that do not exist are dropped.
      fetches: what the step of a function returns; None for that of a session.
    """

    owners: Mapping[Operation, Operation]
    colocated: Mapping[Operation, Group]
    requests: Mapping[Group, _Request]
    tasks: Collection[Task]
    soft: bool
    fetches: Collection[Tensor] | None = None

    def place(
        self, devices: Mapping[Task, Sequence[Device]], memory: Memory = UNLIMITED_MEMORY
    ) -> Placement:
        """See `Assignment.place`; the rules ignore memory."""
        chosen: dict[Group, Device] = {}
        device_by_request: dict[_Request, Device] = {}
        for group, request in self.requests.items():
            if request not in device_by_request:
                device = _chosen(request.spec, devices[request.task], self.soft)
                if device is None:
                    placed = (o for o in self.owners.values() if self.colocated[o] is group)
                    raise _no_device(next(placed), group, request.spec, devices[request.task])
                device_by_request[request] = device
            chosen[group] = device_by_request[request]
        placement = {op: chosen[self.colocated[owner]] for op, owner in self.owners.items()}
        _move_constants(placement, self.colocated)
        if self.fetches is not None and len(set(placement.values())) > 1:
            placement |= localized(placement, self._movable(placement), self.fetches)
        return placement

    def default_device(
        self, op: Operation, devices: Mapping[Task, Sequence[Device]]
    ) -> Device | None:
        """Returns the device that an operation has by the rules 1 to 5."""
        request = self.requests[self.colocated[self.owners[op]]]
        return _chosen(request.spec, devices[request.task], self.soft)

    def _movable(self, placement: Placement) -> list[Operation]:
        """Returns the operations that rule 7 may move; all are on one device, the default."""
        free = [
            op
            for op, owner in self.owners.items()
            if op is owner and self._is_free(self.colocated[owner])
        ]
        # Rule 6 may have moved constants, and nothing else.
        default = next((placement[op] for op in free if op.eqn.primitive is not constant_p), None)
        return [op for op in free if placement[op] == default and may_move(op)]

    def _is_free(self, group: Group) -> bool:
        is_alone = len(group.members) == 1 and not group.has_state
        return is_alone and self.requests[group].spec.is_empty


def _requested(op: Operation, group: Group, spec: DeviceSpec, inventory: Inventory) -> _Request:
    default = inventory.state_task if group.has_state else inventory.master
    task = _task(spec, default, inventory)
    if task is None:
        raise _no_device(op, group, spec, inventory.tasks)
    return _Request(spec, task)


def _task(spec: DeviceSpec, default: Task, inventory: Inventory) -> Task | None:
    job = default.job if spec.job is None else spec.job
    if spec.task is not None:
        named = Task(job, spec.task)
        wanted = [inventory.successors.get(named, named)]
    elif job == default.job:
        wanted = [default]
    else:
        wanted = [task for task in inventory.tasks if task.job == job]
    return next((task for task in wanted if task in inventory.tasks), None)


def _chosen(spec: DeviceSpec, devices: Sequence[Device], soft: bool) -> Device | None:
    """Returns the first device that matches a request, accelerators before CPUs, or None."""
    found = matching(spec, devices)
    if not found and soft and spec.type != MESH:
        found = devices
    return min(found, key=rank_of, default=None)


def matching(spec: DeviceSpec, devices: Sequence[Device]) -> Sequence[Device]:
    """Returns the devices of a task that match a request; meshes of them if it requests one."""
    if spec.type == MESH:
        return _meshes(spec, devices)
    return [
        device
        for device in devices
        if spec.type in (None, device.type) and spec.index in (None, device.index)
    ]


def _meshes(spec: DeviceSpec, devices: Sequence[Device]) -> list[Device]:
    """Returns the meshes of a task that match a request; none if it has too few devices for it."""
    if spec.axes is None:
        everything = mesh_of_all(devices)
        return [] if everything is None or spec.index not in (None, 0) else [everything]
    n_devices = math.prod(size for _, size in spec.axes)
    indices = range(len(devices) // n_devices) if spec.index is None else [spec.index]
    meshes = (Device(devices[0].task, MESH, index, spec.axes) for index in indices)
    return [mesh for mesh in meshes if len(mesh.members(devices)) == n_devices]


def _no_device(
    op: Operation, group: Group, spec: DeviceSpec, available: Sequence[Device | Task]
) -> InvalidArgumentError:
    others = [f"{o.name!r} (made at {o.origin})" for o in group.members if o is not op]
    together = f" together with {', '.join(others)}" if others else ""
    n_devices = math.prod(size for _, size in spec.axes or ())
    needs = f", a mesh of {n_devices} devices of one type" if spec.axes else ""
    return InvalidArgumentError(
        f"Cannot assign a device for operation {op.name!r} (made at {op.origin}): it requests "
        f"{str(spec)!r}{needs}{together}, available are {[str(each) for each in available]}",
        op=op.name,
    )


def _move_constants(
    placement: dict[Operation, Device], colocated: Mapping[Operation, Group]
) -> None:
    """Moves each unplaced constant to the device of its consumers, if they are on one (rule 6)."""
    targets: dict[Operation, set[Device]] = {}
    for op, device in placement.items():
        for tensor in op.inputs:
            targets.setdefault(tensor.op, set()).add(device)
    for op in placement:
        free = op.eqn.primitive is constant_p and op.spec.is_empty
        if free and len(colocated[op].members) == len(targets.get(op, ())) == 1:
            (placement[op],) = targets[op]
