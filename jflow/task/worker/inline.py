"""Plans that run inline, in the call that has read their request, until something has to wait.

A run of such a plan (`jflow.task.execution.classes`) needs no task, no entry in the tables by which
others find it, and no driver of the interpreter, unless it has to wait for others or its device.

* `InlinePrograms` use no state of the task, and nothing that they do has to be rolled back.
* An `InlineAccess` is run if its variables are free; nothing was done if they are not.
* An `InlineOperation` makes its attempt. If that has to wait, a `PlanRun` goes on with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from typing import Generic, TypeVar

import jax
import numpy as np

from jflow.base.deadline.clock import now
from jflow.base.values import Array
from jflow.plan.xla.compile import is_pure
from jflow.state.core import StepEffect
from jflow.state.resources.kernel import Wanted
from jflow.task.execution.classes import (
    General,
    SeveralPrograms,
    SingleAccess,
    SingleOperation,
    SingleProgram,
    classify,
)
from jflow.task.execution.run_program import run_program
from jflow.task.execution.step_state import StepState
from jflow.task.worker.context import WorkerContext
from jflow.task.worker.device_pool import is_quick, timed
from jflow.task.worker.failures import raise_of_plan
from jflow.task.worker.plan_run import PlanRun
from jflow.task.worker.registered import RegisteredPlans
from jflow.task.worker.waker import SubmittedWait, Waker

ClassT = TypeVar("ClassT", bound=SingleProgram | SeveralPrograms | SingleAccess | SingleOperation)
"""The class of a plan."""

MAX_KEPT_BYTES = 64 << 10
"""Up to this size, the results of a plan that is fed nothing are kept: they never change."""


class _Inline(Generic[ClassT]):
    """The base class of plans that run inline.

    Args:
      registered: the registered plans, of which it is the only one.
      context: the context of the task's worker.
      programs: the class of the plan.
    """

    def __init__(
        self, registered: RegisteredPlans, context: WorkerContext, programs: ClassT
    ) -> None:
        self.registered = registered
        self._context = context
        self._class = programs
        self._linked = linked = programs.linked
        position = {index: i for i, index in enumerate(registered.feeds)}
        self._feeds = tuple((feed.slot, position[feed.index]) for feed in linked.feeds)
        self._fetches = tuple(
            fetch.slot for fetch in sorted(linked.fetches, key=lambda one: one.index)
        )

    def _is_alone(self) -> bool:
        return not self._context.plans

    async def _wait_for_device(self, step: int, value: jax.Array) -> None:
        """Waits for the device, and records meanwhile that the step runs."""
        context, run = self._context, object()
        context.started[step] = now(), self.registered
        context.plans.add(run)
        try:
            await context.devices.wait(value)
        finally:
            context.plans.discard(run)
            del context.started[step]


class InlinePrograms(_Inline[SingleProgram | SeveralPrograms]):
    """A plan of programs of fed values and constants."""

    def __init__(
        self,
        registered: RegisteredPlans,
        context: WorkerContext,
        programs: SingleProgram | SeveralPrograms,
    ) -> None:
        super().__init__(registered, context, programs)
        self._runs = runs = programs.runs
        self._is_constant = not self._feeds and all(
            run.executable is not None and is_pure(run.executable) for run in runs
        )
        self._fetched: list[Array] | None = None

    @property
    def is_quick(self) -> bool:
        """Whether a run neither occupies the event loop for long nor waits for a thread."""
        if self._fetched is not None:
            return True
        return all(is_quick(run, self._is_alone) for run in self._runs)

    async def run_inline(self, step: int, feeds: Sequence[Array]) -> Sequence[Array]:
        """Runs the plan, which must be quick; waits only for the device.

        Args:
          step: identifies the step.
          feeds: the fed values in the order of their indices.

        Raises:
          OpError: as `run_plan`.
        """
        self._context.rendezvous.n_opened += 1
        if self._fetched is not None:
            return self._fetched
        self.registered.check_feeds(feeds)
        linked = self._linked
        slots = [*linked.slots]
        for slot, i in self._feeds:
            slots[slot] = feeds[i]
        try:
            for run in self._runs:
                start = now()
                run_program(run, slots, (), linked.plan.device)
                run.latency.note(now() - start)
            values = [slots[slot] for slot in self._fetches]
            for value in values:
                if not value.is_ready():
                    await self._wait_for_device(step, value)
            fetched = [np.asarray(value) for value in values]
        except Exception as error:
            raise_of_plan(error, linked, self._context.task)
        if self._is_constant and sum(value.nbytes for value in fetched) <= MAX_KEPT_BYTES:
            self._fetched = fetched
        return fetched


class InlineAccess(_Inline[SingleAccess]):
    """A plan of one program that reads or writes variables."""

    @property
    def is_quick(self) -> bool:
        """Whether a run neither occupies the event loop for long nor waits for a thread."""
        return is_quick(self._class.run, self._is_alone)

    async def run_inline(
        self,
        step: int,
        feeds: Sequence[Array],
        effect: StepEffect | None = None,
        n_steps: int = 1,
    ) -> list[Array] | None:
        """Runs the plan, which must be quick; waits only for the device.

        Args:
          step: identifies the step.
          feeds: the fed values in the order of their indices.
          effect, n_steps: as for `StepState`.

        Returns:
          None if the variables are not free, or one has to be copied, which takes long; nothing was
          done then.

        Raises:
          OpError: as `run_plan`.
        """
        context, linked, run = self._context, self._linked, self._class.run
        writing = None if effect is None else effect.writing
        state = StepState(linked, context.containers, writing=writing, effect=effect, step=step)
        for slot, i in self._feeds:
            state.slots[slot] = feeds[i]
        state.n_steps = n_steps
        try:
            access = state.begin_access(run)
            if access is None:
                return None
            if access.copies_much:
                access.give_up()
                return None
            timed(run, state.finish, access, n_steps=n_steps)
            fetched: list[Array] = []
            for slot in self._fetches:
                if not state.is_computed(slot):
                    await self._wait_for_device(step, state[slot])
                fetched.append(state.fetch(slot))
        except Exception as error:
            raise_of_plan(error, linked, context.task)
        finally:
            state.close()
        context.rendezvous.n_opened += 1
        return fetched


class InlineOperation(_Inline[SingleOperation]):
    """A plan of one operation on a resource that is no variable, such as a queue."""

    def __init__(
        self, registered: RegisteredPlans, context: WorkerContext, operation: SingleOperation
    ) -> None:
        super().__init__(registered, context, operation)
        self._watch = context.watch(registered.use.states if registered.is_restartable else ())

    @property
    def is_quick(self) -> bool:
        """Always True: the operation only waits for other steps."""
        return True

    async def run_inline(self, step: int, feeds: Sequence[Array]) -> list[Array]:
        """Runs the plan; an operation that has to wait continues as a `PlanRun` of the step.

        Args:
          step: identifies the step.
          feeds: the fed values in the order of their indices.

        Raises:
          OpError: as `run_plan`.
        """
        context, linked, kernel = self._context, self._linked, self._class.kernel
        state = StepState(linked, context.containers, watch=self._watch, step=step)
        for slot, i in self._feeds:
            state.slots[slot] = feeds[i]
        try:
            running = state.perform(kernel)
            for cell, attempt in running:
                waiter = asyncio.get_running_loop().create_future()
                if not cell.submit(attempt, Waker(waiter, step, running)):
                    await self._wait(step, state, running, (cell, attempt, waiter))
                    break
            else:
                context.rendezvous.n_opened += 1
            return [*map(state.fetch, self._fetches)]
        except Exception as error:
            raise_of_plan(error, linked, context.task)
        finally:
            state.close()

    async def _wait(
        self,
        step: int,
        state: StepState,
        running: Generator[Wanted, None, None],
        first: SubmittedWait,
    ) -> None:
        """Continues an operation whose first attempt waits."""
        context = self._context
        context.begin_step(step, self.registered)
        run = PlanRun(self._linked, step, context, state=state)
        try:
            await run.go_on(running, first)
        except asyncio.CancelledError as error:
            context.tell_wait(step, error)
            raise
        finally:
            run.close()
            context.end_step(step, self.registered)


Inline = InlinePrograms | InlineAccess | InlineOperation


def inline_plan(registered: RegisteredPlans, context: WorkerContext) -> Inline | None:
    """Returns the only one of registered plans if it can run inline; None if not or under a claim.

    A later claim ends what runs under a claim, by its task.
    """
    if registered.owner.claim is not None:
        return None
    match classify(registered.plans):
        case SingleProgram() | SeveralPrograms() as programs:
            return InlinePrograms(registered, context, programs)
        case SingleAccess() as access:
            return InlineAccess(registered, context, access)
        case SingleOperation() as operation:
            return InlineOperation(registered, context, operation)
        case General():
            return None
