"""What the plans that run on one task share."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from jflow.cluster import Task
from jflow.protocol import Array
from jflow.resources import Containers
from jflow.worker.device_pool import DevicePool
from jflow.worker.rendezvous import Rendezvous


class TensorTransport(Protocol):
    """How plans reach other tasks."""

    async def deliver(self, target: Task, step: int, edge: int, tensor: Array | None) -> None:
        """Sends a value, or a bare signal, to another task."""


@dataclass(frozen=True)
class WorkerContext:
    """What the plans that run on one task share.

    Attributes:
      task: which task it is.
      containers: its state.
      rendezvous: where values for its plans arrive.
      transport: how to reach other tasks.
      threads: for work on the host that may take a while, but ends.
      devices: where programs run, and are waited for, that may take long.
      blocked: by step, what those of its plans waited for that were cancelled.
    """

    task: Task
    containers: Containers
    rendezvous: Rendezvous[asyncio.Future[Any]]
    transport: TensorTransport
    threads: ThreadPoolExecutor
    devices: DevicePool
    blocked: dict[int, str] = field(default_factory=dict)

    def deliver(self, step: int, edge: int, value: Any) -> None:
        """Takes a value for a plan of this task."""
        waiter = self.rendezvous.deliver(step, edge, value)
        if waiter is not None and not waiter.done():
            waiter.set_result(value)
