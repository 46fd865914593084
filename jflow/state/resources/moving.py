"""Copies state out of the containers of one device and into those of another, for a move.

`Departure` copies state, and drops it once the move has succeeded; `Arrival` makes it of the
copies, and takes it in then. In between it travels as a packed record and arrays. Variables and
queues move by themselves (`MOVABLE`), other shared state with everything on its task
(`left_states`).

Nothing may use the state from the beginning of one to the end of both; a program of a cancelled
step, which nothing interrupts, may still be writing a variable, so its copy is an attempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

from jflow.base.cluster import Device
from jflow.base.packing import Limits, Record, Size, Word
from jflow.base.values import Array
from jflow.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnimplementedError,
)
from jflow.plan import VariableKey, VariableSpec
from jflow.plan.xla.hardware import DeviceOrMesh
from jflow.state.moves import StateId
from jflow.state.moves.states import VARIABLE
from jflow.state.quotas import Account
from jflow.state.resources.cell import Cell
from jflow.state.resources.charged import charged_bytes
from jflow.state.resources.containers import Containers
from jflow.state.resources.kernel import Wanted
from jflow.state.resources.kinds import packed, unpacked
from jflow.state.resources.manager import ResourceId
from jflow.state.resources.queue import QUEUE
from jflow.state.resources.snapshot import PackedSnapshot
from jflow.state.resources.value_table import VALUE_TABLE
from jflow.state.resources.variable import VariableId, VariableSnapshot

MOVABLE = frozenset({VARIABLE, QUEUE.name})
"""The kinds that can move. Readers and iterator states refer to files and devices of their task."""

PART_BYTES = 1 << 28
"""How many bytes of the state of a task are copied at once, where it can be divided."""


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
    """The record of a queue that moves, or of a resource of another kind.

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


class LeftState(Record, frozen=True):
    """The name of state that moves with everything on its task; see `StateId`."""

    device: str
    kind: str
    container: str
    name: str

    @classmethod
    def of(cls, state: StateId) -> LeftState:
        """Returns the name of shared state."""
        return cls(state.device, state.kind, state.container, state.name)

    @property
    def state(self) -> StateId:
        """The name of the state where it was. Raises ValueError if its device is malformed."""
        state = StateId(self.device, self.kind, self.container, self.name)
        Device.parse(state.device)
        return state


class MovedState(Record, frozen=True):
    """The name of state that had moved away from a task before, and the device where it is."""

    name: LeftState
    device: str


class LeftStates(Record, frozen=True):
    """The record of a part of everything on a task.

    Attributes:
      names: of the state in it.
      saved: a packed `SavedStates`, whose numbers are positions in the sorted names.
      n_parts: how many parts there are.
      moved: what had moved away; in the first part.
    """

    what = "part of a task's state"
    limits: ClassVar[Limits] = Limits(n_bytes=1 << 26, n_text=1 << 24, n_items=1 << 20)

    names: tuple[LeftState, ...]
    saved: bytes
    n_parts: Size
    moved: tuple[MovedState, ...] = ()


def left_states(containers: Containers, leaves: Callable[[str], bool]) -> list[list[StateId]]:
    """Returns all state that moves when a task is left, in parts of about `PART_BYTES`.

    Results that a coordinator keeps on the task do not move; they are computed again.

    Args:
      containers: the state of the task.
      leaves: returns whether a session ends with the task, by its name; its state does not move.

    Raises:
      FailedPreconditionError: if another session has state there that is not shared.
    """
    sizes = {
        key.state: variable.buffer.array.nbytes for key, variable in containers.variables().items()
    }
    for key in containers.resources.cells():
        if key.kind != VALUE_TABLE.name:
            sizes[StateId(str(key.device), key.kind, key.container, key.name, key.owner)] = 0
    parts: list[list[StateId]] = [[]]
    n_bytes = 0
    for state in sorted(sizes):
        if state.session:
            _check_leaves(state, leaves)
            continue
        if n_bytes and n_bytes + sizes[state] > PART_BYTES:
            parts.append([])
            n_bytes = 0
        parts[-1].append(state)
        n_bytes += sizes[state]
    return parts


def _check_leaves(state: StateId, leaves: Callable[[str], bool]) -> None:
    if not leaves(state.session):
        raise FailedPreconditionError(
            f"{state} belongs to one session and cannot move; close the session, or give it a "
            "shared_name"
        )


