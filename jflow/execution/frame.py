"""The values of one part in one step, and its turns on the variables."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jflow.errors import InvalidArgumentError, OpError
from jflow.execution.bound import BoundCall, BoundOperation, BoundPlan, BoundRun
from jflow.execution.loan import lent
from jflow.execution.waiting import Wanted
from jflow.graph import is_host
from jflow.plan import Call, Slot
from jflow.resources import Lease, Store, Variable

COPIED_BYTES = 4096
"""Up to this size a copy of a variable takes less time than keeping account of a view."""


class Frame:
    """Slots of a plan while a step runs. Must be closed, which ends the leases it holds."""

    def __init__(self, bound: BoundPlan, store: Store) -> None:
        self._plan = bound.plan
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

        A turn may still be under way on another thread when its step was cancelled.
        """
        self._is_closed = True
        for lease in list(self._leases.values()):
            lease.release()

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

    def take_turn(self, bound: BoundRun) -> None:
        """Runs a program between reading variables and setting them, as one atomic turn.

        Computing goes on in the background where JAX does so; the turn lasts for the dispatch.

        Raises:
          FailedPreconditionError: if a variable is read that is not initialized.
          InvalidArgumentError: if a variable has another dtype or shape than expected.
        """
        if bound.uses_variables:
            with self._store.lock:
                self._turn(bound)
        else:
            self._compute(bound, [])

    def try_turn(self, bound: BoundRun) -> bool:
        """As `take_turn`, but does nothing and returns False if it is somebody else's turn."""
        if not bound.uses_variables:
            self._compute(bound, [])
            return True
        if not self._store.lock.acquire(blocking=False):
            return False
        try:
            self._turn(bound)
        finally:
            self._store.lock.release()
        return True

    def _turn(self, bound: BoundRun) -> None:
        step = bound.step
        kept = self._kept(step.initializes)
        if kept and len(kept) == len(step.writes) and not (step.outputs or step.after):
            return  # nobody needs what the program would compute
        used = {i: self._get(i) for i in (*step.reads, *(i for i, _ in step.before))}
        for i in step.writes:
            self._store.find(self._plan.device, self._plan.variables[i])
        for i, slot in step.before:
            self._hold(used[i], slot)
        old = [used[i].donate() if i in step.writes else used[i].buffer.array for i in step.reads]
        new = self._compute(bound, old)
        written = {
            i: kept.get(i) or self._store.set(self._plan.device, self._plan.variables[i], array)
            for i, array in zip(step.writes, new, strict=True)
        }
        for i, slot in step.after:
            self._hold(written[i], slot)

    def _compute(self, bound: BoundRun, old: list[jax.Array]) -> list[jax.Array]:
        """Runs the program; keeps its outputs in slots and returns the variables' new values."""
        if bound.executable is None:
            return []
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
        return list(results[:n_written])

    def _kept(self, variables: Sequence[int]) -> dict[int, Variable]:
        """Those of the variables that have a value already, which initializing must not change."""
        found = {i: self._store.find(self._plan.device, self._plan.variables[i]) for i in variables}
        return {i: variable for i, variable in found.items() if variable is not None}

    def _get(self, variable: int) -> Variable:
        return self._store.get(self._plan.device, self._plan.variables[variable])

    def _hold(self, variable: Variable, slot: Slot) -> None:
        lease = self._leases[slot] = variable.lease()
        self._slots[slot] = variable.buffer.array
        if self._is_closed:
            lease.release()
