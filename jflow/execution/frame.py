"""The values of one part in one step, and its accesses to variables."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jflow.errors import InvalidArgumentError, OpError
from jflow.execution.bound import BoundCall, BoundOperation, BoundPlan, BoundRun
from jflow.execution.loan import lent
from jflow.execution.variables import DEVICES, QUEUED_S, Computed, VariableAccess
from jflow.plan import Call, Slot
from jflow.resources import Containers, Lease
from jflow.resources.kernel import Wanted, wait_for
from jflow.values import is_host

COPIED_BYTES = 4096
"""Up to this size a copy of a variable takes less time than keeping account of a view."""


class Frame:
    """Slots of a plan while a step runs. Must be closed, which ends the leases it holds.

    Args:
      bound: the plan.
      store: the state.
      queued_s: for how long after its start a program's results may be given to another one before
        they are computed, in seconds.
    """

    def __init__(self, bound: BoundPlan, store: Containers, queued_s: float = QUEUED_S) -> None:
        self._plan = bound.plan
        self._queued_s = queued_s
        self._reads: list[tuple[Lease, jax.Array]] = []
        self._store = store
        self._slots = [*bound.slots]
        self._leases: dict[Slot, Lease] = {}
        self._is_closed = False

    def __getitem__(self, slot: Slot) -> Any:
        return self._slots[slot]

    def __setitem__(self, slot: Slot, value: Any) -> None:
        self._slots[slot] = value

    def is_leased(self, slot: Slot) -> bool:
        """Whether the slot's value is a variable's buffer, which may change after the step."""
        return slot in self._leases

    def host(self, slot: Slot, *, copy: bool) -> np.ndarray[Any, Any]:
        """A slot's value as a NumPy array: on a CPU a view of the device's memory.

        A variable's buffer is viewed through another array object than the variable's own, for
        JAX remembers a view in the object it was asked of, and a remembered view of a variable
        would make each later update copy it.

        Args:
          slot: which value.
          copy: whether to copy what its receiver must not share: a variable's buffer, which may
            change when this frame is closed, and a host tensor, which may be a constant.
        """
        value = self._slots[slot]
        if is_host(value):
            return np.array(value) if copy else np.asarray(value)
        if slot not in self._leases:
            return np.asarray(value)
        view = np.asarray(value.addressable_data(0))
        return np.array(view) if copy else view

    def array(self, slot: Slot) -> jax.Array:
        """A slot's value as an array that stays as it is when this frame is closed."""
        value: jax.Array = self._slots[slot]
        return jnp.copy(value) if slot in self._leases else value

    def lend(self, slot: Slot) -> np.ndarray[Any, Any]:
        """A slot's value as a NumPy array that outlives this frame unchanged.

        A variable's buffer is viewed and not copied, unless it is small: it stays leased for as
        long as anybody has the array.
        """
        value = self._slots[slot]
        lease = self._leases.get(slot)
        if lease is None or value.nbytes <= COPIED_BYTES:
            return self.host(slot, copy=True)
        return lent(self.host(slot, copy=False), lease.again())

    def close(self) -> None:
        """Ends the leases: a variable's next update may work in place again.

        A program may still run on another thread when its step was cancelled; what it read stays
        leased until it has ended.
        """
        self._is_closed = True
        if self._leases:
            for lease in [*self._leases.values()]:
                lease.release()
        if self._reads:
            reads, self._reads = self._reads, []
            for lease, result in reads:
                lease.release_after(result)

    def call(self, bound: BoundCall) -> None:
        """Calls a function of the host. Raises OpError as that does."""
        inputs = self.arguments(bound.step)
        try:
            results = bound.function(*inputs, *bound.constants, **bound.attributes)
        except OpError as error:
            error.op = error.op or bound.step.op
            raise
        self.fill(bound.step, results)

    def perform(self, bound: BoundOperation) -> Generator[Wanted, None, None]:
        """Performs an operation on resources; yields what it has to wait for.

        Raises:
          OpError: as the operation does.
        """
        inputs = self.arguments(bound.step)
        try:
            held = [self._store.resources.get(self._plan.device, spec) for spec in bound.resources]
            values = [*inputs, *bound.constants]
            results = yield from bound.operation(held, values, **bound.attributes)
        except OpError as error:
            error.op = error.op or bound.step.op
            raise
        self.fill(bound.step, results)

    def arguments(self, step: Call) -> list[np.ndarray[Any, Any]]:
        """The inputs of a call."""
        return [self._argument(slot) for slot in step.inputs]

    def fill(self, step: Call, results: Sequence[Any]) -> None:
        """Keeps the results of a call."""
        for slot, value in zip(step.outputs, results, strict=True):
            self._slots[slot] = value

    def _argument(self, slot: Slot) -> np.ndarray[Any, Any]:
        """A slot's value as functions of the host take it, who may keep it: it does not change."""
        value = self._slots[slot]
        if value is None:
            raise InvalidArgumentError(f"a call takes slot {slot}, which nothing has filled")
        return value if isinstance(value, np.ndarray) else self.host(slot, copy=True)

    def begin(self, bound: BoundRun) -> VariableAccess | None:
        """Takes the variables that a program uses, all at once; None if it has to wait for them.

        `finish` or `give_up` must follow.

        Raises:
          FailedPreconditionError: if a variable is read that is not initialized.
          InvalidArgumentError: if a variable has another dtype or shape than expected.
        """
        access = VariableAccess(bound, self._store, self._queued_s)
        if not self._store.begin(access):
            return None
        if access.error is not None:
            raise access.error
        if access.late:
            access.give_up()
            return None
        return access

    def wait(self, bound: BoundRun) -> Generator[Wanted, None, VariableAccess]:
        """As `begin`; yields what it has to wait for."""
        while True:
            access = VariableAccess(bound, self._store, self._queued_s)
            yield from wait_for(self._store.accesses, access)
            if access.writes and access.late:
                access.give_up()
                yield from wait_for(DEVICES, Computed(*access.late[-1]))
                continue
            # What is only read is kept meanwhile: steps that update it all the time would always be
            # ahead of one that asks again.
            try:
                for late in access.late:
                    yield from wait_for(DEVICES, Computed(*late))
            except BaseException:
                access.rollback()
                raise
            return access

    def finish(self, access: VariableAccess, *, until_computed: bool = False) -> None:
        """Runs a program on the variables that were taken for it, and sets those that it writes.

        Args:
          access: what `begin` or `wait` gave; it has ended when this returns.
          until_computed: whether to keep the variables until the device has computed their values.

        Raises:
          InvalidArgumentError: if the program does not take what it is given.
        """
        run = access.run
        self._hold_all(access.held)
        result: jax.Array | None = None
        try:
            if not access.is_done:
                new, result = self._compute(run, access.donated())
                if until_computed and result is not None:
                    result.block_until_ready()
                access.results, access.mark = new, None if until_computed else access.write
        finally:
            if access.writes:
                access.end()
                if run.step.after:
                    self._hold_all(access.held)
            if access.leases:
                for lease in access.leases.values():
                    if result is None:
                        lease.release()
                    else:
                        self._reads.append((lease, result))
            if self._is_closed:
                self.close()

    def compute(self, bound: BoundRun, *, until_computed: bool = False) -> None:
        """Runs a program that uses no variables."""
        _, probe = self._compute(bound, [])
        if until_computed and probe is not None:
            probe.block_until_ready()

    def _compute(
        self, bound: BoundRun, old: list[jax.Array]
    ) -> tuple[list[jax.Array], jax.Array | None]:
        """Runs the program and keeps its outputs in slots.

        Returns:
          The variables' new values, and one of the results if there are any: the device computes
          all of them together.
        """
        if bound.executable is None:
            return [], None
        inputs = [self._slots[slot] for slot in bound.step.inputs]
        try:
            results = bound.executable(*old, *inputs, *bound.constants)
        except (TypeError, ValueError) as error:
            # Of sizes that were not known JAX finds out here whether they are what they must be.
            raise InvalidArgumentError(
                f"a program on {self._plan.device} does not take what it is given: {error}"
            ) from error
        n_written = len(bound.step.writes)
        for slot, value in zip(bound.step.outputs, results[n_written:], strict=True):
            self._slots[slot] = value
        return list(results[:n_written]), results[-1] if results else None

    def _hold_all(self, held: Sequence[tuple[Slot, Lease]]) -> None:
        for slot, lease in held:
            self._leases[slot] = lease
            self._slots[slot] = lease.buffer.array
