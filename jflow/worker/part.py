"""Runs one plan of a step on an event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from jflow.cluster import Task
from jflow.errors import CancelledError, InternalError, InvalidArgumentError, OpError
from jflow.execution.bound import BoundCall, BoundOperation, BoundPlan, BoundRun, BoundStep
from jflow.execution.callback import BoundCallback
from jflow.execution.devices import put
from jflow.execution.frame import Frame
from jflow.execution.variables import VariableAccess
from jflow.execution.waiting import Wanted
from jflow.plan import Feed, Fetch, Recv, Send, Slot
from jflow.protocol import Array, Client, begin
from jflow.resources import Attempt, Holder, Store
from jflow.worker.devices import Devices
from jflow.worker.rendezvous import Rendezvous

QUICK_S = 200e-6
"""What a program may take to run on the event loop, which serves nobody else meanwhile."""


class Transport(Protocol):
    """How parts reach other tasks."""

    async def deliver(self, target: Task, step: int, edge: int, tensor: Array | None) -> None:
        """Sends a value, or a bare signal, to another task."""


@dataclass(frozen=True)
class Surroundings:
    """What the parts of one task share.

    Attributes:
      task: which task it is.
      store: its state.
      rendezvous: where values for its parts arrive.
      transport: how to reach other tasks.
      threads: for work on the host that may take a while, but ends.
      devices: where programs run, and are waited for, that may take long.
      blocked: by step, what those of its parts waited for that were cancelled.
    """

    task: Task
    store: Store
    rendezvous: Rendezvous[asyncio.Future[Any]]
    transport: Transport
    threads: ThreadPoolExecutor
    devices: Devices
    blocked: dict[int, str] = field(default_factory=dict)

    def deliver(self, step: int, edge: int, value: Any) -> None:
        """Takes a value for a part of this task."""
        waiter = self.rendezvous.deliver(step, edge, value)
        if waiter is not None and not waiter.done():
            waiter.set_result(value)


async def run_part(
    bound: BoundPlan,
    step: int,
    fed: Mapping[int, Array],
    around: Surroundings,
    client: Client | None = None,
) -> dict[int, Array]:
    """Runs a plan; returns its fetched values by their index.

    Args:
      bound: the plan.
      step: names the step on every task that takes part.
      fed: the step's fed values by their index.
      around: what the plan's task provides.
      client: calls functions of the client of the step.

    Raises:
      OpError: with the task where it happened.
    """
    part = _Part(bound, step, fed, around, client)
    try:
        return await part.run()
    except OpError as error:
        error.task = error.task or str(around.task)
        raise
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"a program on {bound.plan.device} does not take what it is given: {error}",
            task=str(around.task),
        ) from error
    except jax.errors.JaxRuntimeError as error:
        raise InternalError(
            f"a program failed on {bound.plan.device}: {error}", task=str(around.task)
        ) from error
    finally:
        part.close()


class _Part:
    def __init__(
        self,
        bound: BoundPlan,
        step: int,
        fed: Mapping[int, Array],
        around: Surroundings,
        client: Client | None,
    ) -> None:
        self._bound = bound
        self._step = step
        self._fed = fed
        self._around = around
        self._client = client
        self._frame = Frame(bound, around.store)
        self._sends: list[asyncio.Future[None]] = []
        self._programs: set[Future[Any]] = set()
        self._fetches: dict[int, Slot] = {}
        self._waiters: set[asyncio.Future[Any]] = set()
        self._is_cancelled = False

    async def run(self) -> dict[int, Array]:
        if self._bound.plan.after:
            await self._take_as_they_come(self._bound.plan.after)
        else:
            for stage in self._bound.stages:
                await self._take(stage)
        if len(self._sends) == 1:
            await self._sends[0]
        elif self._sends:
            await all_of(self._sends)
        return await self._fetched()

    async def _take_as_they_come(self, after: Sequence[Collection[int]]) -> None:
        """Takes each stage as soon as those that it needs are done."""
        done = [asyncio.Event() for _ in after]

        async def take(number: int) -> None:
            for needed in after[number]:
                await done[needed].wait()
            await self._take(self._bound.stages[number])
            done[number].set()

        await all_of(take(number) for number in range(len(after)))

    async def _take(self, stage: Sequence[BoundStep]) -> None:
        for action in stage:
            # What need not wait is no coroutine of its own: most actions are done at once.
            match action:
                case BoundRun():
                    if action.uses_variables:
                        await self._run_on_variables(action)
                    elif _is_quick(action):
                        self._timed(action, self._frame.compute, action)
                    else:
                        await self._on_device(action, self._frame.compute, action)
                case BoundCall():
                    await self._call(action)
                case BoundOperation():
                    await self._perform(action)
                case BoundCallback():
                    await self._call_back(action)
                case Recv():
                    await self._receive(action)
                case Feed():
                    self._frame[action.slot] = self._fed[action.index]
                case Fetch():
                    # Read at the end, so that later stages need not wait for this device.
                    self._fetches[action.index] = action.slot
                case Send():
                    self._begin_send(action)

    async def _fetched(self) -> dict[int, Array]:
        values = {}
        for index, slot in self._fetches.items():
            await self._ready(slot)
            values[index] = self._frame.lend(slot)
        return values

    async def _call(self, action: BoundCall) -> None:
        for slot in action.step.inputs:
            await self._ready(slot)
        if action.pace.last_s > QUICK_S:
            await self._in_thread(self._timed_call, action)
        else:
            self._timed_call(action)

    def _timed_call(self, action: BoundCall) -> None:
        begun = time.perf_counter()
        self._frame.call(action)
        action.pace.last_s = time.perf_counter() - begun

    async def _call_back(self, action: BoundCallback) -> None:
        """Has the client call one of its functions."""
        for slot in action.step.inputs:
            await self._ready(slot)
        operands = action.taken(self._frame.arguments(action.step))
        if operands is None:
            self._frame.fill(action.step, action.zeros())
            return
        if self._client is None:
            raise InvalidArgumentError(
                f"a plan for {self._bound.plan.device} calls a function of its client, which is "
                "not connected to this task",
                op=action.step.op,
            )
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            await self._client(action.number, operands, answer)
            self._frame.fill(action.step, action.checked(await self._wait(answer)))
        except OpError as error:
            error.op = error.op or action.step.op
            raise
        finally:
            answer.cancel()

    async def _perform(self, action: BoundOperation) -> None:
        for slot in action.step.inputs:
            await self._ready(slot)
        work = self._frame.perform(action)
        try:
            while (wanted := await self._go_on(action, work)) is not None:
                await self._settled(*wanted)
        finally:
            work.close()

    async def _go_on(
        self, action: BoundOperation, work: Generator[Wanted, None, None]
    ) -> Wanted | None:
        """Takes an operation to where it waits for something; None at its end."""
        if not action.reads_files:
            return next(work, None)
        loop = asyncio.get_running_loop()
        going = loop.run_in_executor(self._around.threads, next, work, None)
        try:
            return await asyncio.shield(going)
        except asyncio.CancelledError:
            while not going.done():  # it cannot be closed before
                with suppress(asyncio.CancelledError):  # it was told once, and that is enough
                    await asyncio.wait([going])
            raise

    async def _settled(self, holder: Holder, attempt: Attempt) -> None:
        """Waits until an attempt has settled; gives it up if this part need not go on."""
        self._check_cancelled()
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if holder.submit(attempt, _Waker(waiter)):
            return
        try:
            await self._wait(waiter)
        except BaseException as error:
            if reason := holder.reason(attempt):
                self._around.blocked[self._step] = reason
            holder.withdraw(attempt, CancelledError("Step was cancelled"))
            is_done = attempt.error is None and not attempt.can_be_undone
            if not (is_done and isinstance(error, asyncio.CancelledError)):
                raise
            # It was too late: who is told that nothing was done might do it again.
            self._is_cancelled = True

    def _check_cancelled(self) -> None:
        if self._is_cancelled:
            raise asyncio.CancelledError

    def close(self) -> None:
        for send in self._sends:
            send.cancel()
        # A program that a cancelled step has started goes on, and needs what the frame leases.
        running = {job for job in self._programs if not job.done()}
        if not running:
            self._frame.close()
        for job in running:
            job.add_done_callback(self._close_frame)

    def _close_frame(self, _: Future[Any]) -> None:
        if all(job.done() for job in self._programs):
            self._frame.close()

    async def _in_thread(self, work: Callable[..., object], *args: Any) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._around.threads, work, *args)

    async def _run_on_variables(self, action: BoundRun) -> None:
        access = self._frame.begin(action)
        if access is None:
            access = await self._variables(action)
        if _is_quick(action) and not access.copies_much:
            self._timed(action, self._frame.finish, access)
        else:
            await self._on_device(action, self._frame.finish, access, access.give_up)

    async def _variables(self, action: BoundRun) -> VariableAccess:
        """Waits for the variables that a program uses."""
        waiting = self._frame.wait(action)
        try:
            while True:
                await self._settled(*next(waiting))
        except StopIteration as taken:
            access: VariableAccess = taken.value
            return access
        finally:
            waiting.close()

    async def _on_device(
        self,
        action: BoundRun,
        work: Callable[..., object],
        argument: object,
        give_up: Callable[[], object] = lambda: None,
    ) -> None:
        """Runs a program that may take long until its results are computed.

        Nothing can interrupt it: if this part is cancelled, it goes on and ends by itself.

        Args:
          action: the program.
          work: runs it, given `argument`.
          argument: what `work` takes.
          give_up: is called instead if the part is cancelled before the program starts.
        """
        timed = partial(self._timed, action, partial(work, until_computed=True), argument)
        try:
            job = await self._around.devices.start(self._bound.device, timed)
        except BaseException:
            give_up()
            device = self._bound.plan.device
            self._around.blocked[self._step] = f"waited for {device}, which runs other programs"
            raise
        self._programs.add(job)
        try:
            await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            if job.cancel():
                give_up()
            raise

    def _timed(self, action: BoundRun, work: Callable[..., object], argument: object) -> None:
        begun = time.perf_counter()
        work(argument)
        action.pace.last_s = time.perf_counter() - begun

    async def _receive(self, action: Recv) -> None:
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        kept = self._around.rendezvous.take(self._step, action.edge, waiter)
        value = await self._wait(waiter) if kept is None else kept.value
        if action.slot is not None:
            self._frame[action.slot] = put(value, self._bound.device)

    async def _wait(self, waiter: asyncio.Future[Any]) -> Any:
        """Waits for what others do, unless what they need of this part is lost."""
        self._check_cancelled()
        self._waiters.add(waiter)
        try:
            for send in self._sends:
                if send.done():
                    self._sent(send)
            return await waiter
        finally:
            self._waiters.discard(waiter)

    def _begin_send(self, action: Send) -> None:
        if action.target.task == self._around.task:
            self._around.deliver(self._step, action.edge, self._own_value(action.slot))
            return
        send = begin(self._send(action))
        send.add_done_callback(self._sent)
        self._sends.append(send)

    def _sent(self, send: asyncio.Future[None]) -> None:
        """A part that waits for others must not wait on when what it sends them is lost."""
        error = None if send.cancelled() else send.exception()
        if error is None:
            return
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(error)

    def _own_value(self, slot: Slot | None) -> Any:
        """A slot's value that stays as it is when this part has ended and others go on."""
        if slot is None:
            return None
        value = self._frame[slot]
        return jnp.copy(value) if self._frame.is_leased(slot) else value

    async def _send(self, action: Send) -> None:
        tensor = None
        if action.slot is not None:
            await self._ready(action.slot)
            tensor = self._frame.host(action.slot, copy=False)
        target = action.target.task
        await self._around.transport.deliver(target, self._step, action.edge, tensor)

    async def _ready(self, slot: Slot) -> None:
        """Waits until the device has computed a slot's value."""
        value = self._frame[slot]
        if isinstance(value, jax.Array) and not _is_ready(value):
            await self._around.devices.wait(value)


def _is_quick(action: BoundRun) -> bool:
    """Whether a program may run on the event loop, which serves nothing else meanwhile.

    Some run to their end where they are started. A loop whose end is computed may take minutes,
    however quick it was the last time.
    """
    return action.pace.last_s <= QUICK_S and action.may_be_quick


class _Waker:
    """Ends a wait on an event loop; any thread may call it, and the wait may be over already."""

    def __init__(self, waiter: asyncio.Future[Any]) -> None:
        self._waiter = waiter
        self._thread = threading.get_ident()

    def __call__(self, _: Attempt) -> None:
        if threading.get_ident() == self._thread:
            self._wake()
        else:
            self._waiter.get_loop().call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if not self._waiter.done():
            self._waiter.set_result(None)


def _is_ready(array: jax.Array) -> bool:
    """Whether the device has computed it; JAX has the method, its type stub has not."""
    ready: bool = array.is_ready()  # type: ignore[attr-defined]
    return ready


async def all_of(awaitables: Iterable[Awaitable[Any]]) -> list[Any]:
    """Awaits all; the first error cancels the others and is raised alone."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
