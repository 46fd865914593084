"""`WorkerContext`: what the plans of one task share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Protocol, TypeVar

from jflow.base.cluster import Task
from jflow.base.deadline.clock import now
from jflow.base.drivers.coroutines import Waited
from jflow.base.values import SentArray
from jflow.errors import UnavailableError
from jflow.net.protocol import Piggybacked
from jflow.plan.trace.record import Recorder
from jflow.state.core.task import TasksOfCluster
from jflow.state.moves import StateId
from jflow.state.resources import Containers
from jflow.task.execution.parked import ParkedAttempts
from jflow.task.execution.step_state import Watch
from jflow.task.worker.abandoned import AbandonedSteps
from jflow.task.worker.device_pool import DevicePool
from jflow.task.worker.registered import RegisteredPlans
from jflow.task.worker.rendezvous import Rendezvous
from jflow.task.worker.senders import Sender, Senders

T = TypeVar("T")


class ValueWaiter(Hashable, Protocol):
    """Waits for a value of a step; a future, or what acts as soon as the value is there."""

    def done(self) -> bool:
        """Whether it has a value or an error."""

    def set_result(self, value: Any, /) -> None:
        """Ends the wait with a value."""

    def set_exception(self, error: BaseException, /) -> None:
        """Ends the wait with an error."""


class TensorTransport(TasksOfCluster, Protocol):
    """Sends values to other tasks, and calls all tasks."""

    def deliver(
        self, target: Task, step: int, values: Mapping[int, SentArray | None]
    ) -> Awaitable[None] | None:
        """Sends values and signals (None) to another task, by their edges.

        Returns:
          What to wait for at once until they have left; None if they have.
        """


@dataclass(frozen=True)
class WorkerContext:
    """The devices, state and transports that the plans of one task share.

    Attributes:
      task: the task.
      containers: its state.
      rendezvous: receives values for its plans.
      transport: sends values to other tasks.
      threads: for host work that may be slow but terminates.
      devices: runs, and waits for, programs that may take long.
      parked: attempts that a move may cancel.
      blocked: by step, what its cancelled plan was waiting for, for error messages.
      recorders: the recorders of traced steps, by step.
      senders: the tasks that send it values, and the waits for these.
      piggybacked: the piggybacked values of steps, by step.
      started: by step, when it began, by `now`, and what it runs.
      plans: the runs of plans that have begun and not ended.
    """

    task: Task
    containers: Containers
    rendezvous: Rendezvous[ValueWaiter]
    transport: TensorTransport
    threads: ThreadPoolExecutor
    devices: DevicePool
    parked: ParkedAttempts = field(default_factory=ParkedAttempts)
    blocked: dict[int, Waited] = field(default_factory=dict)
    recorders: dict[int, Recorder] = field(default_factory=dict)
    senders: Senders[ValueWaiter] = field(default_factory=Senders)
    piggybacked: dict[int, Piggybacked] = field(default_factory=dict)
    started: dict[int, tuple[float, RegisteredPlans]] = field(default_factory=dict)
    plans: set[object] = field(default_factory=set)

    @cached_property
    def abandoned(self) -> AbandonedSteps:
        """The steps that have ended while a device ran a program of them."""
        return AbandonedSteps(self.devices)

    def deliver(
        self, step: int, edge: int, value: Any, sender: Sender | None = None, n_bytes: int = 0
    ) -> None:
        """Delivers a value to the plan of this task that receives it, now or later.

        Args:
          step, edge, value: what arrived.
          sender: the stream that brought it; None for this task.
          n_bytes: its size.
        """
        if self.recorders and (recorder := self.recorders.get(step)) is not None:
            recorder.arrived(edge)
        waiter = self.rendezvous.deliver(step, edge, value, sender, n_bytes)
        if waiter is not None and not waiter.done():
            waiter.set_result(value)

    def begin_step(self, step: int, registered: RegisteredPlans) -> None:
        """Records that a step begins."""
        self.started[step] = now(), registered
        if registered.exchanges:
            self.rendezvous.open(step)
        else:
            self.rendezvous.n_opened += 1

    def give_up_step(self, step: int, registered: RegisteredPlans) -> None:
        """Records that a step has no caller any more, and goes on to its end."""
        began = self.started.get(step)
        if began is not None:
            self.abandoned.add(step, began[0], registered)

    def end_step(self, step: int, registered: RegisteredPlans) -> None:
        """Removes the records of a step that has ended."""
        if registered.exchanges:
            self.rendezvous.end_step(step)
        began = self.started.pop(step, None)
        if began is not None and self.devices.running(step):
            self.abandoned.add(step, began[0], registered)
        for noted in (self.piggybacked, self.blocked, self.recorders):
            if noted:
                noted.pop(step, None)

    async def run_in_thread(self, work: Callable[..., T], *args: Any) -> T:
        """Runs host work that may be slow in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, work, *args)

    def watch(self, parks: Collection[StateId]) -> Watch | None:
        """Returns the function by which a move can end waits of a step; None without state."""
        return partial(self.parked.watched, states=parks) if parks else None

    def tell_wait(self, step: int, error: asyncio.CancelledError) -> None:
        """Adds to the cancellation of a step what the step was waiting for, if known."""
        if waited := self.blocked.get(step):
            # The error of the deadline that cancelled the step shows it.
            error.args = (replace(waited, reason=f"{self.task} {waited.reason}"),)

    def sender_lost(self, sender: Sender) -> None:
        """Drops the values of a caller's lost stream, and fails the waits for its values."""
        self.rendezvous.drop_sender(sender)
        for waiter in self.senders.lost(sender):
            if not waiter.done():
                waiter.set_exception(
                    UnavailableError(
                        f"the connection from {sender.task} to {self.task} ended while the step "
                        "waited for a value that the one sends to the other; run the step again",
                        task=str(sender.task),
                    )
                )
