"""Transactions: what a step writes on one task, staged until it is decided.

A transaction requests all variables that its step writes on the task when the first program that
writes is about to run, and has them to itself until the decision. Programs of the step work on
staged values beside the committed ones, which are leased and so do not change. Programs of other
steps, and snapshots, wait for the variables as for any program that writes.

A step that has variables of one task may wait for those of another, or for other variables. Two
steps that wait for each other are found by age: of two that conflict, the younger one does not wait
for the older one (*wait-die*; Rosenkrantz, Stearns, Lewis, 1978), so "waits for" always points to
a younger step and has no cycles. In most conflicts nothing waits for the younger step, so it waits
for a short time first (`must_yield`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence

import jax
import jax.numpy as jnp

from jflow.errors import CancelledError, OpError
from jflow.plan import VariableSpec
from jflow.state.effects import Effect, Ledger, SupersededError
from jflow.state.journal import JournalEntry
from jflow.state.quotas import Account, Usage
from jflow.state.resources.attempt import Attempt, Resource
from jflow.state.resources.cell import Cell, notify
from jflow.state.resources.containers import Containers
from jflow.state.resources.kernel import Wanted
from jflow.state.resources.variable import (
    Access,
    Buffer,
    Lease,
    VariableId,
    VariableState,
    Write,
)
from jflow.state.resources.writing import Writing


class SingleWrite:
    """The effect of a step whose only write is one program, on the only task that takes part.

    It is applied with that program: nothing is staged, and nothing is copied.

    Args:
      containers: the state of the task.
      effect: the attempt.

    Attributes:
      writing: the step in the order between snapshots and writes; None if no snapshot has it.
      is_applied: whether it is applied, or is being applied.
      is_waiting: whether its program still waits for its devices, so that it can be reverted.
      given_up: called when the step is cancelled and goes on, as its program cannot be stopped.
    """

    def __init__(self, containers: Containers, effect: Effect) -> None:
        self._containers = containers
        self._effect = effect
        self.writing = Writing() if effect.is_saved else None
        self.is_applied = False
        self.is_waiting = False
        self.given_up: Callable[[], object] = lambda: None

    @property
    def must_complete(self) -> bool:
        """Whether the program that writes cannot be stopped any more."""
        return self.is_applied and not self.is_waiting

    def apply(self) -> None:
        """Records that the program that writes is about to run. Raises as `Ledger.apply`."""
        self._containers.ledger(Ledger.apply, self._effect)
        self.is_applied = True

    def revert(self) -> None:
        """Undoes `apply`, because the program did not run."""
        if self.is_applied:
            self.is_applied = False
            self._containers.ledger(Ledger.revert, self._effect)

    def commit(self) -> None:
        """Ends the step's writes after the ledger has recorded the step."""
        if self.writing is not None:
            self._containers.leave(self.writing)

    def abort(self) -> None:
        """Ends the step's writes after the step has failed."""
        self.commit()


class EnterTransaction(Attempt):
    """Waits until a transaction has exclusive access to the variables that it writes."""


