"""`PlanRun`: the asyncio driver, which runs one plan of a step on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from typing import Any

from jflow.base.drivers.coroutines import Waited
from jflow.base.drivers.loop import all_of
from jflow.base.values import Array
from jflow.errors import CancelledError, InvalidArgumentError
from jflow.net.protocol import Client
from jflow.plan import Recv, Send, Slot
from jflow.plan.xla.mesh_program import Compilation
from jflow.state.core import StepEffect
from jflow.state.effects import ConflictError
from jflow.state.moves import StateId
from jflow.state.resources import Attempt, Cell, SingleWrite, Transaction, Writing
from jflow.state.resources.kernel import Wanted
from jflow.task.execution.callback import LinkedCallback
from jflow.task.execution.interpreter import interpret
from jflow.task.execution.linked import (
    LinkedCall,
    LinkedInstruction,
    LinkedKernel,
    LinkedLoop,
    LinkedPlan,
    LinkedRun,
)
from jflow.task.execution.step_state import StepState
from jflow.task.execution.tracing import traced, traced_state
from jflow.task.execution.variables import VariableAccess
from jflow.task.worker.context import WorkerContext
from jflow.task.worker.device_pool import QUICK_S, is_quick, timed
from jflow.task.worker.failures import raise_of_plan
from jflow.task.worker.in_threads import in_threads
from jflow.task.worker.loop_run import LoopRun
from jflow.task.worker.sends import PlanSends
from jflow.task.worker.waker import SubmittedWait, Waker

_Interpreter = Generator[Wanted | Awaitable[None], None, None]

_SMALL_BYTES = 1 << 16
"""The operands of a host function that may run on the event loop; its time grows with them."""
CONFLICT_S = 0.05
"""How long, in seconds, a step applied once waits before it asks if two may wait for each other."""


def _is_quick_call(state: StepState, call: LinkedCall) -> bool:
    """Whether a host function may run on the event loop, where all others wait for it."""
    if not call.may_be_quick or call.latency.seconds > QUICK_S:
        return False
    n_bytes: int = sum(state[slot].nbytes for slot in call.instruction.inputs)
    return n_bytes <= _SMALL_BYTES


async def run_plan(
    linked: LinkedPlan,
    step: int,
    fed: Mapping[int, Array],
    context: WorkerContext,
    client: Client | None = None,
    parks: Collection[StateId] = (),
    writing: Writing | None = None,
    effect: StepEffect | None = None,
) -> dict[int, Array]:
    """Runs a plan; returns its fetched values by their index.

    Args:
      linked: the plan.
      step: identifies the step on every task that takes part.
      fed: the step's fed values by their index.
      context: the context of the task's worker.
      client: calls functions of the step's client; None if it is not connected to this task.
      parks: the state that it uses, if it can be run again when a move ends it; else nothing.
      writing, effect: as for `StepState`.

    Raises:
      OpError: the step failed; the error names the task.
    """
    run = PlanRun(linked, step, context, client, parks, writing, effect)
    try:
        return await run.run_all(fed)
    except Exception as error:
        raise_of_plan(error, linked, context.task)
    finally:
        run.close()


class PlanRun:
    """One run of a plan: the driver of its interpreters. It must be closed.

    Args:
      linked, step, context, client, parks, writing, effect: as for `run_plan`.
      state: the state of a run that has begun; None to begin one.

    Invariant: the state, which holds leases on what programs read, is closed only after `close` was
    called and no program of the run executes any more, even if the run was cancelled.
    """

    __slots__ = (
        *("_client", "_context", "_interpret", "_is_cancelled", "_linked", "_loops"),
        *("_may_be_quick", "_programs", "_sends", "_single", "_state", "_step", "_transaction"),
        "_waiters",
    )

    def __init__(
        self,
        linked: LinkedPlan,
        step: int,
        context: WorkerContext,
        client: Client | None = None,
        parks: Collection[StateId] = (),
        writing: Writing | None = None,
        effect: StepEffect | None = None,
        state: StepState | None = None,
    ) -> None:
        self._linked = linked
        self._step = step
        self._context = context
        self._client = client
        watch = context.watch(parks)
        recorder = context.recorders.get(step) if context.recorders else None
        self._interpret = interpret if recorder is None else traced
        make = StepState if recorder is None else partial(traced_state, recorder)
        self._state = state or make(
            linked, context.containers, watch=watch, writing=writing, effect=effect, step=step
        )
        # A traced program is waited for; elsewhere it may queue behind long ones of other steps.
        self._may_be_quick = recorder is None or linked.platform == "cpu"
        self._programs: set[Future[Any]] = set()
        self._waiters: set[asyncio.Future[Any]] = set()
        self._sends = PlanSends(linked, step, self._state, context, self._waiters)
        self._is_cancelled = False
        self._loops: list[LoopRun] = []
        self._transaction = effect if isinstance(effect, Transaction) else None
        self._single = effect if isinstance(effect, SingleWrite) else None
        context.plans.add(self)

    async def run_all(self, fed: Mapping[int, Array]) -> dict[int, Array]:
        linked, state = self._linked, self._state
        for feed in linked.feeds:
            state[feed.slot] = fed[feed.index]
        if linked.plan.after:
            await self._in_dataflow_order(linked.plan.after)
        else:
            await self._perform_all(chain.from_iterable(linked.stages))
        await self._sends.finish()
        # Values are fetched after all stages, so that no stage waits for the device.
        fetched = {}
        for fetch in linked.fetches:
            if not self._state.is_computed(fetch.slot):
                await self._wait_computed(state, fetch.slot)
            if linked.is_on_mesh:  # gathered from several devices, which may take long
                value = await self._context.run_in_thread(state.fetch, fetch.slot)
            else:
                value = state.fetch(fetch.slot)
            fetched[fetch.index] = value
        return fetched

    def close(self) -> None:
        self._context.plans.discard(self)
        self._sends.close()
        if not self._programs:
            self._state.close()
            return
        # A program that a cancelled step has started still runs and reads what the state leases.
        running = {job for job in self._programs if not job.done()}
        if not running:
            self._state.close()
        for job in running:
            job.add_done_callback(self._close_state)

    def _close_state(self, _: Future[Any]) -> None:
        if all(job.done() for job in self._programs):
            self._state.close()

    async def _in_dataflow_order(self, after: Sequence[Collection[int]]) -> None:
        """Performs each stage as soon as the stages that it depends on are done."""
        done = [asyncio.Event() for _ in after]

        async def perform(number: int) -> None:
            for needed in after[number]:
                await done[needed].wait()
            await self._perform_all(self._linked.stages[number])
            done[number].set()

        await all_of(perform(number) for number in range(len(after)))

    async def _perform_all(self, instructions: Iterable[LinkedInstruction]) -> None:
        """Performs instructions in order; yields to the event loop only to wait."""
        await self.go_on(self._interpret(zip(repeat(0), instructions), (self._state,), self))

    async def go_on(self, running: _Interpreter, first: SubmittedWait | None = None) -> None:
        """Runs an interpreter to its end; `first` is a wait that has already begun."""
        try:
            if first is not None:
                await self._wait_submitted(*first)
            for pending in running:
                if isinstance(pending, tuple):
                    await self._wait_for(running, *pending)
                else:
                    await pending
        except BaseException:
            running.close()
            self._name_waiting_op()
            raise

    def _name_waiting_op(self) -> None:
        """Adds the name of the waiting operation, which is known once its kernel was closed."""
        op = self._state.waiting_op
        if op is not None and (blocked := self._context.blocked.get(self._step)) is not None:
            self._context.blocked[self._step] = Waited(blocked.reason, op)

    # Waiting ----------------------------------------------------------------------------------

    async def _wait_for(self, interpreter: _Interpreter, cell: Cell, attempt: Attempt) -> None:
        """Waits until an attempt completes; cancels it if this plan is cancelled or fails."""
        self._check_cancelled()
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if not cell.submit(attempt, Waker(waiter, self._step, interpreter)):
            await self._wait_submitted(cell, attempt, waiter)

    async def _wait_submitted(
        self, cell: Cell, attempt: Attempt, waiter: asyncio.Future[Any]
    ) -> None:
        """Like `_wait_for`, for an attempt that was submitted and waits."""
        try:
            if self._transaction is None:
                await self._wait(waiter)
            else:
                await self._wait_by_age(waiter, attempt, self._transaction)
        except BaseException as error:
            if reason := cell.reason(attempt):
                self._context.blocked[self._step] = Waited(reason)
            cell.cancel(attempt, CancelledError("Step was cancelled"))
            is_done = attempt.error is None and not attempt.can_roll_back
            if not (is_done and isinstance(error, asyncio.CancelledError)):
                raise
            # The attempt completed before it could be cancelled and cannot be rolled back. The
            # caller must not be told that nothing was done, since it might retry: the plan goes on
            # to its next wait and ends there.
            self._is_cancelled = True

    async def _wait_by_age(
        self, waiter: asyncio.Future[Any], attempt: Attempt, transaction: Transaction
    ) -> None:
        """Waits for an attempt of a step applied once, unless an older step may wait for it.

        Raises:
          ConflictError: if one may.
        """
        waiting = asyncio.ensure_future(self._wait(waiter))
        try:
            while not (await asyncio.wait([waiting], timeout=CONFLICT_S))[0]:
                if transaction.must_yield(attempt):
                    raise ConflictError(
                        f"{transaction.effect} gives way to an older step, which has variables "
                        "that it waits for"
                    )
        except BaseException:
            waiting.cancel()
            raise
        waiting.result()

    async def _wait(self, waiter: asyncio.Future[Any]) -> Any:
        """Waits for an event that depends on other plans.

        They may depend on a value that this plan sends. If that is lost they never act, so a
        failed send fails the wait, also one that fails later.
        """
        self._check_cancelled()
        self._waiters.add(waiter)
        try:
            self._sends.check()
            return await waiter
        finally:
            self._waiters.discard(waiter)

    def _check_cancelled(self) -> None:
        if self._is_cancelled:
            raise asyncio.CancelledError

    async def _wait_computed(self, state: StepState, *slots: Slot) -> None:
        """Waits until the device has computed the values of slots."""
        for slot in slots:
            if not state.is_computed(slot):
                await self._context.devices.wait(state[slot])

    # Programs ---------------------------------------------------------------------------------

    def _is_alone(self) -> bool:
        return len(self._context.plans) == 1 and self._sends.are_done

    def compute(self, state: StepState, run: LinkedRun, /) -> Awaitable[None] | None:
        if self._may_be_quick and is_quick(run, self._is_alone):
            timed(run, state.compute, run)
            return None
        work = partial(state.compute, run, until_computed=True)
        return self._on_device(run, work, state.compilation(run))

    def finish(self, state: StepState, access: VariableAccess, /) -> Awaitable[None] | None:
        run = access.linked
        if self._may_be_quick and is_quick(run, self._is_alone) and not access.copies_much:
            timed(run, state.finish, access)
            return None
        work = partial(state.finish, access, until_computed=True)
        return self._on_device(run, work, state.compilation(run, access), access.give_up)

    async def _on_device(
        self,
        run: LinkedRun,
        work: Callable[[], object],
        compilation: Compilation | None,
        give_up: Callable[[], object] = lambda: None,
    ) -> None:
        """Runs a long program until its results are computed.

        It cannot be interrupted: if the plan is cancelled, it still runs to its end.

        Args:
          run: the program.
          work: runs it.
          compilation: comes before, while the program does not have the device.
          give_up: called instead if the plan is cancelled before the program starts.
        """
        single = self._single if run.written else None
        device = self._linked.plan.device
        waited = Waited(f"compiled a program for {device}")
        try:
            if single is not None:
                single.is_waiting = True
            if compilation is not None:
                await self._context.devices.compile(compilation)
            waited = Waited(f"waited for {device}, which runs other programs")
            job = await self._context.devices.start(
                self._linked.device, partial(timed, run, work), self._step
            )
        except BaseException:
            give_up()
            if abandoned := self._context.abandoned.describe(self._linked.device):
                waited = replace(waited, reason=f"{waited.reason}, {abandoned}")
            self._context.blocked[self._step] = waited
            raise
        finally:
            if single is not None:
                single.is_waiting = False
        self._programs.add(job)
        try:
            await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            if job.cancel():
                give_up()
            raise

    # Calls ------------------------------------------------------------------------------------

    def call(self, state: StepState, call: LinkedCall, /) -> Awaitable[None] | None:
        is_computed = all(map(state.is_computed, call.instruction.inputs))
        if is_computed and _is_quick_call(state, call):
            timed(call, state.call, call)
            return None
        return self._call(state, call)

    async def _call(self, state: StepState, call: LinkedCall) -> None:
        await self._wait_computed(state, *call.instruction.inputs)
        if _is_quick_call(state, call):
            timed(call, state.call, call)
        else:
            await self._context.run_in_thread(timed, call, state.call, call)

    def perform(
        self, state: StepState, kernel: LinkedKernel, /
    ) -> Generator[Wanted | Awaitable[None], None, None]:
        # A generator around the other one would be kept for each operation that waits.
        if not kernel.is_slow and all(map(state.is_computed, kernel.instruction.inputs)):
            return state.perform(kernel)
        return self._perform(state, kernel)

    def _perform(
        self, state: StepState, kernel: LinkedKernel
    ) -> Generator[Wanted | Awaitable[None], None, None]:
        if not all(map(state.is_computed, kernel.instruction.inputs)):
            yield self._wait_computed(state, *kernel.instruction.inputs)
        work = state.perform(kernel)
        yield from in_threads(work, self._context.threads) if kernel.is_slow else work

    async def call_client(self, state: StepState, callback: LinkedCallback, /) -> None:
        """Makes the client call one of its functions."""
        await self._wait_computed(state, *callback.instruction.inputs)
        operands = state.operands(callback)
        if operands is None:
            return
        if self._client is None:
            raise InvalidArgumentError(
                f"a plan for {self._linked.plan.device} calls a function of the client, which is "
                "not connected to this task",
                op=callback.instruction.op,
            )
        results: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            with callback.naming_errors():
                await self._client(callback.number, operands, results)
                state.answer(callback, await self._wait(results))
        finally:
            results.cancel()

    def loop(self, state: StepState, loop: LinkedLoop, /) -> Generator[Awaitable[None], None, None]:
        yield self._loop(state, loop)

    async def _loop(self, state: StepState, loop: LinkedLoop) -> None:
        """Runs this device's part of a loop."""
        others = self._waiters, self._loops
        run = LoopRun(loop, state, self._step, self._context, self, self._interpret, *others)
        try:
            await run.run()
        finally:
            run.close()

    # Transfers --------------------------------------------------------------------------------

    def receive(self, state: StepState, recv: Recv, /) -> Awaitable[None] | None:
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        value = self._context.rendezvous.receive(self._step, recv.edge, waiter)
        if value is None:
            return self._receive(state, recv, waiter)
        state.receive(recv, value.value)
        return None

    async def _receive(self, state: StepState, recv: Recv, waiter: asyncio.Future[Any]) -> None:
        source, senders = recv.source.task, self._context.senders
        if source == self._context.task:
            state.receive(recv, await self._wait(waiter))
            return
        senders.add_wait(source, waiter)
        try:
            state.receive(recv, await self._wait(waiter))
        finally:
            senders.remove_wait(source, waiter)

    def send(self, _: StepState, send: Send, /) -> None:
        self._sends.add(send)
