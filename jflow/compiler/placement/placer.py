"""`Placer`: places the steps of a session; state stays on the device of its first placement."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace

from jflow.base.cluster import Device, Task
from jflow.compiler.graph import Graph, Operation, VariableRef
from jflow.compiler.graph.primitives import HANDLES, ResourceRef, state_of
from jflow.compiler.placement.group import owner_op
from jflow.compiler.placement.place import assign
from jflow.compiler.placement.strategy import Assignment, Inventory, Placement, Strategy
from jflow.state.moves import StateId
from jflow.state.moves.states import EVERYTHING, VARIABLE

_LOG = logging.getLogger(__name__)

DEFAULT_STRATEGY: Strategy = assign
"""The strategy that is used unless another one is given."""


class Placer:
    """Records where the steps of a session have placed state, and logs placements.

    Args:
      soft: whether a device type or index that does not exist is dropped.
      log: whether to log the device of each operation, once.
      strategy: the placement strategy.

    Attributes:
      soft, strategy: likewise.
      handles: the devices of variables and resources that have been placed, by their handle ops.
      successors: the tasks that have what was on tasks which have left, as far as errors said so.
    """

    def __init__(self, soft: bool, log: bool, strategy: Strategy = DEFAULT_STRATEGY) -> None:
        self.soft = soft
        self._log = log
        self.strategy = strategy
        self.handles: MutableMapping[Operation, Device] = {}
        self.successors: dict[Task, Task] = {}
        self._logged: dict[Operation, Device] = {}

    def assign(self, ops: Sequence[Operation], inventory: Inventory) -> Assignment:
        """Returns the first half of the placement of a step. Raises as `Strategy`."""
        known = {**self.successors, **inventory.successors}
        inventory = replace(inventory, successors={task: _last(task, known) for task in known})
        return self.strategy(ops, inventory, soft=self.soft, handles=self.handles)

    def place(self, assignment: Assignment, inventory: Inventory) -> Placement:
        """Places a step, and records and logs it. Raises as `Assignment.place`."""
        placement = assignment.place(inventory.devices, inventory.memory)
        self._record(placement)
        return placement

    def of_copies(self, copies: Mapping[Operation, Operation]) -> Placer:
        """Returns a placer for a copy of a graph, which shares the devices of state with this one.

        Args:
          copies: the operations of the copy, by those of the graph.
        """
        placer = Placer(self.soft, self._log, self.strategy)
        placer.handles = _HandlesOfCopy(self.handles, copies)
        placer.successors = self.successors
        return placer

    def learn(self, graph: Graph, moved: Mapping[StateId, str]) -> None:
        """Records the new devices of state that has moved.

        Args:
          graph: the graph that the steps are of.
          moved: devices, by the state as the steps name it; of everything on a task, another task.
        """
        left = {
            state.task: Task.parse(successor)
            for state, successor in moved.items()
            if state.kind == EVERYTHING
        }
        self.successors |= left
        owners = {state.owner for state in moved}
        for op, ref in refs_of(graph).items():
            old_device = self.handles.get(op)
            if old_device is not None:
                names = (state_id(ref, old_device, owner) for owner in owners)
                device = next((moved[name] for name in names if name in moved), str(old_device))
                new_device = Device.parse(device)
                if new_device.task in left:
                    new_device = replace(new_device, task=left[new_device.task])
                self.handles[op] = new_device

    def _record(self, placement: Placement) -> None:
        for op, device in placement.items():
            owner = owner_op(op)
            if owner.eqn.primitive in HANDLES:
                self.handles[owner] = device
            if self._log and self._logged.get(op) != device:
                self._logged[op] = device
                # Python shows warnings by default; users that set this option want to see them.
                _LOG.warning("%s: (%s): %s", op.name, op.type, device)


def _last(task: Task, successors: Mapping[Task, Task]) -> Task:
    """Returns the successor of a task that has not left itself, by what is known of each."""
    seen = set[Task]()
    while task in successors and task not in seen:
        seen.add(task)
        task = successors[task]
    return task


class _HandlesOfCopy(MutableMapping[Operation, Device]):
    """View of the devices of state, by the handle ops of a copy of the graph.

    Args:
      handles: the devices by the handle ops of the graph.
      copies: the operations of the copy, by those of the graph.
    """

    def __init__(
        self,
        handles: MutableMapping[Operation, Device],
        copies: Mapping[Operation, Operation],
    ) -> None:
        self._handles = handles
        self._copies = {op: copy for op, copy in copies.items() if op.eqn.primitive in HANDLES}
        self._originals = {copy: op for op, copy in self._copies.items()}

    def __getitem__(self, op: Operation) -> Device:
        return self._handles[self._originals[op]]

    def __setitem__(self, op: Operation, device: Device) -> None:
        self._handles[self._originals[op]] = device

    def __delitem__(self, op: Operation) -> None:
        del self._handles[self._originals[op]]

    def __iter__(self) -> Iterator[Operation]:
        return (self._copies[op] for op in self._handles if op in self._copies)

    def __len__(self) -> int:
        return sum(1 for _ in self)


StateRef = VariableRef | ResourceRef


def refs_of(graph: Graph) -> dict[Operation, StateRef]:
    """Returns the variables and resources that the operations of a graph use, by handle op."""
    used = dict.fromkeys(ref for op in graph.get_operations() for ref in state_of(op.eqn))
    return {graph.handle_of(ref): ref for ref in used}


def state_id(ref: StateRef, device: Device, owner: str = "") -> StateId:
    """Returns the id of a variable or resource on a device.

    Args:
      ref: the variable or resource.
      device: where it is.
      owner: the session that it belongs to unless it is shared.
    """
    container = "" if ref.container == device.task.job else ref.container
    if isinstance(ref, VariableRef):
        return StateId(str(device), VARIABLE, container, ref.name)
    return StateId(str(device), ref.kind, container, ref.name, "" if ref.is_shared else owner)
