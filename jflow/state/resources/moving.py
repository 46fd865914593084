"""Copies state out of the containers of one device and into those of another, for a move.

`Departure` copies variables and queues, and drops them once the move has succeeded; `Arrival` makes
them of the copies, and takes them in then. In between they travel as a packed record and arrays.
Nothing may use the state from the beginning of one to the end of both; a program of a cancelled
step, which nothing interrupts, may still be writing a variable, so its copy is an attempt.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import ClassVar

from jflow.base.cluster import Device
from jflow.base.packing import Limits, Record, Size, Word
from jflow.base.values import Array
from jflow.errors import AlreadyExistsError, InvalidArgumentError, UnimplementedError
from jflow.plan import VariableKey, VariableSpec
from jflow.plan.xla.hardware import DeviceOrMesh
from jflow.state.moves import StateId
from jflow.state.moves.states import VARIABLE
from jflow.state.resources.cell import Cell
from jflow.state.resources.containers import Containers
from jflow.state.resources.kernel import Wanted
from jflow.state.resources.manager import ResourceId
from jflow.state.resources.queue import QueueSnapshot
from jflow.state.resources.snapshot import PackedSnapshot
from jflow.state.resources.variable import VariableId, VariableSnapshot

QUEUE = "queue"
"""The kind of queues in a `StateId`."""

MOVABLE = frozenset({VARIABLE, QUEUE})
"""The kinds that can move. Readers and iterator states refer to files and devices of their task."""


class SavedVariable(Record, frozen=True):
    """The record of a variable that moves; its value is one array.

    Attributes:
      number: its position among the names of the state that moves, in their order.
      dtype, shape: as in `VariableSpec`.
      sharding: how it is sharded over a mesh; "" if it is on one device.
    """

    what = "variable that moves"

    number: int
    dtype: str
    shape: tuple[Word, ...]
    sharding: str = ""


class SavedQueue(Record, frozen=True):
    """The record of a queue that moves.

    Attributes:
      number: as in `SavedVariable`.
      record: its snapshot without the arrays.
      n_arrays: the number of these.
    """

    what = "queue that moves"

    number: int
    record: bytes
    n_arrays: Size


class SavedStates(Record, frozen=True):
    """The record of all state that moves together; the arrays follow in this order."""

    what = "state that moves"
    limits: ClassVar[Limits] = Limits(n_bytes=1 << 24, n_items=1 << 20)

    variables: tuple[SavedVariable, ...]
    queues: tuple[SavedQueue, ...]


class Departure:
    """The copying of state out of a device; state that does not exist is left out.

    Args:
      containers: the state of the task.
      states: what leaves.

    Attributes:
      wanted: what to wait for before `saved` is called.

    Raises:
      UnimplementedError: if some of it is of a kind that cannot move.
    """

    def __init__(self, containers: Containers, states: Collection[StateId]) -> None:
        for state in sorted(states):
            if state.kind not in MOVABLE:
                raise UnimplementedError(f"{state} cannot move; variables and queues can")
        self._containers = containers
        self._states = sorted(states)
        self._cut = containers.cut([*map(_variable_id, _states_of_kind(states, VARIABLE))])
        self.wanted: Wanted = (containers.accesses, self._cut)

    def saved(self) -> tuple[bytes, list[Array]]:
        """Copies the state to the host, waiting for the device; returns its record and arrays.

        Raises:
          ResourceExhaustedError: if there is not enough memory.
        """
        variables, queues, arrays = [], [], []
        leased = {key: found.snapshot() for key, found in sorted(self._cut.leased.items())}
        for number, state in enumerate(self._states):
            if state.kind == VARIABLE and (value := leased.get(_variable_id(state))) is not None:
                spec = value.spec
                variables.append(SavedVariable(number, spec.dtype, spec.shape, spec.sharding))
                arrays.append(value.value)
        for number, state in enumerate(self._states):
            cell = None if state.kind == VARIABLE else self._cell(state)
            if cell is not None:
                snapshot = cell.snapshot()
                assert isinstance(snapshot, QueueSnapshot)
                packed = snapshot.packed()
                queues.append(SavedQueue(number, packed.record, len(packed.arrays)))
                arrays.extend(packed.arrays)
        return SavedStates(tuple(variables), tuple(queues)).to_bytes(), arrays

    def _cell(self, state: StateId) -> Cell | None:
        return self._containers.resources.find(_resource_id(state))

    def finish(self) -> None:
        """Frees the state here once it has moved."""
        discard(self._containers, self._states)


def discard(containers: Containers, states: Collection[StateId]) -> None:
    """Frees state that has moved to another device."""
    containers.discard({*map(_variable_id, _states_of_kind(states, VARIABLE))})
    for state in states:
        if state.kind != VARIABLE:
            containers.resources.discard(_resource_id(state), "it has moved to another device")


class Arrival:
    """Copies of state on the device that it moves to, unused until `finish`.

    Args:
      containers: the state of the task.
      states: what moves, by the names that it has at the source.
      target: the name of the device that it moves to.
      record, arrays: what `Departure.saved` gave.
      device: the device that it moves to.

    Raises:
      AlreadyExistsError: if there is other state of that name.
      InvalidArgumentError: if the record is malformed.
      ResourceExhaustedError: if there is not enough memory.
    """

    def __init__(
        self,
        containers: Containers,
        states: Collection[StateId],
        target: str,
        record: bytes,
        arrays: Sequence[Array],
        device: DeviceOrMesh,
    ) -> None:
        names = [state.on(target) for state in sorted(states)]
        _check_free(containers, names)
        self._containers = containers
        saved, remaining_arrays = SavedStates.from_bytes(record), iter(arrays)
        values = {}
        for one in saved.variables:
            state = _state_at(names, one.number, VARIABLE)
            key = VariableKey(state.container, state.name)
            spec = VariableSpec(key, one.dtype, one.shape, one.sharding)
            values[_variable_id(state)] = VariableSnapshot(spec, _next(remaining_arrays))
        self._variables = containers.restoring(values, lambda _: device)
        self._queues: list[tuple[ResourceId, Cell]] = []
        for queue in saved.queues:
            state = _state_at(names, queue.number, QUEUE)
            parts = tuple(_next(remaining_arrays) for _ in range(queue.n_arrays))
            snapshot = QueueSnapshot.unpacked(PackedSnapshot(queue.record, parts))
            cell = containers.resources.restore_cell(QUEUE, state.name, snapshot)
            self._queues.append((_resource_id(state), cell))

    def finish(self) -> None:
        """Installs the copies as the state of the device."""
        # Nothing reads or writes the variables, so this completes at once.
        self._containers.accesses.submit(self._variables, lambda _: None)
        for resource_id, cell in self._queues:
            self._containers.resources.adopt(resource_id, cell)


def _states_of_kind(states: Collection[StateId], kind: str) -> list[StateId]:
    return [state for state in states if state.kind == kind]


def _variable_id(state: StateId) -> VariableId:
    return VariableId(state.container, state.device, state.name)


def _resource_id(state: StateId) -> ResourceId:
    device = Device.parse(state.device)
    return ResourceId(state.container, device, state.kind, state.name, state.owner)


def _check_free(containers: Containers, states: Collection[StateId]) -> None:
    variables = {*map(_variable_id, _states_of_kind(states, VARIABLE))}
    existing = [str(variable) for variable in sorted(containers.existing(variables))]
    existing += [
        str(state)
        for state in sorted(states)
        if state.kind != VARIABLE and containers.resources.find(_resource_id(state)) is not None
    ]
    if existing:
        raise AlreadyExistsError(
            f"there is already a {existing[0]}, which is not the one that was to move there; "
            "rename one of them, or reset its container"
        )


def _state_at(names: Sequence[StateId], number: int, kind: str) -> StateId:
    if not 0 <= number < len(names) or names[number].kind != kind:
        raise InvalidArgumentError(f"{kind} {number} is not among the state that moves: {names}")
    return names[number]


def _next(arrays: Iterator[Array]) -> Array:
    for array in arrays:
        return array
    raise InvalidArgumentError("the state that moves has fewer arrays than its record says")