class Transaction:
    """The staged writes of one step on one task.

    Args:
      containers: the state of the task.
      effect: the attempt.
      written: the variables that the step writes here.
      is_wide: whether it also writes on other tasks.

    Attributes:
      writing: the step in the order between snapshots and writes, from its first write on.
      entrance: the cell at which programs of the step wait for the variables.
      written: as given.
    """

    def __init__(
        self,
        containers: Containers,
        effect: Effect,
        written: Iterable[VariableId],
        *,
        is_wide: bool,
    ) -> None:
        self.writing = Writing()
        self.written = frozenset(written)
        self.is_wide = is_wide
        self.effect = effect
        self._containers = containers
        self._access = _TransactionAccess(self)
        self._entrance = _Entrance(self._access, containers)
        self.entrance = self._entrance.cell
        self._staged: dict[VariableId, VariableState] = {}
        self._changed: set[VariableId] = set()
        self._leases: list[Lease] = []
        self._noted: list[JournalEntry] = []

    # Entering ---------------------------------------------------------------------------------

    @property
    def is_entering(self) -> bool:
        """Whether a program of the step has requested the variables."""
        return self._entrance.is_requested

    def try_enter(self) -> bool:
        """Requests the variables; returns False if the transaction must wait for them."""
        return self.entrance.query(lambda entrance: bool(entrance.try_enter()))

    def entering(self) -> Wanted:
        """Returns an attempt that waits until the transaction has its variables."""
        return self.entrance, EnterTransaction()

    def must_yield(self, attempt: Attempt) -> bool:
        """Whether the step must stop waiting, because it may be part of a deadlock.

        It has something that others wait for, and the attempt waits for an older transaction.
        """
        if not (self.is_wide or self._entrance.is_entered):
            return False
        waiting = self._access if isinstance(attempt, EnterTransaction) else attempt
        if not isinstance(waiting, Access):
            return False
        ahead = self._containers.accesses.query(lambda queue: queue.ahead(waiting))
        return any(
            isinstance(other, _TransactionAccess) and other.age < self._access.age
            for other in ahead
        )

    def entered(self) -> None:
        """Leases the committed values when access is granted; `Containers.lock` is held."""
        existing = self._containers.peek_all(self.written)
        for key, variable in existing.items():
            self._leases.append(variable.lease())
            self._staged[key] = _CommittedState(variable.spec, variable.buffer)

    # As `Containers`, for the programs of the step --------------------------------------------

    def note(self, entry: JournalEntry) -> None:
        """Like `Containers.note`, once the step is committed."""
        self._noted.append(entry)

    def begin_access(self, access: Access) -> bool:
        """See `Containers.begin_access`."""
        return self._containers.begin_access(access)

    def end_access(self, access: Access) -> None:
        """See `Containers.end_access`."""
        self._containers.end_access(access)

    def find(self, variable_id: VariableId, spec: VariableSpec) -> VariableState | None:
        """Like `Containers.find`, but returns the value that this step has staged, if any."""
        staged = self._staged.get(variable_id)
        if staged is None:
            return self._containers.find(variable_id, spec)
        self._containers.check(staged, spec, variable_id)
        return staged

    def get_all(
        self, numbers: Iterable[int], ids: Sequence[VariableId], specs: Sequence[VariableSpec]
    ) -> dict[int, VariableState]:
        """Like `Containers.get_all`, but with the values that this step has staged."""
        values = {}
        for i in numbers:
            variable = self.find(ids[i], specs[i])
            if variable is None:
                raise self._containers.uninitialized(ids[i], specs[i])
            values[i] = variable
        return values

    def set_all(
        self,
        access: Access,
        numbers: Iterable[int],
        ids: Sequence[VariableId],
        specs: Sequence[VariableSpec],
        arrays: Iterable[jax.Array],
        write: Write | None,
    ) -> dict[int, VariableState]:
        """Like `Containers.set_all`, but stages the values."""
        variables = {}
        for i, array in zip(numbers, arrays, strict=True):
            former = self._staged.get(ids[i])
            n_updates = 0 if former is None else former.buffer.n_updates + 1
            account, charged = Account(ids[i].container, access.creator), 0
            if not self._access.is_over:
                charged = access.taken_reservation(ids[i])
                if former is not None:
                    account, charged = former.account, charged + former.charged
                    former.charged = 0
            state = VariableState(
                specs[i], Buffer(array, write, n_updates=n_updates), account, charged
            )
            self._staged[ids[i]] = variables[i] = state
            self._changed.add(ids[i])
        return variables

    @property
    def usage(self) -> Usage:
        """See `Containers`."""
        return self._containers.usage

    def charge_again(self, variables: Iterable[VariableState]) -> None:
        """Does nothing: more than was reserved for it is charged when it is committed."""

    # The decision -----------------------------------------------------------------------------

    def commit(self) -> None:
        """Applies the staged values, all at one moment, and releases the variables."""
        self._access.is_committed = True
        self._end(CancelledError("the step has ended"))

    def abort(self) -> None:
        """Drops the staged values and releases the variables; does nothing after the end."""
        self._end(SupersededError(f"{self.effect} was given up: a later attempt takes its place"))

    def install(self) -> None:
        """Copies the staged values to the containers, on commit; `Containers.lock` is held."""
        for key in self._changed:
            self._containers.install(self._access, key, self._staged[key])
        for entry in self._noted:
            self._containers.journal.add(entry)

    def drop(self) -> None:
        """Frees what was charged for staged values; `Containers.lock` is held."""
        for key in self._changed:
            self._staged[key].charge(self.usage, 0)

    def _end(self, error: OpError) -> None:
        access = self._access
        notify(self.entrance.query(lambda entrance: entrance.ended(error)))
        self._containers.accesses.cancel(access, error)
        if access.error is None and access.is_complete and not access.is_over:
            access.is_over = True
            self._containers.end_access(access)
        for lease in self._leases:
            lease.release()
        self._containers.leave(self.writing)


