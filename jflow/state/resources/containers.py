"""The containers of one task, or of one local session: variables and other resources."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import jax

from jflow.base.cluster import Device, Task
from jflow.errors import CancelledError, FailedPreconditionError, InvalidArgumentError
from jflow.plan import VariableKey, VariableSpec, owner_of
from jflow.plan.xla.hardware import DeviceOrMesh
from jflow.plan.xla.shardings import text_of_sharding
from jflow.state.effects import Ledger
from jflow.state.journal import Journal, JournalEntry
from jflow.state.moves import container_on
from jflow.state.quotas import Account, Usage
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.resources.cell import Cell, notify
from jflow.state.resources.kernel import Wanted
from jflow.state.resources.manager import ResourceManager
from jflow.state.resources.variable import (
    Access,
    AccessQueue,
    Buffer,
    RestoreVariables,
    VariableCut,
    VariableId,
    VariableSnapshot,
    VariableState,
    Write,
    declared_shape,
    renamed,
)
from jflow.state.resources.writing import CloseWriting, Writing, WritingOrder

P = ParamSpec("P")
T = TypeVar("T")


class Containers:
    """Variables and other resources by container, device and name.

    The default container is ""; the name of the task's job is a synonym.

    Args:
      task: the task, for messages.
      roots: the directories that readers may read; none by default.

    Attributes:
      task: as given.
      lock: guards the variables and the accesses to them; it is never held while a program runs.
      accesses: the cell that grants accesses to variables.
      writing: the cell of the order between snapshots and steps that write more than once.
      resources: all resources that are not variables.
      usage: how many bytes its variables, queues and value tables have.
      journal: what recorded steps have done; `lock` guards it.
    """

    def __init__(self, task: Task, roots: AllowedDirectories | None = None) -> None:
        self.task = task
        self._variables: dict[VariableId, VariableState] = {}
        self.lock = threading.Lock()
        self._queue = AccessQueue()
        self.accesses = Cell(self._queue, lock=self.lock)
        self._order = WritingOrder()
        self.writing = Cell(self._order, lock=self.lock)
        self.usage = Usage(task)
        self.resources = ResourceManager(task, roots or AllowedDirectories(()), self.usage)
        self.journal = Journal()
        self._ledger = Ledger()
        # Not `lock`, under which accesses that are granted ask the ledger.
        self._ledger_lock = threading.Lock()

    def ledger(
        self, act: Callable[Concatenate[Ledger, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Calls a method of the task's ledger under the ledger's lock; returns its result."""
        with self._ledger_lock:
            return act(self._ledger, *args, **kwargs)

    def note(self, entry: JournalEntry) -> None:
        """Notes what an instruction of a recorded step has done."""
        with self.lock:
            self.journal.add(entry)

    def get(self, variable_id: VariableId, spec: VariableSpec) -> VariableState:
        """Returns an initialized variable.

        Raises:
          FailedPreconditionError: if it is not initialized.
          InvalidArgumentError: if it has a different dtype or shape.
        """
        variable = self.find(variable_id, spec)
        if variable is None:
            raise self.uninitialized(variable_id, spec)
        return variable

    def uninitialized(self, variable_id: VariableId, spec: VariableSpec) -> FailedPreconditionError:
        """Returns the error for a step that reads an uninitialized variable."""
        return FailedPreconditionError(
            f"Attempting to use uninitialized value {spec.key.name}: {spec.key} on "
            f"{variable_id.device} has no value; run its initializer or "
            "jflow.global_variables_initializer() in this container first",
            op=spec.key.name,
            task=str(self.task),
        )

    def get_all(
        self, numbers: Iterable[int], ids: Sequence[VariableId], specs: Sequence[VariableSpec]
    ) -> dict[int, VariableState]:
        """Returns several variables by their positions in `ids`, as `get`; `lock` must be held."""
        values = {}
        for i in numbers:
            variable = self._variables.get(ids[i])
            if variable is None or variable.spec is not specs[i]:
                variable = self.get(ids[i], specs[i])
            values[i] = variable
        return values

    def find(self, variable_id: VariableId, spec: VariableSpec) -> VariableState | None:
        """Returns a variable, or None if it is not initialized. Raises as `get` otherwise."""
        variable = self._variables.get(variable_id)
        if variable is not None:
            self.check(variable, spec, variable_id)
        return variable

    def peek_all(self, variable_ids: Iterable[VariableId]) -> dict[VariableId, VariableState]:
        """Returns the initialized variables among these; `lock` must be held."""
        found = ((key, self._variables.get(key)) for key in variable_ids)
        return {key: variable for key, variable in found if variable is not None}

    def peek(self, device: Device, key: VariableKey) -> jax.Array | None:
        """Returns a variable's current array without locking; an update may donate it."""
        variable = self._variables.get(VariableId.of(device, key))
        return None if variable is None else variable.buffer.array

    def begin_access(self, access: Access) -> bool:
        """Grants or fails an access to variables; returns False if the access must wait."""
        with self.lock:
            return self._queue.try_grant(access)

    def set(
        self,
        access: Access,
        variable_id: VariableId,
        spec: VariableSpec,
        array: jax.Array,
        write: Write | None,
    ) -> VariableState:
        """Sets a variable that a granted access writes; `lock` must be held.

        Returns:
          The variable. If it was freed in the meantime it is not created again; the value is then
          stored in a variable that only the caller refers to.
        """
        if access.lost and variable_id in access.lost:
            return VariableState(spec, Buffer(array, write))
        variable = self._variables.get(variable_id)
        if variable is None:
            account = Account(variable_id.container, access.creator)
            reserved = access.taken_reservation(variable_id)
            variable = VariableState(spec, Buffer(array, write), account, reserved)
            self._variables[variable_id] = variable
            variable.charge(self.usage)
        else:
            variable.update(array, write)
        return variable

    def install(self, access: Access, variable_id: VariableId, state: VariableState) -> None:
        """Gives a variable the buffer, and its leases, of another state, under a granted access.

        `lock` must be held. If the variable was freed in the meantime it is not created again.
        """
        variable = state
        if variable_id not in access.lost:
            variable = self._variables.setdefault(variable_id, state)
            variable.buffer = state.buffer
            variable.charge(self.usage)
        if variable is not state or variable_id in access.lost:
            state.charge(self.usage, 0)

    def set_all(
        self,
        access: Access,
        numbers: Iterable[int],
        ids: Sequence[VariableId],
        specs: Sequence[VariableSpec],
        arrays: Iterable[jax.Array],
        write: Write | None,
    ) -> dict[int, VariableState]:
        """Sets several variables by their positions in `ids`, as `set`; returns them likewise."""
        variables = {}
        for i, array in zip(numbers, arrays, strict=True):
            variable = None if access.lost else self._variables.get(ids[i])
            if variable is None:
                variable = self.set(access, ids[i], specs[i], array, write)
            else:
                variable.update(array, write)
            variables[i] = variable
        return variables

    def charge_again(self, variables: Iterable[VariableState]) -> None:
        """Charges variables whose size may have changed; `lock` must be held."""
        for variable in variables:
            variable.charge(self.usage)

    def end_access(self, access: Access) -> None:
        """Ends a granted access, setting the variables that it writes."""
        with self.lock:
            access.put()
            completed = self._queue.end_access(access)
        if completed:
            notify(completed)

    def enter(self, writing: Writing) -> bool:
        """Lets a step that writes more than once begin to write; returns False if it must wait."""
        with self.lock:
            return self._order.try_enter(writing)

    def leave(self, writing: Writing) -> None:
        """Notes that a step which may write more than once has ended on this task."""
        with self.lock:
            completed = self._order.leave(writing)
        notify(completed)

    def closing(self) -> Wanted:
        """Returns an attempt that waits for writing steps to end, and bars more until `reopen`."""
        return self.writing, CloseWriting()

    def reopen(self, closing: Wanted) -> None:
        """Ends an attempt from `closing`, completed or waiting. Idempotent."""
        cell, attempt = closing
        cell.cancel(attempt, CancelledError("the snapshot was given up"))
        cell.unread(attempt)

    def cut(self, wanted: Iterable[VariableId]) -> VariableCut:
        """Returns an attempt for `accesses` that leases these variables at one moment."""
        return VariableCut(self._variables, wanted)

    def restoring(
        self,
        snapshots: Mapping[VariableId, VariableSnapshot],
        device_of: Callable[[VariableId], DeviceOrMesh],
        *,
        is_owned: bool = False,
    ) -> RestoreVariables:
        """Returns an attempt for `accesses` that restores variables, all of them or none.

        Args:
          snapshots: the values.
          device_of: the devices of the variables, to which the values are copied at once.
          is_owned: whether nothing else uses the arrays of the snapshots, so that their memory may
            become that of the variables.

        Raises:
          InvalidArgumentError: as `RestoreVariables`.
        """
        named = {i: renamed(saved, i.container, i.name) for i, saved in snapshots.items()}
        return RestoreVariables(self._variables, named, device_of, self.usage, is_owned=is_owned)

    def existing(self, variable_ids: Collection[VariableId]) -> list[VariableId]:
        """Returns the initialized variables among these."""
        with self.lock:
            return [key for key in variable_ids if key in self._variables]

    def variables(self) -> dict[VariableId, VariableState]:
        """Returns all initialized variables; the mapping is a copy, their states are not."""
        with self.lock:
            return dict(self._variables)

    def discard(self, variable_ids: Collection[VariableId]) -> None:
        """Frees variables without stopping the programs that write them."""
        self._free(variable_ids.__contains__)

    def clear(self, containers: Iterable[str]) -> None:
        """Frees everything in the named containers; unknown names are ignored."""
        containers = list(containers)
        self.resources.clear(containers)
        freed = {container_on(self.task, name) for name in containers}
        self._free(lambda key: key.container in freed)

    def end_session(self, owner: str) -> None:
        """Frees all variables and resources that belong to a session."""
        self.resources.end_session(owner)
        self._free(lambda key: owner_of(key.container) == owner)

    def clear_all(self) -> None:
        """Frees everything."""
        self.resources.clear_all()
        self._free(lambda _: True)

    def _free(self, is_freed: Callable[[Any], bool]) -> None:
        """Frees variables by their ids, without stopping the programs that write them."""
        with self.lock:
            for variable_id in [*filter(is_freed, self._variables)]:
                self._variables.pop(variable_id).charge(self.usage, 0)
            completed = self._queue.free(is_freed)
        notify(completed)

    def check(self, variable: VariableState, spec: VariableSpec, variable_id: VariableId) -> None:
        """Raises InvalidArgumentError if a variable has a different dtype, shape or sharding."""
        existing = variable.spec
        if existing is spec:
            return
        if existing == spec:
            # The same object is compared by identity from now on: for each variable of each step.
            variable.spec = spec
            return
        if (existing.dtype, existing.shape) != (spec.dtype, spec.shape):
            raise InvalidArgumentError(
                f"{spec.key} on {variable_id.device} already exists with dtype {existing.dtype} "
                f"and shape {declared_shape(existing)}, but this graph expects dtype {spec.dtype} "
                f"and shape {declared_shape(spec)}; use another name or container, or reset "
                "the container",
                op=spec.key.name,
                task=str(self.task),
            )
        array = variable.buffer.array
        sharding = text_of_sharding(array.sharding, array.ndim)
        if spec.sharding not in ("", sharding):
            raise InvalidArgumentError(
                f"{spec.key} on {variable_id.device} already exists and is sharded "
                f"{sharding!r}, but this graph expects {spec.sharding!r}; leave the sharding out, "
                "or use another name or container",
                op=spec.key.name,
                task=str(self.task),
            )