class Departure:
    """The copying of state out of a device; state that does not exist is left out.

    Args:
      containers: the state of the task.
      states: what leaves.
      is_any_kind: whether it may be of any kind, because everything on the task moves with it.

    Attributes:
      wanted: what to wait for before `saved` is called.

    Raises:
      UnimplementedError: if some of it is of a kind that cannot move.
    """

    def __init__(
        self, containers: Containers, states: Collection[StateId], *, is_any_kind: bool = False
    ) -> None:
        self._states = sorted(states)
        for state in self._states:
            if not is_any_kind and state.kind not in MOVABLE:
                raise UnimplementedError(f"{state} cannot move; variables and queues can")
        self._resources = containers.resources
        self._cut = containers.cut(_variables(states))
        self.wanted: Wanted = (containers.accesses, self._cut)

    def saved(self) -> tuple[bytes, list[Array]]:
        """Copies the state to the host, waiting for the device; returns its record and arrays.

        Raises:
          ResourceExhaustedError: if there is not enough memory.
        """
        variables, queues, arrays = [], [], []
        leased = {key: found.snapshot() for key, found in sorted(self._cut.leased.items())}
        for number, state in enumerate(self._states):
            value = leased.get(VariableId.of_state(state)) if state.is_variable else None
            if value is not None:
                spec = value.spec
                variables.append(SavedVariable(number, spec.dtype, spec.shape, spec.sharding))
                arrays.append(value.value)
        for number, state in enumerate(self._states):
            cell = None if state.is_variable else self._resources.find(ResourceId.of_state(state))
            if cell is not None:
                _, saved = packed(cell.snapshot())
                queues.append(SavedQueue(number, saved.record, len(saved.arrays)))
                arrays.extend(saved.arrays)
        return SavedStates(tuple(variables), tuple(queues)).to_bytes(), arrays


def discard(containers: Containers, states: Collection[StateId]) -> None:
    """Frees state that has moved to another device."""
    containers.discard(_variables(states))
    for state in states:
        if not state.is_variable:
            why = "it has moved to another device"
            containers.resources.discard(ResourceId.of_state(state), why)


class Arrival:
    """Copies of state on the device that it moves to, unused until `finish`.

    Args:
      containers: the state of the task.
      names: what moves, by the names that it will have, in the order of those at the source.
      record, arrays: what `Departure.saved` gave.
      devices: the devices of the task by their names.
      has_room: whether what it is a copy of, on the same task, is charged until `finish`.

    Attributes:
      names: as given.

    Raises:
      AlreadyExistsError: if there is other state of that name.
      InvalidArgumentError: if the record is malformed.
      ResourceExhaustedError: if there is not enough memory, or it exceeds a quota.
    """

    def __init__(
        self,
        containers: Containers,
        names: Sequence[StateId],
        record: bytes,
        arrays: Sequence[Array],
        devices: Mapping[str, DeviceOrMesh],
        has_room: bool = False,
    ) -> None:
        check_free(containers, names)
        self.names = names
        self._containers = containers
        self._charged = Counter[Account]()
        saved, remaining_arrays = SavedStates.from_bytes(record), iter(arrays)
        values = {}
        for one in saved.variables:
            state = _state_at(names, one.number, VARIABLE)
            key = VariableKey(state.container, state.name)
            spec = VariableSpec(key, one.dtype, one.shape, one.sharding)
            values[VariableId.of_state(state)] = VariableSnapshot(spec, _next(remaining_arrays))
        self._variables = containers.restoring(values, lambda one: devices[one.device])
        self._queues: list[tuple[ResourceId, Cell]] = []
        for queue in saved.queues:
            state = _state_at(names, queue.number, "resource")
            parts = tuple(_next(remaining_arrays) for _ in range(queue.n_arrays))
            snapshot = unpacked(state.kind, PackedSnapshot(queue.record, parts))
            cell = containers.resources.restore_cell(state.kind, state.name, snapshot)
            self._queues.append((ResourceId.of_state(state), cell))
        if not has_room:  # now, because `finish` must not fail
            charged = self._variables.new_bytes
            for resource_id, cell in self._queues:
                charged[Account(resource_id.container)] += charged_bytes(cell)
            containers.usage.charge(charged)
            self._charged = charged

    def finish(self) -> None:
        """Installs the copies as the state of the device."""
        self.drop()  # what was charged is charged again
        self._variables.is_charged = True
        for account, n_bytes in self._variables.new_bytes.items():
            self._containers.usage.add(account, n_bytes)
        # Nothing reads or writes the variables, so this completes at once.
        self._containers.accesses.submit(self._variables, lambda _: None)
        for resource_id, cell in self._queues:
            self._containers.resources.adopt(resource_id, cell)

    def drop(self) -> None:
        """Frees what is charged for the copies, if they are not needed."""
        charged, self._charged = self._charged, Counter()
        for account, n_bytes in charged.items():
            self._containers.usage.add(account, -n_bytes)


def _variables(states: Iterable[StateId]) -> set[VariableId]:
    """Returns the ids of those that are variables."""
    return {VariableId.of_state(state) for state in states if state.is_variable}


def check_free(containers: Containers, states: Collection[StateId]) -> None:
    """Raises AlreadyExistsError if there is state of one of these names."""
    existing = [str(variable) for variable in sorted(containers.existing(_variables(states)))]
    existing += [
        str(state)
        for state in sorted(states)
        if not state.is_variable
        and containers.resources.find(ResourceId.of_state(state)) is not None
    ]
    if existing:
        raise AlreadyExistsError(
            f"there is already a {existing[0]}, which is not the one that was to move there; "
            "rename one of them, or reset its container"
        )


def _state_at(names: Sequence[StateId], number: int, kind: str) -> StateId:
    is_variable = kind == VARIABLE
    if not 0 <= number < len(names) or names[number].is_variable != is_variable:
        raise InvalidArgumentError(f"{kind} {number} is not among the state that moves: {names}")
    return names[number]


def _next(arrays: Iterator[Array]) -> Array:
    for array in arrays:
        return array
    raise InvalidArgumentError("the state that moves has fewer arrays than its record says")