class _CommittedState(VariableState):
    """A committed value in a transaction; the first update works on a copy of it."""

    __slots__ = ()

    def donate(self) -> jax.Array:
        """Returns a copy, even once the transaction is over and its leases have ended."""
        return jnp.copy(self.buffer.array)


class _TransactionAccess(Access):
    """The exclusive access of a transaction, from its first write to its decision."""

    __slots__ = ("_transaction", "is_committed", "is_over")

    def __init__(self, transaction: Transaction) -> None:
        super().__init__((), transaction.written)
        self._transaction = transaction
        self.is_committed = False
        self.is_over = False

    @property
    def age(self) -> tuple[int, int, str]:
        """The sort key of transactions by age: the least one is the oldest."""
        return self._transaction.effect.age

    def take(self) -> None:
        self._transaction.entered()

    def put(self) -> None:
        if self.is_committed:
            self._transaction.install()
        else:
            self._transaction.drop()

    def rollback(self) -> None:
        """Does nothing: the transaction releases the variables itself."""

    def reason(self, ahead: Access, writer: Access) -> str:
        keys: Collection[Hashable] = {*ahead.all_keys()}
        first = next((key for key in self.writes if key in keys), "variables")
        return f"waited to write {first}, which {writer.activity()}"

    def activity(self) -> str:
        return f"{self._transaction.effect} has until it is decided"


class _Entrance(Resource):
    """The resource at which the programs of a transaction wait until it has its variables.

    Attributes:
      cell: its cell.
      is_requested: whether the variables have been requested.
      is_entered: whether it has them.
    """

    def __init__(self, access: Access, containers: Containers) -> None:
        self._access = access
        self._containers = containers
        self.cell = Cell(self)
        self._waiting: list[Attempt] = []
        self._end: OpError | None = None
        self.is_requested = False
        self.is_entered = False

    def try_enter(self) -> bool:
        """Requests the variables unless that was done; returns whether the transaction has them."""
        if self.is_requested or self._end is not None:
            return self.is_entered and self._end is None
        if self._containers.begin_access(self._access):
            self.is_requested = self.is_entered = True
        return self.is_entered

    def submit(self, attempt: Attempt) -> list[Attempt]:
        if self._end is not None:
            attempt.fail(self._end)
            return [attempt]
        if self.try_enter():
            attempt.succeed()
            return [attempt]
        self._waiting.append(attempt)
        if self.is_requested:
            return []
        self.is_requested = True
        cell = self._containers.accesses
        # It is not complete at once, unless what it waited for has just ended.
        return self.granted() if cell.submit(self._access, self._then) else []

    def _then(self, _: Attempt) -> None:
        notify(self.cell.query(lambda entrance: entrance.granted()))

    def granted(self) -> list[Attempt]:
        """Completes the attempts that waited for the variables, and returns them."""
        self.is_entered = True
        waiting, self._waiting = self._waiting, []
        for attempt in waiting:
            attempt.succeed()
        return waiting

    def ended(self, error: OpError) -> list[Attempt]:
        """Fails the attempts that wait, and all later ones; returns those that waited."""
        self._end = error
        waiting, self._waiting = self._waiting, []
        for attempt in waiting:
            attempt.fail(error)
        return waiting

    def cancel(self, attempt: Attempt, error: OpError) -> list[Attempt]:
        if attempt.is_complete:
            return []
        self._waiting.remove(attempt)
        attempt.fail(error)
        return [attempt]

    def reason(self, attempt: Attempt) -> str:
        return self._containers.accesses.reason(self._access)
