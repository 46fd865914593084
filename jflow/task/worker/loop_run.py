"""`LoopRun`: runs a device's part of a loop over devices on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from itertools import repeat
from typing import Any

from jflow.errors import InternalError, OpError
from jflow.plan import Recv, Send
from jflow.state.resources.kernel import Wanted
from jflow.task.execution.interpreter import Driver
from jflow.task.execution.iterations import Instance
from jflow.task.execution.linked import LinkedLoop
from jflow.task.execution.loop import LoopState
from jflow.task.execution.step_state import StepState
from jflow.task.worker.context import WorkerContext
from jflow.task.worker.sends import PlanSends

Interpret = Callable[..., Generator[Wanted | Awaitable[None], None, None]]
"""An interpreter, which may trace."""


class LoopRun:
    """One run of a device's part of a loop. It must be closed.

    The device runs one instance at a time, the first of those that are ready. Receives of all
    iterations under way wait meanwhile, and nothing waits for sends, whose failure fails the loop.

    Args:
      linked: the loop.
      state: the state of its plan.
      step: identifies the step.
      context: the context of the task's worker.
      driver: performs instructions, except sends and receives.
      interpret: the interpreter, which may trace.
      waiters: the waits of the plan, which a failed send fails.
    """

    def __init__(
        self,
        linked: LinkedLoop,
        state: StepState,
        step: int,
        context: WorkerContext,
        driver: Driver[Awaitable[None]],
        interpret: Interpret,
        waiters: set[asyncio.Future[Any]],
    ) -> None:
        self._interpret = interpret
        self._loop = linked.instruction
        self._linked = linked
        self._state = LoopState(linked, state)
        self._step = step
        self._context = context
        self._driver = driver
        self._waiters = waiters
        self._sends: dict[int, PlanSends] = {}
        self._leaving: list[PlanSends] = []
        self._expected: set[asyncio.Future[Any]] = set()
        self._n_missing: dict[Instance, int] = {}
        self._error: BaseException | None = None
        # Completed when there may be something to do. A failed send fails it as well.
        self._woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters.add(self._woken)

    async def run(self) -> None:
        """Runs all iterations.

        Raises:
          OpError: as the instructions do; it names the iteration.
        """
        state, devices = self._state, self._context.devices
        while not state.iterations.is_over:
            while state.iterations.may_begin:
                for value in state.not_computed():
                    await devices.wait(value)
                self._begin()
            instance = state.iterations.take()
            if instance is None:
                await self._wait()
                continue
            try:
                await self._perform(instance)
            except OpError as error:
                error.with_context(doing=self._described(instance[1]))
                raise
            if state.end(instance):
                self._leaving.append(self._sends.pop(instance[1]))
                self._leaving = [sends for sends in self._leaving if not sends.are_done]
        for value in state.finish():
            await devices.wait(value)
        for sends in self._leaving:
            await sends.finish()

    def close(self) -> None:
        """Ends all waits, and drops the iterations under way."""
        self._waiters.discard(self._woken)
        if self._woken.done() and not self._woken.cancelled():
            self._woken.exception()
        for waiter in [*self._expected]:
            waiter.cancel()
        for sends in (*self._sends.values(), *self._leaving):
            sends.close()
        self._state.close()

    def _described(self, number: int) -> str:
        loop = self._loop
        index = loop.trips - 1 - number if loop.is_reversed else number
        return f"iteration {index} of the loop {loop.op!r}"

    def _begin(self) -> None:
        """Begins the next iteration, and waits for what arrives in it."""
        number, arrivals = self._state.begin()
        self._sends[number] = PlanSends(
            self._linked.body,
            self._step,
            self._state.states[number],
            self._context,
            self._waiters,
            partial(self._loop.edge, iteration=number),
        )
        for stage, receives in arrivals:
            self._expect((stage, number), receives)

    async def _perform(self, instance: Instance) -> None:
        state = self._state.states[instance[1]]
        driver = _IterationDriver(self._driver, self._sends[instance[1]])
        work = self._state.work(instance)
        running = self._interpret(zip(repeat(0), work), (state,), driver)
        try:
            for pending in running:
                if isinstance(pending, tuple):
                    raise InternalError("an instruction of the body of a loop waits for a resource")
                await pending
        finally:
            running.close()

    async def _wait(self) -> None:
        """Waits until a value arrives, or something fails."""
        for sends in (*self._sends.values(), *self._leaving):
            sends.check()
        await self._woken
        if self._error is not None:
            raise self._error
        self._waiters.discard(self._woken)
        self._woken = asyncio.get_running_loop().create_future()
        self._waiters.add(self._woken)

    # Arrivals ---------------------------------------------------------------------------------

    def _expect(self, instance: Instance, receives: Sequence[Recv]) -> None:
        """Takes the values that have arrived for an instance, and waits for the others."""
        context, state = self._context, self._state.states[instance[1]]
        self._n_missing[instance] = len(receives)
        for recv in receives:
            waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            edge = self._loop.edge(recv.edge, instance[1])
            value = context.rendezvous.receive(self._step, edge, waiter)
            if value is not None:
                self._take(state, recv, instance, value.value)
                continue
            self._expected.add(waiter)
            if recv.source.task != context.task:
                context.senders.add_wait(recv.source.task, waiter)
            waiter.add_done_callback(partial(self._arrived, state, recv, instance))

    def _arrived(
        self, state: StepState, recv: Recv, instance: Instance, waiter: asyncio.Future[Any]
    ) -> None:
        """Takes a value that was waited for; a wait that has failed fails the loop."""
        self._expected.discard(waiter)
        if recv.source.task != self._context.task:
            self._context.senders.remove_wait(recv.source.task, waiter)
        if waiter.cancelled():
            return
        self._error = self._error or waiter.exception()
        if self._error is None:
            try:
                self._take(state, recv, instance, waiter.result())
            except OpError as error:
                self._error = error
        if not self._woken.done():
            self._woken.set_result(None)

    def _take(self, state: StepState, recv: Recv, instance: Instance, value: Any) -> None:
        state.receive(recv, value)
        self._n_missing[instance] -= 1
        if not self._n_missing[instance]:
            del self._n_missing[instance]
            self._state.iterations.arrive(*instance)


class _IterationDriver:
    """Performs the instructions of an iteration, which sends its values apart from others.

    Args:
      driver: performs all but sends.
      sends: sends the values of the iteration.
    """

    def __init__(self, driver: Driver[Awaitable[None]], sends: PlanSends) -> None:
        self._sends = sends
        self.compute, self.finish, self.call = driver.compute, driver.finish, driver.call
        self.perform, self.call_client = driver.perform, driver.call_client
        self.loop, self.receive = driver.loop, driver.receive

    def send(self, _: StepState, send: Send, /) -> None:
        """Sends a value or a signal, without waiting for its arrival."""
        self._sends.add(send)
