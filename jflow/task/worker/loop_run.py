"""`LoopRun`: runs a device's part of a loop over devices on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import jax

from jflow.base.deadline.clock import now
from jflow.base.drivers.coroutines import Waited
from jflow.errors import CancelledError, OpError
from jflow.plan import Recv, Send
from jflow.state.resources import Attempt, Cell
from jflow.task.execution.interpreter import Driver, Interpret
from jflow.task.execution.iterations import Instance
from jflow.task.execution.linked import LinkedLoop
from jflow.task.execution.loop import LoopState
from jflow.task.execution.step_state import StepState
from jflow.task.execution.waiting import waiting_op
from jflow.task.worker.context import WorkerContext
from jflow.task.worker.sends import PlanSends
from jflow.task.worker.waker import SubmittedWait, Waker

LONGEST_S = 2e-3
"""How long a loop runs quick programs before it lets the event loop do something else."""

_Running = Generator[Any, None, None]
"""An interpreter of an instance; it yields what it waits for."""


class LoopRun:
    """One run of a device's part of a loop. It must be closed.

    The device runs one instance at a time, the first of those that are ready, in the call that has
    made it ready: that of `run`, or the one that brings the last value it needs. Only what takes
    long is awaited. Receives of all iterations under way wait meanwhile, and so do instances that
    wait for a queue or another resource. Nothing waits for sends, whose failure fails the loop.

    Args:
      linked: the loop.
      state: the state of its plan.
      step: identifies the step.
      context: the context of the task's worker.
      driver: performs instructions, except sends and receives.
      interpret: the interpreter, which may trace.
      waiters: the waits of the plan, which a failed send fails.
      others: the runs of loops of the plan, those around this one first; it adds itself.
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
        others: list[LoopRun],
    ) -> None:
        others.append(self)
        self._runs = others
        self._loop = linked.instruction
        self._linked = linked
        self._state = LoopState(linked, state)
        self._step = step
        self._context = context
        self._driver = driver
        self._interpret = interpret
        self._waiters = waiters
        self._sends: dict[int, PlanSends] = {}
        self._leaving: list[PlanSends] = []
        self._arrivals: set[_Arrival] = set()
        self._running: tuple[Instance, _Running] | None = None
        self._apart: set[asyncio.Future[None]] = set()
        self._attempts: dict[_Running, SubmittedWait] = {}
        self._pending: Awaitable[None] | None = None
        self._error: BaseException | None = None
        self._is_idle = False
        # Completed when there is something to await, or all is done. A failed send fails it.
        self._woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Runs all iterations.

        Raises:
          OpError: as the instructions do; it names the iteration.
          asyncio.CancelledError: if it is cancelled; `WorkerContext.blocked` has the iteration.
        """
        try:
            await self._run()
        except asyncio.CancelledError:
            self._context.blocked[self._step] = self._waited()
            raise

    async def _run(self) -> None:
        state = self._state
        while not state.iterations.is_over:
            self._go_on()
            while self._pending is not None:
                pending, self._pending = self._pending, None
                try:
                    await pending
                except OpError as error:
                    self._add_iteration(error)
                    raise
                self._go_on()
            if not state.iterations.is_over:
                await self._idle()
        for value in state.finish():
            await self._context.devices.wait(value)
        for sends in (*self._sends.values(), *self._leaving):
            await sends.finish()

    def close(self) -> None:
        """Ends all waits, and drops the iterations under way."""
        if self._running is not None:
            self._running[1].close()
        if asyncio.iscoroutine(self._pending):
            self._pending.close()
        for running, (cell, attempt, _) in self._attempts.items():
            cell.cancel(attempt, CancelledError("Step was cancelled"))
            running.close()
        for instance in self._apart:
            instance.cancel()
        self._waiters.discard(self._woken)
        if self._woken.done() and not self._woken.cancelled():
            self._woken.exception()
        for arrival in [*self._arrivals]:
            arrival.end()
        for sends in (*self._sends.values(), *self._leaving):
            sends.close()
        self._state.close()
        self._runs.remove(self)

    async def _idle(self) -> None:
        """Waits until there is something to await, or an error."""
        self._waiters.add(self._woken)
        try:
            for sends in (*self._sends.values(), *self._leaving):
                sends.check()
            self._is_idle = True
            await self._woken
        except OpError as error:  # of a send
            error.with_context(doing=self._iteration)
            raise
        finally:
            self._is_idle = False
            self._waiters.discard(self._woken)
        if self._error is not None:
            raise self._error
        self._woken = asyncio.get_running_loop().create_future()

    @property
    def _iteration(self) -> str:
        """The first iteration under way, for messages."""
        return self._state.described(self._state.iterations.n_ended)

    def _waited(self) -> Waited:
        """Returns for what the loop waits."""
        for run in self._runs:
            for running, (cell, attempt, _) in run._attempts.items():
                if reason := cell.reason(attempt):
                    return Waited(f"{reason}, in {run._iteration}", waiting_op(running))
        iteration = self._iteration
        if (waited := self._context.blocked.get(self._step)) is not None:
            return Waited(f"{waited.reason}, in {iteration}", waited.op)
        return Waited(f"waited in {iteration}")

    def _go_on(self) -> None:
        """Runs ready instances until one has to be awaited, none is ready, or time is up."""
        iterations, until = self._state.iterations, now() + LONGEST_S
        while self._pending is None:
            if self._running is None:
                while iterations.may_begin and self._pending is None:
                    self._pending = self._computed()
                    if self._pending is None:
                        self._begin()
                        self._pause(until)
                instance = None if self._pending is not None else iterations.take()
                if instance is None:
                    return
                self._running = instance, self._interpreter(instance)
            instance, running = self._running
            try:
                pending = next(running, None)
            except OpError as error:
                self._add_iteration(error)
                raise
            if pending is None:
                self._running = None
                self._end(instance)
                self._pause(until)
            elif isinstance(pending, _InnerLoop):
                self._run_apart(instance, running, pending.run)
            elif isinstance(pending, tuple):
                waiting = self._submit(running, *pending)
                if waiting is not None:
                    self._run_apart(instance, running, self._wait(running, waiting))
            else:
                self._pending = pending

    def _pause(self, until: float) -> None:
        """Lets the event loop do something else, if time is up."""
        if now() > until and not self._state.iterations.is_over:
            self._pending = asyncio.sleep(0)

    def _run_apart(self, instance: Instance, running: _Running, first: Awaitable[None]) -> None:
        """Runs the rest of an instance beside others, after what it waits for.

        It has come to an inner loop, where devices may come to different iterations first, or waits
        for a resource, which what other devices do in the meantime may need.
        """
        self._running = None
        apart = asyncio.ensure_future(self._go_on_apart(instance, running, first))
        self._apart.add(apart)
        apart.add_done_callback(self._apart.discard)

    async def _go_on_apart(
        self, instance: Instance, running: _Running, first: Awaitable[None]
    ) -> None:
        try:
            await first
            for pending in running:
                if isinstance(pending, _InnerLoop):
                    await pending.run
                elif isinstance(pending, tuple):
                    waiting = self._submit(running, *pending)
                    if waiting is not None:
                        await self._wait(running, waiting)
                else:
                    await pending
        except asyncio.CancelledError:
            running.close()
            raise
        except BaseException as error:
            running.close()
            self.fail(error, instance)
            return
        self._end(instance)
        self._go_on_if_idle()

    def _submit(self, running: _Running, cell: Cell, attempt: Attempt) -> SubmittedWait | None:
        """Submits an attempt; returns the wait for it, None if it has completed."""
        waiter: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if cell.submit(attempt, Waker(waiter, self._step, running)):
            return None
        return cell, attempt, waiter

    async def _wait(self, running: _Running, waiting: SubmittedWait) -> None:
        """Waits for an attempt, which `close` cancels."""
        self._attempts[running] = waiting
        try:
            await waiting[2]
        finally:
            self._attempts.pop(running, None)

    def _computed(self) -> Awaitable[None] | None:
        """Returns what to wait for before another iteration begins, if anything."""
        values = [*self._state.not_computed()]
        return self._wait_computed(values) if values else None

    async def _wait_computed(self, values: Sequence[jax.Array]) -> None:
        for value in values:
            await self._context.devices.wait(value)

    def _interpreter(self, instance: Instance) -> _Running:
        state = self._state.states[instance[1]]
        driver = _IterationDriver(self._driver, self._sends[instance[1]])
        yield from self._interpret(zip(repeat(0), self._state.work(instance)), (state,), driver)
        predicate = self._loop.predicate
        is_computed_here = instance[0] == self._linked.computed_predicate
        if is_computed_here and predicate is not None and not state.is_computed(predicate):
            yield self._context.devices.wait(state[predicate])

    def _begin(self) -> None:
        """Begins the next iteration, and waits for what arrives in it."""
        number, arrivals = self._state.begin()
        if number not in self._state.states:
            return  # the loop has ended before it
        self._sends[number] = PlanSends(
            self._linked.body,
            self._step,
            self._state.states[number],
            self._context,
            self._waiters,
        )
        for instance, recv in arrivals:
            self._expect(instance, recv)

    def _end(self, instance: Instance) -> None:
        if self._state.end(instance):
            self._leaving = [sends for sends in self._leaving if not sends.have_left]
            self._leaving.append(self._sends.pop(instance[1]))

    def _add_iteration(self, error: OpError) -> None:
        """Adds the iteration to the error of an instruction."""
        if self._running is not None:
            error.with_context(doing=self._state.described(self._running[0][1]))

    # Arrivals ---------------------------------------------------------------------------------

    def _expect(self, instance: Instance, recv: Recv) -> None:
        """Takes a value of an instance if it has arrived; else waits for it."""
        context, arrival = self._context, _Arrival(self, recv, instance)
        edge = self._state.edge(instance[1], recv.edge)
        value = context.rendezvous.receive(self._step, edge, arrival)
        if value is not None:
            self._state.receive(instance, recv, value.value)
            return
        self._arrivals.add(arrival)
        if recv.source.task != context.task:
            context.senders.add_wait(recv.source.task, arrival)

    def remove(self, arrival: _Arrival) -> None:
        """Removes a wait that has ended."""
        self._arrivals.discard(arrival)
        source = arrival.recv.source.task
        if source != self._context.task:
            self._context.senders.remove_wait(source, arrival)

    def arrived(self, arrival: _Arrival, value: Any) -> None:
        """Takes a value that was waited for, and runs what it makes ready."""
        try:
            self._state.receive(arrival.instance, arrival.recv, value)
        except BaseException as error:
            self.fail(error)
        else:
            self._go_on_if_idle()

    def _go_on_if_idle(self) -> None:
        """Runs what is ready, unless `run` will."""
        if not self._is_idle or self._woken.done():
            return
        self._is_idle = False
        try:
            self._go_on()
            self._is_idle = self._pending is None and not self._state.iterations.is_over
        except BaseException as error:
            self.fail(error)
        if not self._is_idle and not self._woken.done():
            self._woken.set_result(None)

    def fail(self, error: BaseException, instance: Instance | None = None) -> None:
        """Makes the run fail, because of an instance if it is given."""
        if self._error is None:
            self._error = error
            if instance is not None and isinstance(error, OpError):
                error.with_context(doing=self._state.described(instance[1]))
        if not self._woken.done():
            self._woken.set_result(None)


class _Arrival:
    """The wait of an instance for a value.

    Args:
      run: the run.
      recv: receives the value.
      instance: takes it.
    """

    __slots__ = ("_is_done", "_run", "instance", "recv")

    def __init__(self, run: LoopRun, recv: Recv, instance: Instance) -> None:
        self._run, self.recv, self.instance = run, recv, instance
        self._is_done = False

    def done(self) -> bool:
        """Whether the wait has ended."""
        return self._is_done

    def set_result(self, value: Any, /) -> None:
        """Ends the wait with a value."""
        self.end()
        self._run.arrived(self, value)

    def set_exception(self, error: BaseException, /) -> None:
        """Ends the wait with an error."""
        self.end()
        self._run.fail(error, self.instance)

    def end(self) -> None:
        """Ends the wait."""
        self._is_done = True
        self._run.remove(self)


class _InnerLoop(NamedTuple):
    """An inner loop, to be run beside other instances."""

    run: Awaitable[None]


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
        self.receive = driver.receive
        self._loop = driver.loop

    def loop(self, state: StepState, loop: LinkedLoop, /) -> Generator[_InnerLoop, None, None]:
        """Begins an inner loop."""
        for run in self._loop(state, loop):
            assert isinstance(run, Awaitable)
            yield _InnerLoop(run)

    def send(self, state: StepState, send: Send, /) -> None:
        """Sends a value or a signal, without waiting for its arrival."""
        if send.slot is not None:
            state.detach(send.slot)  # the iteration may end before it has left
        self._sends.add(send)
