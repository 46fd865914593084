"""`PlanSends`: the sends of one run of a plan, in messages or piggybacked on its reply."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import jax.numpy as jnp

from jflow.base.cluster import Task
from jflow.base.drivers.coroutines import begin
from jflow.base.drivers.loop import all_of
from jflow.base.values import SentArray, memory_bytes
from jflow.plan import Send, Slot
from jflow.task.execution.linked import LinkedPlan
from jflow.task.execution.step_state import StepState
from jflow.task.worker.context import WorkerContext

MAX_PIGGYBACKED_BYTES = 64 << 10
"""A larger value leaves in its own message, as soon as it is there."""


class PlanSends:
    """The values that one run of a plan sends. It must be closed.

    Args:
      linked: the plan.
      step: the number of its step.
      state: has the values.
      context: the context of the task's worker.
      waiters: the waits for other plans; a failed send fails them, as those may never act.

    It must not refer to the run itself: values that a cycle of references holds are freed by the
    garbage collector only, and the shared memory that they lie in is not used again meanwhile.
    """

    __slots__ = (
        *("_context", "_last_sends", "_leaving", "_linked", "_piggybacked", "_sending"),
        *("_state", "_step", "_waiters"),
    )

    def __init__(
        self,
        linked: LinkedPlan,
        step: int,
        state: StepState,
        context: WorkerContext,
        waiters: Collection[asyncio.Future[Any]],
    ) -> None:
        self._linked = linked
        self._step = step
        self._state = state
        self._context = context
        self._waiters = waiters
        self._piggybacked = context.piggybacked.get(step) if context.piggybacked else None
        self._last_sends: list[Send] = []
        self._leaving: list[Send] = []
        self._sending: list[asyncio.Future[None]] = []

    @property
    def are_done(self) -> bool:
        """Whether no message is in flight."""
        return not self._sending or all(sending.done() for sending in self._sending)

    @property
    def have_left(self) -> bool:
        """Whether all messages have left without an error."""
        return all(
            one.done() and not one.cancelled() and one.exception() is None for one in self._sending
        )

    def add(self, send: Send) -> None:
        """Sends a value with adjacent sends, or at the end of the plan if it can be piggybacked."""
        if send.target.task == self._context.task:
            edge = self._state.edge_of(send.edge)
            self._context.deliver(self._step, edge, self._own_value(send.slot))
            if send.slot is not None:
                self._state.end_use(send.slot)
        elif self._can_piggyback(send):
            self._last_sends.append(send)
        else:
            self._leaving.append(send)
        if self._leaving and send.edge in self._linked.ends_of_sends:
            leaving, self._leaving = self._leaving, []
            self._send_all(leaving)

    async def finish(self) -> None:
        """Sends the values that are left, and waits until all messages were sent."""
        if self._last_sends:
            self._piggyback()
        if len(self._sending) == 1:
            await self._sending[0]
        elif self._sending:
            await all_of(self._sending)

    def check(self) -> None:
        """Fails the waiters if a send has failed."""
        for sending in self._sending:
            if sending.done():
                self._fail_waiters(sending)

    def close(self) -> None:
        """Cancels the messages that were not sent."""
        for sending in self._sending:
            sending.cancel()

    def _can_piggyback(self, send: Send) -> bool:
        """Whether a value may leave with the reply of this plan, instead of in its own message."""
        piggybacked = self._piggybacked
        if piggybacked is None or send.target.task != piggybacked.caller:
            return False
        if send.edge not in self._linked.last_sends:
            return False
        return send.slot is None or memory_bytes(self._state[send.slot]) <= MAX_PIGGYBACKED_BYTES

    def _piggyback(self) -> None:
        """Adds the last values to the reply; sends them in messages if the reply has to wait."""
        slots = [fetch.slot for fetch in self._linked.fetches]
        slots += [send.slot for send in self._last_sends if send.slot is not None]
        is_computed = all(map(self._state.is_computed, slots))
        if self._piggybacked is None or self._sending or not is_computed:
            self._send_all(self._last_sends)
            return
        for send in self._last_sends:
            value = None if send.slot is None else self._state.fetch(send.slot)
            self._piggybacked.values[send.edge] = value

    def _send_all(self, sends: Iterable[Send]) -> None:
        """Sends values by task: those that are computed in one message, the others in another."""
        groups: dict[tuple[Task, bool], list[Send]] = {}
        for send in sends:
            is_computed = send.slot is None or self._state.is_computed(send.slot)
            groups.setdefault((send.target.task, is_computed), []).append(send)
        for (target, _), group in groups.items():
            sending = begin(self._send(target, group))
            if not sending.done() or sending.exception() is not None:
                sending.add_done_callback(self._fail_waiters)
                self._sending.append(sending)

    async def _send(self, target: Task, sends: Sequence[Send]) -> None:
        state = self._state
        slots = [send.slot for send in sends if send.slot is not None]
        for slot in slots:
            if not state.is_computed(slot):
                await self._context.devices.wait(state[slot])
        values = {
            self._state.edge_of(send.edge): None
            if send.slot is None
            else await self._host_value(send.slot)
            for send in sends
        }
        sending = self._context.transport.deliver(target, self._step, values)
        if sending is not None:
            await sending
        for slot in slots:
            state.end_use(slot)

    async def _host_value(self, slot: Slot) -> SentArray:
        """Returns a computed value in the memory of the host."""
        if not self._linked.is_on_mesh:
            return self._state.host_value(slot, copy=False)
        return await self._context.run_in_thread(self._state.sent_value, slot)

    def _fail_waiters(self, sending: asyncio.Future[None]) -> None:
        error = None if sending.cancelled() else sending.exception()
        if error is None:
            return
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(error)

    def _own_value(self, slot: Slot | None) -> Any:
        """Returns a slot's value for another plan of this task; a copy if it is leased."""
        if slot is None:
            return None
        value = self._state[slot]
        return jnp.copy(value) if self._state.is_leased(slot) else value
