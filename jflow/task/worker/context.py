"""`WorkerContext`: what the plans that run on one task share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from jflow.base.cluster import Task
from jflow.base.deadline.clock import now
from jflow.errors import UnavailableError
from jflow.net.protocol import Array, Riding, Waited
from jflow.plan.trace.record import Recorder
from jflow.state.core.task import TasksOfCluster
from jflow.state.moves import StateId
from jflow.state.resources import Containers
from jflow.task.execution.parked import ParkedAttempts
from jflow.task.execution.step_state import Watch
from jflow.task.worker.device_pool import DevicePool
from jflow.task.worker.registered import RegisteredPlans
from jflow.task.worker.rendezvous import Rendezvous
from jflow.task.worker.senders import Sender, Senders


class TensorTransport(TasksOfCluster, Protocol):
    """Sends values to other tasks, and calls all of them."""

    def deliver(
        self, target: Task, step: int, values: Mapping[int, Array | None]
    ) -> Awaitable[None] | None:
        """Sends values, and signals without one (None), to another task, by their edges.

        Returns:
          What to wait for at once until they have left; None if they have.
        """


@dataclass(frozen=True)
class WorkerContext:
    """What the plans that run on one task share.

    Attributes:
      task: the task.
      containers: its state.
      rendezvous: receives values for its plans.
      transport: sends values to other tasks.
      threads: for host work that may be slow but terminates.
      devices: runs, and waits for, programs that may take long.
      parked: attempts that a move may cancel.
      blocked: by step, what a cancelled plan of it was waiting for; for error messages.
      recorders: by step, what notes the traced ones.
      senders: the tasks that send it values, and what waits for these.
      riding: by step, what takes values that ride on the reply.
      begun: by step, when it began, by `now`, and what it runs.
      orphaned: by step that has ended while a device ran a program of it: when it began, when it
        ended, and what it ran; see `orphaned_steps`.
      plans: the runs of plans that have begun and not ended.
    """

    task: Task
    containers: Containers
    rendezvous: Rendezvous[asyncio.Future[Any]]
    transport: TensorTransport
    threads: ThreadPoolExecutor
    devices: DevicePool
    parked: ParkedAttempts = field(default_factory=ParkedAttempts)
    blocked: dict[int, Waited] = field(default_factory=dict)
    recorders: dict[int, Recorder] = field(default_factory=dict)
    senders: Senders[asyncio.Future[Any]] = field(default_factory=Senders)
    riding: dict[int, Riding] = field(default_factory=dict)
    begun: dict[int, tuple[float, RegisteredPlans]] = field(default_factory=dict)
    orphaned: dict[int, tuple[float, float, RegisteredPlans]] = field(default_factory=dict)
    plans: set[object] = field(default_factory=set)

    def deliver(
        self, step: int, edge: int, value: Any, sender: Sender | None = None, n_bytes: int = 0
    ) -> None:
        """Hands a value to the plan of this task that receives it, now or later.

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

    def begin(self, step: int, registered: RegisteredPlans) -> None:
        """Takes note that a step begins."""
        self.begun[step] = now(), registered
        if registered.exchanges:
            self.rendezvous.open(step)
        else:
            self.rendezvous.n_opened += 1

    def end(self, step: int, registered: RegisteredPlans) -> None:
        """Forgets what was noted of a step, which has ended."""
        if registered.exchanges:
            self.rendezvous.end(step)
        began = self.begun.pop(step, None)
        if began is not None and self.devices.runs(step):
            self.orphaned_steps()[step] = began[0], now(), registered
        for noted in (self.riding, self.blocked, self.recorders):
            if noted:
                noted.pop(step, None)

    def orphaned_steps(self) -> dict[int, tuple[float, float, RegisteredPlans]]:
        """`orphaned`, without those whose programs have ended."""
        for step in [step for step in self.orphaned if not self.devices.runs(step)]:
            del self.orphaned[step]
        return self.orphaned

    def watch(self, parks: Collection[StateId]) -> Watch | None:
        """What lets a move end the waits of a step that uses this state; None for no state."""
        return partial(self.parked.watched, states=parks) if parks else None

    def tell_wait(self, step: int, error: asyncio.CancelledError) -> None:
        """Adds to the cancellation of a step what it was waiting for, if that is known."""
        if waited := self.blocked.get(step):
            # The error of the deadline that cancelled the step shows it.
            error.args = (replace(waited, reason=f"{self.task} {waited.reason}"),)

    def sender_lost(self, sender: Sender) -> None:
        """Ends what depends on a caller's stream, which has ended: what it brought, or should."""
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
