"""Access of programs to variables: granted before a program runs, written back after it."""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding

from jflow.base.text import seconds_text
from jflow.base.values import Array
from jflow.errors import OpError
from jflow.plan import Slot
from jflow.plan.xla.shardings import sharding_on
from jflow.state.journal import Touched
from jflow.state.quotas import Account, ChargedSession
from jflow.state.resources import (
    Access,
    Attempt,
    Buffer,
    Cell,
    Containers,
    Lease,
    Resource,
    SingleWrite,
    Transaction,
    VariableId,
    VariableState,
    Write,
)
from jflow.task.execution.linked import LinkedRun

QUEUED_S = 10e-3
"""The time after the start of a program during which programs that use its results are started.

The device then runs one after the other without a pause. Later ones wait instead: behind a program
that runs for minutes, each would occupy one of the few slots in the queue of the device.
"""

_NONE: Mapping[int, Any] = MappingProxyType({})

COPIED_HERE_BYTES = 1 << 20
"""A copy of this size takes no longer than a program that counts as quick."""


class VariableAccess(Access):
    """The access of a program to its variables in one step.

    The variables are identified by their index in the plan.

    Args:
      linked: the program.
      containers: the variables of the task.
      queued_s: the time after the start of a program, in seconds, during which its results may be
        used although it is still running.
      effect: applied by the grant, if this is the only write of a step that is applied once.

    Attributes:
      is_done: whether nothing is left to do, because all variables to initialize have a value.
      used: the variables that are read.
      existing: the written variables that keep their value, because they are already initialized.
      replaced: the variables that are written without being read, if they had a value.
      leases: leases on the values that are only read, until the program has run.
      held: leases on values in slots, until the step ends: old values and, after the access has
        ended, new ones.
      missing: (slot, default) pairs for the variables of `Run.defaults` that have no value.
      results: the new values of the variables that it writes; empty if they do not change.
      has_to_end: whether it holds variables exclusively, or sets them, until it ends.
      mark: the mark of the new values until they are computed.
      late: values that are still being computed. If there are any and the access writes, it has
        taken nothing.
    """

    __slots__ = (
        "_containers",
        "effect",
        "existing",
        "has_to_end",
        "held",
        "is_done",
        "late",
        "leases",
        "linked",
        "mark",
        "missing",
        "queued_s",
        "replaced",
        "results",
        "since",
        "used",
    )

    def __init__(
        self,
        linked: LinkedRun,
        containers: Containers | Transaction,
        queued_s: float,
        effect: SingleWrite | None = None,
    ) -> None:
        super().__init__(linked.only_read, linked.written)
        self.has_to_end = bool(linked.written)
        self.linked = linked
        self.effect = effect
        self.queued_s = queued_s
        self.since = 0.0
        self.is_done = False
        self.used: Mapping[int, VariableState] = _NONE
        self.existing: Mapping[int, VariableState] = _NONE
        self.replaced: Mapping[int, VariableState] = _NONE
        self.leases: Mapping[int, Lease] = _NONE
        self.held: Sequence[tuple[Slot, Lease]] = ()
        self.missing: Sequence[tuple[Slot, Slot]] = ()
        self.late: list[tuple[VariableId, Buffer]] = []
        self.results: Sequence[jax.Array] = ()
        self.mark: Write | None = None
        self._containers = containers

    def take(self) -> None:
        linked, containers, run = self.linked, self._containers, self.linked.instruction
        self.since = now = time.monotonic()
        if run.initializes:
            variables = (
                (i, containers.find(linked.keys[i], linked.specs[i])) for i in run.initializes
            )
            self.existing = {i: variable for i, variable in variables if variable is not None}
            if len(self.existing) == len(run.writes) and not (run.outputs or run.after):
                self.is_done = True  # nothing needs the results of the program
                return
        self.used = containers.get_all(linked.used, linked.keys, linked.specs)
        if run.defaults:
            self.used = {**self.used, **self._initialized_defaults()}
        self._find_late(now - self.queued_s)
        if linked.only_written:
            found = (
                (i, containers.find(linked.keys[i], linked.specs[i])) for i in linked.only_written
            )
            self.replaced = {i: variable for i, variable in found if variable is not None}
        if self.late and self.writes:
            return
        if len(self.replaced) != len(linked.only_written):
            self._reserve()
        if self.effect is not None and self.writes:
            self._apply(self.effect)
        if linked.leased:
            self.leases = {i: self.used[i].lease() for i in linked.leased}
        if run.before:
            self.held = [(slot, self.used[i].lease()) for i, slot in run.before]
        if run.defaults:
            present = [(slot, self.used[i]) for i, slot, _ in run.defaults if i in self.used]
            self.held = [*self.held, *((slot, variable.lease()) for slot, variable in present)]
            self.missing = [(slot, other) for i, slot, other in run.defaults if i not in self.used]

    def _reserve(self) -> None:
        """Charges the variables that it will make. Raises ResourceExhaustedError by the quotas."""
        linked, amounts = self.linked, Counter[Account]()
        reserved: dict[Hashable, int] = {}
        for i in linked.only_written:
            if i not in self.replaced:
                key, n_bytes = linked.keys[i], linked.variable_bytes[i]
                amounts[self._account(key)] += n_bytes
                reserved[key] = n_bytes
        self._containers.usage.charge(amounts)
        self.reserved = reserved

    def _end_reservation(self) -> None:
        """Frees what was reserved for variables that were not made."""
        reserved, self.reserved = self.reserved or {}, None
        for key, n_bytes in reserved.items():
            assert isinstance(key, VariableId)
            self._containers.usage.add(self._account(key), -n_bytes)

    def _account(self, key: VariableId) -> Account:
        return Account(key.container, self.linked.creator)

    def _apply(self, effect: SingleWrite) -> None:
        try:
            effect.apply()
        except OpError:
            self._end_reservation()
            raise

    def touched(self) -> Iterator[Touched]:
        """Yields each variable that the program reads or writes, once access is granted."""
        run, held = self.linked.instruction, self.held
        for i, lease in self.leases.items():
            yield i, lease.buffer.n_updates, False
        if (run.before or run.defaults) and not self.is_done:
            present = [i for i, _, _ in run.defaults if i in self.used]
            missing = [i for i, _, _ in run.defaults if i not in self.used]
            read = (*(i for i, _ in run.before), *present)
            for i, (_, lease) in zip(read, held, strict=True):
                yield i, lease.buffer.n_updates, False
            for i in missing:
                yield i, -1, False
        for i in run.writes:
            existing = self.existing.get(i)
            variable = existing or self.used.get(i) or self.replaced.get(i)
            n_updates = -1 if variable is None else variable.buffer.n_updates
            yield i, n_updates, existing is None

    def _find_late(self, oldest: float) -> None:
        """Finds the used values still being computed by a program begun before `oldest`."""
        computed: Write | None = None
        for i, variable in self.used.items():
            buffer = variable.buffer
            write = buffer.write
            if write is None or write[1] >= oldest:
                continue
            if write is computed:
                buffer.write = None  # the device completes all results of a program together
            elif buffer.is_computed:
                computed = write
            else:
                self.late.append((self.linked.keys[i], buffer))

    def _initialized_defaults(self) -> dict[int, VariableState]:
        """Returns the variables of `Run.defaults` that are initialized."""
        linked, numbers = self.linked, (i for i, _, _ in self.linked.instruction.defaults)
        variables = {i: self._containers.find(linked.keys[i], linked.specs[i]) for i in numbers}
        return {i: variable for i, variable in variables.items() if variable is not None}

    def donated(self) -> list[jax.Array]:
        """Returns the old values as arguments of the program, donating those that it writes."""
        used, leases, reads = self.used, self.leases, self.linked.instruction.reads
        old = []
        for i in reads:
            old.append(leases[i].buffer.array if i in leases else used[i].donate())
        return old

    def old_values(self) -> list[jax.Array]:
        """Returns the old values, which `donated` will give, to look at their shardings."""
        return [
            (self.leases[i] if i in self.leases else self.used[i]).buffer.array
            for i in self.linked.instruction.reads
        ]

    def shardings(self) -> list[Sharding | None]:
        """Returns the shardings of the variables that it writes; None where XLA chooses.

        A variable keeps its sharding; a new one has what it was declared with.
        """
        return [self._sharding(i) for i in self.linked.instruction.writes]

    def _sharding(self, number: int) -> Sharding | None:
        variable = self.used.get(number) or self.replaced.get(number)
        if variable is not None:
            return variable.buffer.array.sharding
        mesh, text = self.linked.mesh, self.linked.specs[number].sharding
        return sharding_on(mesh, text) if mesh is not None and text else None

    @property
    def copies_much(self) -> bool:
        """Whether the program has to copy a large leased variable to update it."""
        used = self.used
        for i in self.linked.instruction.writes:
            buffer = used[i].buffer if i in used else None
            if buffer is not None and buffer.leases and buffer.array.nbytes > COPIED_HERE_BYTES:
                return True
        return False

    def put(self) -> None:
        if self.results:
            self._put()
        if self.reserved:
            self._end_reservation()

    def _put(self) -> None:
        linked, run, arrays = self.linked, self.linked.instruction, self.results
        numbers: Sequence[int] = run.writes
        if self.existing:
            pairs = [
                pair for pair in zip(numbers, arrays, strict=True) if pair[0] not in self.existing
            ]
            numbers, arrays = [i for i, _ in pairs], [array for _, array in pairs]
        new = self._containers.set_all(self, numbers, linked.keys, linked.specs, arrays, self.mark)
        if linked.varying:
            kept = (i for i in linked.varying if i in new and linked.keys[i] not in self.lost)
            self._containers.charge_again(new[i] for i in kept)
        if run.after:
            written = {**self.existing, **new} if self.existing else new
            self.held = held = []
            for i, slot in run.after:
                held.append((slot, written[i].buffer.lease()))

    @property
    def creator(self) -> ChargedSession:
        return self.linked.creator

    def end_access(self) -> None:
        """Sets the written variables, and releases them to other steps."""
        self._containers.end_access(self)

    def rollback(self) -> None:
        for lease in (*self.leases.values(), *(lease for _, lease in self.held)):
            lease.release()
        if self.effect is not None:
            self.effect.revert()
        if self.reserved:
            self._end_reservation()

    def give_up(self) -> None:
        """Ends the access without running its program."""
        self.rollback()
        self.end_access()

    def reason(self, ahead: Access, writer: Access) -> str:
        reason = f"waited for {_common(self, ahead)}"
        if writer is not ahead:
            reason += f", behind steps that waited for {_common(ahead, writer)}"
        return f"{reason}, which {writer.activity()}"

    def activity(self) -> str:
        return _writing_text(self.linked.instruction.op, self.since)


