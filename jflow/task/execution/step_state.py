"""The state of a plan in a step: the values in its slots, and its accesses to variables."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jflow.base.values import Array, SentArray, is_string_tensor
from jflow.errors import InvalidArgumentError, OpError
from jflow.plan import Call, Instruction, Recv, Slot
from jflow.plan.xla.host_view import host_blocks, host_view
from jflow.plan.xla.internals import ConcreteArray
from jflow.plan.xla.mesh_program import Compilation, MeshProgram
from jflow.state.core import StepEffect
from jflow.state.journal import RECORDED, JournalEntry, Touched
from jflow.state.resources import Containers, EnterWriting, Lease, SingleWrite, Transaction, Writing
from jflow.state.resources.kernel import KernelRun, Wanted, wait_for
from jflow.task.execution.callback import LinkedCallback
from jflow.task.execution.devices import put
from jflow.task.execution.linked import LinkedCall, LinkedKernel, LinkedPlan, LinkedRun
from jflow.task.execution.run_program import arguments_of, run_program
from jflow.task.execution.variables import (
    COMPUTED,
    QUEUED_S,
    Computed,
    StagedAccess,
    VariableAccess,
    leased_view,
)

COPIED_BYTES = 4096
"""Up to this size copying a variable is faster than a leased view."""

EdgeOf = Callable[[int], int]
"""Returns the edge of the step that an edge of a plan is in an iteration of a loop."""

Watch = Callable[[KernelRun], KernelRun]
"""Wraps the run of a kernel so that a move may end it; see `jflow.task.execution.parked`."""


class StepState:
    """The slots of a plan while a step runs. It must be closed, which releases its leases.

    A slot can refer to the buffer of a variable. It then has a lease in `_leases`, which ends when
    the state is closed; a value that outlives the state must be copied or have its own lease.

    Args:
      linked: the plan.
      containers: the state of the task.
      queued_s: the time after the start of a program, in seconds, during which its results may be
        passed to another program before they are computed.
      watch: see `Watch`; None if the step cannot be run again.
      writing: all plans of the step on this task, if they write variables more than once.
      effect: what the step writes on this task, if it is applied once; None if not.
      step: the number of the step, to note what it does if it is recorded.

    Attributes:
      slots: their values.
      edge_of: returns the edge of the step that an edge of the plan is; see `EdgeOf`.
      n_steps: how many steps in turn it stands for; more than one only if its plan is repeatable
        (`repeated.py`).
      waiting_op: name of the operation whose kernel was ended last while it waited.
    """

    __slots__ = (
        *("_containers", "_is_closed", "_leases", "_linked", "_queued_s", "_reads", "_single"),
        *("_recorded", "_transaction", "_uses_left", "_watch", "_writing"),
        *("edge_of", "n_steps", "slots", "waiting_op"),
    )

    def __init__(
        self,
        linked: LinkedPlan,
        containers: Containers,
        queued_s: float = QUEUED_S,
        watch: Watch | None = None,
        writing: Writing | None = None,
        effect: StepEffect | None = None,
        step: int = 0,
    ) -> None:
        self._linked = linked
        self._recorded = step if step >= RECORDED else 0
        self._transaction = effect if isinstance(effect, Transaction) else None
        self._single = effect if isinstance(effect, SingleWrite) else None
        self._watch = watch
        self._writing = writing
        self._queued_s = queued_s
        self._reads: list[tuple[Lease, jax.Array]] = []
        self._containers = containers
        self.slots = [*linked.slots]
        self._leases: dict[Slot, Lease] = {}
        self._uses_left: dict[Slot, int] = {}
        self._is_closed = False
        self.waiting_op: str | None = None
        self.edge_of: EdgeOf = int
        self.n_steps = 1

    def __getitem__(self, slot: Slot) -> Any:
        return self.slots[slot]

    def __setitem__(self, slot: Slot, value: Any) -> None:
        self.slots[slot] = value

    def for_iteration(self, body: LinkedPlan, edge_of: EdgeOf) -> StepState:
        """Returns a state for an iteration of a loop.

        Args:
          body: the plan of an iteration.
          edge_of: returns the edge of the step that an edge of the body is.
        """
        state = StepState(body, self._containers, self._queued_s)
        state.edge_of = edge_of
        return state

    def is_leased(self, slot: Slot) -> bool:
        """Whether a slot refers to the buffer of a variable, which may change after the step."""
        return slot in self._leases

    def is_computed(self, slot: Slot) -> bool:
        """Whether the device has computed the value of a slot."""
        value = self.slots[slot]
        if not isinstance(value, ConcreteArray):
            return True
        ready: bool = value.is_ready()  # type: ignore[attr-defined]  # not in JAX's type stub
        return ready

    def host_value(self, slot: Slot, *, copy: bool) -> np.ndarray[Any, Any]:
        """Returns the value of a slot as a NumPy array, on a CPU a view of the device's memory.

        Args:
          slot: the slot.
          copy: whether to copy what the receiver must not share: the buffer of a variable, which
            may change when this state is closed, and a host tensor, which may be a constant.
        """
        value = self.slots[slot]
        if is_string_tensor(value):
            return np.array(value) if copy else np.asarray(value)
        if slot not in self._leases:
            return np.asarray(value)
        view = host_view(value)
        return np.array(view) if copy else view

    def sent_value(self, slot: Slot) -> SentArray:
        """Returns the value of a slot to be sent, like `host_value` without a copy."""
        value = self.slots[slot]
        if isinstance(value, ConcreteArray):
            return host_blocks(value)
        return self.host_value(slot, copy=False)

    def array(self, slot: Slot) -> jax.Array:
        """Returns the value of a slot as an array that remains valid after the state is closed."""
        value: jax.Array = self.slots[slot]
        return jnp.copy(value) if slot in self._leases else value

    def detach(self, slot: Slot) -> None:
        """Copies the value of a slot if it is the buffer of a variable, and ends the lease."""
        lease = self._leases.pop(slot, None)
        if lease is not None:
            self.slots[slot] = copied = jnp.copy(self.slots[slot])
            self._release([lease], copied)

    def fetch(self, slot: Slot) -> np.ndarray[Any, Any]:
        """Returns the value of a slot as a NumPy array that remains valid after closing.

        The buffer of a variable on a CPU is not copied, unless it is small: it stays leased for as
        long as there are references to the array.
        """
        lease = self._leases.get(slot)
        if lease is None:
            return self.host_value(slot, copy=True)
        view = host_view(self.slots[slot])
        if view.nbytes <= COPIED_BYTES:
            return np.array(view)
        # It was copied from a device, or from several.
        is_own = self._linked.platform != "cpu" or view.flags.owndata
        return view if is_own else leased_view(view, lease.again())

    def end_use(self, slot: Slot, result: jax.Array | None = None) -> None:
        """Records that a send of a slot, or the last program that takes it, is done with its value.

        After the last of them the value is dropped. The buffer of a variable is not leased any
        more, so a later program of the same step updates it in place.

        Args:
          slot: the slot.
          result: a result of the program that has used it, which the device may still compute.
        """
        n_uses = self._linked.n_uses.get(slot, 0)
        if n_uses != 1:
            left = self._uses_left[slot] = self._uses_left.get(slot, n_uses) - 1
            if left:
                return
        self.slots[slot] = None
        lease = self._leases.pop(slot, None)
        if lease is None:
            return
        if result is None:
            lease.release()
        else:
            lease.release_after(result)
            self._reads.append((lease, result))

    def close(self) -> None:
        """Releases the leases, so that the next update of a variable works in place again.

        A program may still be running on another thread if its step was cancelled. What it reads
        stays leased until it has ended.
        """
        self._is_closed = True
        if self._leases:
            for lease in [*self._leases.values()]:
                lease.release()
        if self._reads:
            reads, self._reads = self._reads, []
            for lease, result in reads:
                lease.release_after(result)

    def call(self, linked: LinkedCall) -> None:
        """Calls a host function. Raises OpError as the function does."""
        inputs = self.arguments(linked.instruction)
        try:
            if linked.variables:
                inputs = [*self._presence(linked), *inputs]
            results = linked.function(*inputs, *linked.constants, **linked.attributes)
            self.fill(linked.instruction, results)
            if self._recorded and linked.variables:
                self._note(linked.instruction, values=results)
        except OpError as error:
            error.with_context(op=linked.instruction.op)
            raise
        except (TypeError, ValueError) as error:
            raise _misfit(linked.instruction, error) from error

    def perform(self, linked: LinkedKernel) -> Generator[Wanted, None, None]:
        """Runs a kernel on resources; a generator that yields what it waits for.

        Raises:
          FailedPreconditionError, InvalidArgumentError: if a later program of the plan could not
            run, as `begin_access`.
          OpError: as the kernel does.
        """
        if self._linked.early:
            self._check_variables()
        inputs = self.arguments(linked.instruction)
        try:
            held = [
                self._containers.resources.get(self._linked.plan.device, spec, self._linked.creator)
                for spec in linked.resources
            ]
            values = [*inputs, *linked.constants]
            run = linked.kernel(held, values, **linked.attributes)
            results = yield from run if self._watch is None else self._watch(run)
            self.fill(linked.instruction, results)
            if self._recorded:
                self._note(linked.instruction, values=results)
        except GeneratorExit:
            self.waiting_op = linked.instruction.op
            raise
        except OpError as error:
            error.with_context(op=linked.instruction.op)
            raise
        except (TypeError, ValueError) as error:
            raise _misfit(linked.instruction, error) from error

    def _check_variables(self) -> None:
        """Checks the variables of the programs that follow an operation on a resource."""
        with self._containers.lock:
            for run, variables in self._linked.early:
                self._containers.get_all(variables, run.keys, run.specs)

    def operands(self, linked: LinkedCallback) -> Sequence[Array] | None:
        """Returns the operands of a client's function, or None if it must not be called.

        If it must not be called its results are zeros; otherwise `answer` must follow.
        """
        operands = linked.operands(self.arguments(linked.instruction))
        if operands is None:
            self.fill(linked.instruction, linked.zeros())
        return operands

    def answer(self, linked: LinkedCallback, results: Sequence[Array]) -> None:
        """Stores the results from the client. Raises InvalidArgumentError as `checked`."""
        self.fill(linked.instruction, linked.checked(results))

    def receive(self, recv: Recv, value: Any) -> None:
        """Stores a value that another plan sent."""
        if recv.slot is not None:
            self.slots[recv.slot] = put(value, self._linked.device)

    def arguments(self, call: Call) -> list[np.ndarray[Any, Any]]:
        """Returns the inputs of a call."""
        return [self._argument(slot) for slot in call.inputs]

    def fill(self, call: Call, results: Sequence[Any]) -> None:
        """Stores the results of a call."""
        for slot, value in zip(call.outputs, results, strict=True):
            self.slots[slot] = value

    def _presence(self, linked: LinkedCall) -> Iterator[np.ndarray[Any, Any]]:
        """Yields whether each variable of a call is initialized, as bool[]."""
        for variable_id, spec in linked.variables:
            yield np.asarray(self._containers.find(variable_id, spec) is not None)

    def _argument(self, slot: Slot) -> np.ndarray[Any, Any]:
        """Returns the value of a slot as an array that a host function may keep."""
        value = self.slots[slot]
        if value is None:
            raise InvalidArgumentError(f"a call reads slot {slot}, which has no value")
        return value if isinstance(value, np.ndarray) else self.host_value(slot, copy=True)

    def begin_access(self, linked: LinkedRun) -> VariableAccess | None:
        """Requests all variables of a program at once; returns None if it has to wait.

        `finish` or `give_up` must follow.

        Raises:
          FailedPreconditionError: if it reads a variable that is not initialized.
          InvalidArgumentError: if a variable has a different dtype or shape than expected.
        """
        writing = self._writing
        if writing is not None and linked.written and not self._containers.enter(writing):
            return None
        if self._transaction is not None:
            entrance = self._entrance(linked)
            if entrance is not None and not entrance.try_enter():
                return None
        access = self._access(linked)
        if not self._containers.begin_access(access):
            return None
        if access.error is not None:
            raise access.error
        if access.late:
            access.give_up()
            return None
        return access

    def wait(self, linked: LinkedRun) -> Generator[Wanted, None, VariableAccess]:
        """Waits for the variables of a program; a generator that yields what it waits for."""
        if self._writing is not None and linked.written:
            yield from wait_for(self._containers.writing, EnterWriting(self._writing))
        if (entrance := self._entrance(linked)) is not None:
            yield from wait_for(*entrance.entering())
        while True:
            access = self._access(linked)
            yield from wait_for(self._containers.accesses, access)
            if access.writes and access.late:
                access.give_up()
                yield from wait_for(COMPUTED, Computed(*access.late[-1]))
                continue
            # The variables that it only reads stay leased in the meantime. With a new request it
            # could wait forever behind steps that update them all the time.
            try:
                for late in access.late:
                    yield from wait_for(COMPUTED, Computed(*late))
            except BaseException:
                access.rollback()
                raise
            return access

    def _entrance(self, linked: LinkedRun) -> Transaction | None:
        """Returns the transaction that must enter before a program runs, if any."""
        transaction = self._transaction
        if transaction is None:
            return None
        return transaction if linked.written or transaction.is_entering else None

    def _access(self, linked: LinkedRun) -> VariableAccess:
        if self._transaction is not None:
            return StagedAccess(linked, self._transaction, self._queued_s)
        return VariableAccess(linked, self._containers, self._queued_s, self._single)

    def finish(self, access: VariableAccess, *, until_computed: bool = False) -> None:
        """Runs a program on the variables that it was granted, and sets those that it writes.

        Args:
          access: the result of `begin_access` or `wait`; it has ended when this returns.
          until_computed: whether to hold the variables until the device has computed their values.

        Raises:
          InvalidArgumentError: if the program does not accept its arguments.
        """
        linked = access.linked
        touched = [*access.touched()] if self._recorded else ()
        if access.held:
            self._hold_all(access.held)
        for slot, default in access.missing:
            self._copy_slot(slot, default)
        result: jax.Array | None = None
        try:
            if not access.is_done:
                results = self._run(linked, access)
                new = results[: len(linked.instruction.writes)]
                result = results[-1] if results else None
                if until_computed and result is not None:
                    result.block_until_ready()
                access.results = new
                if not until_computed:
                    access.mark = (linked.instruction.op, access.since)
        finally:
            if access.has_to_end:
                access.end_access()
                if linked.instruction.after:
                    self._hold_all(access.held)
            self._release(access.leases.values(), result)
            if self._is_closed:
                self.close()
        if touched:
            self._note(linked.instruction, touched)

    def _release(self, leases: Iterable[Lease], result: jax.Array | None) -> None:
        """Ends leases once the device has computed a result of the program that they were for."""
        for lease in leases:
            if result is None:
                lease.release()
                continue
            # A later program of this step may update in place what this one has read.
            lease.release_after(result)
            self._reads.append((lease, result))

    def _note(
        self,
        instruction: Instruction,
        touched: Sequence[Touched] = (),
        values: Sequence[Array] = (),
    ) -> None:
        """Notes what an instruction has done, for the client that records the step."""
        plan, owner = self._linked.plan, self._transaction or self._containers
        owner.note(JournalEntry(self._recorded, plan, instruction, touched, (*values,)))

    def compilation(
        self, linked: LinkedRun, access: VariableAccess | None = None
    ) -> Compilation | None:
        """Returns the compilation that a program on a mesh needs before it gets its devices.

        Returns:
          None if it is compiled for the shardings of its arguments, or is not for a mesh.
        """
        program = linked.executable
        if not isinstance(program, MeshProgram) or (access is not None and access.is_done):
            return None
        old = () if access is None else access.old_values()
        kept = () if access is None else access.shardings()
        return program.compilation(*arguments_of(linked, self.slots, old), kept=kept)

    def compute(self, linked: LinkedRun, *, until_computed: bool = False) -> None:
        """Runs a program that uses no variables."""
        results = self._run(linked, None)
        if until_computed and results:
            results[-1].block_until_ready()

    def _run(self, linked: LinkedRun, access: VariableAccess | None) -> list[jax.Array]:
        """Runs a program with the variables that it was granted; see `run_program`."""
        old = () if access is None else access.donated()
        kept = None if linked.mesh is None or access is None else access.shardings()
        device = self._linked.plan.device
        results = run_program(linked, self.slots, old, device, kept, self.n_steps)
        for slot in linked.last_uses:
            self.end_use(slot, results[-1] if results else None)
        return results

    def _copy_slot(self, slot: Slot, source: Slot) -> None:
        """Copies the value of a slot to another one, with its lease."""
        self.slots[slot] = self.slots[source]
        if source in self._leases:
            self._leases[slot] = self._leases[source].again()

    def _hold_all(self, held: Sequence[tuple[Slot, Lease]]) -> None:
        for slot, lease in held:
            self._leases[slot] = lease
            self.slots[slot] = lease.buffer.array


def _misfit(call: Call, error: Exception) -> InvalidArgumentError:
    """Returns the error for a call that does not accept its arguments."""
    return InvalidArgumentError(
        f"{call.function!r} does not accept its arguments: {error}", op=call.op or None
    )
