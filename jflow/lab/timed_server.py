"""Servers whose operations sleep and whose links are slow: `python -m jflow.lab.timed_server …`.

A task of a `TimedCluster`. Only these servers know the host function `WORK`, which takes time
without computing, so that more devices can be compared than this machine has cores. Everything else
is the runtime as it is: plans, stages, the rendezvous, streams between processes.

A link is a token bucket. A task sends one tensor at a time, and receives at the rate of its link,
so tensors from several tasks queue for its incoming port. A tensor passes through both ports at the
same time. The control messages between tasks are not slowed.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from jflow.base.cluster import Task
from jflow.base.drivers.loop import all_of
from jflow.base.values import Array, SentArray
from jflow.launch.child import main
from jflow.state.core.task import TaskCalls
from jflow.task.server import Server
from jflow.task.worker import Worker
from jflow.task.worker.context import TensorTransport

WORK = "timed_work"
"""The host function that takes time."""

VARIABLE = "JFLOW_LAB_LINKS"
"""The environment variable that tells a timed server of its links."""


@dataclass(frozen=True)
class TimedLinks:
    """Latency and bandwidth of the links of a timed cluster.

    Attributes:
      latency: seconds, in addition to what the machine takes.
      bandwidth: bytes a second of each port.
    """

    latency: float
    bandwidth: float

    @classmethod
    def of_environment(cls) -> Self:
        """Returns the links that `VARIABLE` describes."""
        latency, bandwidth = map(float, os.environ[VARIABLE].split())
        return cls(latency, bandwidth)

    def __str__(self) -> str:
        return f"{self.latency!r} {self.bandwidth!r}"


class _Port:
    """One direction of a task's connection: a token bucket. Call it on the event loop."""

    def __init__(self, bandwidth: float) -> None:
        self._bandwidth = bandwidth
        self._free = 0.0

    def take_bytes(self, n_bytes: int, began: float) -> float:
        """Books the port for a tensor; the time of the event loop when it has passed.

        Args:
          n_bytes: its size.
          began: when its first byte was there.
        """
        self._free = max(began, self._free) + n_bytes / self._bandwidth
        return self._free


class _SlowTransport:
    """Sends tensors as fast as the outgoing port lets them through."""

    def __init__(self, transport: TensorTransport, links: TimedLinks) -> None:
        self._transport = transport
        self._port = _Port(links.bandwidth)
        self._leaving: list[tuple[int, int, asyncio.Future[float]]] = []

    async def deliver(
        self, target: Task, step: int, values: Mapping[int, SentArray | None]
    ) -> None:
        """See `TensorTransport`; each value leaves as soon as the port has let it through."""
        await all_of(self._deliver(target, step, edge, tensor) for edge, tensor in values.items())

    async def _deliver(self, target: Task, step: int, edge: int, tensor: SentArray | None) -> None:
        if tensor is not None:
            await asyncio.sleep(await self._seconds(edge, tensor.nbytes))
        sending = self._transport.deliver(target, step, {edge: tensor})
        if sending is not None:
            await sending

    def _seconds(self, edge: int, n_bytes: int) -> asyncio.Future[float]:
        """In how many seconds a tensor has passed the port, which is known soon."""
        loop = asyncio.get_running_loop()
        if not self._leaving:
            loop.call_soon(self._book)
        passed: asyncio.Future[float] = loop.create_future()
        self._leaving.append((edge, n_bytes, passed))
        return passed

    def _book(self) -> None:
        """Books the port for tensors that leave at once, in the order of their edges.

        That is the order in which their plan sends them; they come here by their targets.
        """
        leaving, self._leaving = self._leaving, []
        now = asyncio.get_running_loop().time()
        for _, n_bytes, passed in sorted(leaving, key=lambda one: one[0]):
            seconds = self._port.take_bytes(n_bytes, now) - now
            if not passed.done():
                passed.set_result(seconds)

    def __getitem__(self, task: Task) -> TaskCalls:
        return self._transport[task]


class TimedWorker(Worker):
    """A worker with the host function `WORK`, and ports; arguments as for `Worker`."""

    can_piggyback: ClassVar[bool] = False  # each value passes the ports

    def __init__(
        self, task: Task, devices: Any, transport: TensorTransport, *others: Any, **named: Any
    ) -> None:
        self._links = TimedLinks.of_environment()
        super().__init__(task, devices, _SlowTransport(transport, self._links), *others, **named)
        self._incoming = _Port(self._links.bandwidth)
        self._computing = threading.Lock()
        self.functions = {**self.functions, WORK: self._work}

    def deliver(self, step: int, edge: int, value: Any) -> bool:
        """Receives a value when the incoming port has let it through."""
        loop = asyncio.get_running_loop()
        delay = self._links.latency
        if value is not None:
            now = loop.time()
            # Its first byte came as long ago as it took to send, which is what the sender waited.
            began = now - value.nbytes / self._links.bandwidth
            delay += self._incoming.take_bytes(value.nbytes, began) - now
        loop.call_later(max(delay, 0.0), super().deliver, step, edge, value)
        return False

    def _work(self, *values: Array, seconds: float, sizes: list[int]) -> list[Array]:
        """Sleeps; the device does one work at a time.

        Args:
          values: u8 arrays.
          seconds: how long.
          sizes: of the results, in bytes.

        Returns:
          For each size n a u8[n] that begins with one more than the sum of what the values begin
          with, modulo 256.
        """
        with self._computing:
            time.sleep(seconds)
        results = [np.zeros(size, np.uint8) for size in sizes]
        for result in results:
            result[0] = (1 + sum(int(value[0]) for value in values)) % 256
        return results


class TimedServer(Server):
    """A server with a `TimedWorker`; arguments as for `Server`."""

    _worker_type: ClassVar[type[Worker]] = TimedWorker


if __name__ == "__main__":
    os._exit(main(TimedServer))