class StagedAccess(VariableAccess):
    """The access of a program in a transaction, which already holds the variables it writes.

    It waits only for the variables that it reads, and its writes are staged when it ends.
    """

    __slots__ = ()

    def __init__(self, linked: LinkedRun, transaction: Transaction, queued_s: float) -> None:
        super().__init__(linked, transaction, queued_s)
        own = transaction.written if transaction.is_entering else ()
        self.reads = tuple(key for key in linked.only_read if key not in own)
        self.writes = ()


def _common(one: Access, other: Access) -> object:
    mine = {*one.all_keys()}
    return next((key for key in other.all_keys() if key in mine), next(other.all_keys()))


def _writing_text(op: str, since: float) -> str:
    elapsed = time.monotonic() - since
    return f"operation {op!r} of another step has been writing for {seconds_text(elapsed)}"


class Computed(Attempt):
    """An attempt that completes when a device has computed the value of a variable."""

    __slots__ = ("buffer", "key")

    def __init__(self, key: VariableId, buffer: Buffer) -> None:
        super().__init__()
        self.key = key
        self.buffer = buffer


class _ComputedWatcher(Resource):
    """Completes attempts when values are computed, with one thread for each awaited value."""

    def __init__(self) -> None:
        self._waiting: dict[Buffer, list[Computed]] = {}

    def submit(self, attempt: Attempt) -> list[Attempt]:
        assert isinstance(attempt, Computed)
        if attempt.buffer in self._waiting:
            self._waiting[attempt.buffer].append(attempt)
            return []
        if attempt.buffer.is_computed:
            attempt.succeed()
            return [attempt]
        self._waiting[attempt.buffer] = [attempt]
        threading.Thread(
            target=_watch, args=(attempt.buffer,), name="jflow device", daemon=True
        ).start()
        return []

    def cancel(self, attempt: Attempt, error: OpError) -> list[Attempt]:
        assert isinstance(attempt, Computed)
        if attempt.is_complete:
            return []
        self._waiting[attempt.buffer].remove(attempt)
        attempt.fail(error)
        return [attempt]

    def close(self, error: OpError) -> list[Attempt]:
        raise NotImplementedError("devices stay as long as the process")

    def reason(self, attempt: Attempt) -> str:
        assert isinstance(attempt, Computed)
        write = attempt.buffer.write
        return "" if write is None else f"waited for {attempt.key}, which " + _writing_text(*write)

    def computed(self, buffer: Buffer) -> list[Computed]:
        """Completes all attempts that wait for a value that was computed."""
        waiting = self._waiting.pop(buffer)
        for attempt in waiting:
            attempt.succeed()
        return waiting


COMPUTED = Cell(_ComputedWatcher())
"""The cell of attempts that wait for the values of variables; one for the process."""


def _watch(buffer: Buffer) -> None:
    with suppress(Exception):  # a program that uses the value fails with the same error
        buffer.array.block_until_ready()
    for attempt in COMPUTED.query(lambda watcher: watcher.computed(buffer)):
        attempt.then(attempt)


class _Memory:
    """Exposes memory to NumPy; every array that views a part of it references this object."""

    def __init__(self, data: Array) -> None:
        self.__array_interface__ = data.__array_interface__
        self._data = data


def leased_view(view: Array, lease: Lease) -> Array:
    """Returns an equal array whose last reference, or that of its views, releases `lease`."""
    memory = _Memory(view.reshape(-1).view(np.uint8))
    weakref.finalize(memory, lease.release).atexit = False
    return np.asarray(memory).view(view.dtype).reshape(view.shape)
