"""The roles at the two ends of the wire, in terms that know nothing of gRPC.

A server is a host; a client opens a master session on it, another server a worker session. The
sessions live exactly as long as their streams: closing one, or losing the peer, calls `close`.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from jflow.cluster import ClusterSpec, Device, Task
from jflow.deadline import Deadline
from jflow.plan import Plan
from jflow.wire.frame import Array

Artifacts = Mapping[str, Array]
"""Programs (as u8 arrays) and constants by digest."""


@dataclass(frozen=True)
class DeviceRecord:
    """A device of a task; `platform` is what `jax.export` calls it."""

    device: Device
    platform: str
    incarnation: int


@dataclass(frozen=True)
class Welcome:
    """How a server introduces itself.

    Attributes:
      task: which task of the cluster it is.
      incarnation: tells this life of its process from earlier ones.
      cluster: the cluster as it knows it.
      devices: its own devices, accelerators first.
      n_compiled: how many programs it has compiled.
    """

    task: Task
    incarnation: int
    cluster: ClusterSpec
    devices: tuple[DeviceRecord, ...]
    n_compiled: int


@dataclass(frozen=True)
class Registered:
    """A handle for what was registered; if digests are missing, the call must be made again."""

    handle: int
    missing: tuple[str, ...] = ()


Client = Callable[[int, Sequence[Array], "Future[Sequence[Array]]"], Awaitable[None]]
"""Asks the client of a step to call one of its functions.

Takes the number of the function, its operands, and what is given the results or an OpError later.
"""


class WorkerService(Protocol):
    """What one server does for another one, or for itself. Errors are `OpError`s."""

    async def register(self, plans: Sequence[Plan], artifacts: Artifacts) -> Registered:
        """Makes the parts of one task ready to run; compiles what was not compiled before."""

    async def run(
        self, step: int, handle: int, feeds: Sequence[Array], client: Client | None = None
    ) -> Sequence[Array]:
        """Runs registered parts; takes and gives the values in the order of their indices.

        Only the task that the client is connected to can reach it.
        """

    async def reset(self, containers: Sequence[str]) -> None:
        """Frees containers of this task."""

    def release(self, handle: int) -> None:
        """Forgets registered parts."""


class WorkerSession(WorkerService, Protocol):
    """The server's end of a worker service."""

    def deliver(self, step: int, edge: int, tensor: Array | None) -> None:
        """Takes what another task sends under an edge of a step."""

    def close(self) -> None:
        """Forgets everything that was registered here; running calls are cancelled before."""


class MasterSession(Protocol):
    """What a server does for a client's session. Errors are `OpError`s.

    Every call has a deadline; `connect_timeout` says how long, in seconds, to wait for another task
    that does not answer.
    """

    async def list_devices(
        self, tasks: Sequence[Task], connect_timeout: float, only_up: bool, deadline: Deadline
    ) -> Sequence[DeviceRecord]:
        """The devices of tasks; those that do not answer are left out if `only_up`."""

    async def register(
        self,
        plans: Sequence[Plan],
        n_fetches: int,
        artifacts: Artifacts,
        connect_timeout: float,
        deadline: Deadline,
    ) -> Registered:
        """Makes a step ready to run on every task that takes part."""

    async def run(
        self,
        handle: int,
        deadline: Deadline,
        feeds: Sequence[Array],
        client: Client | None = None,
    ) -> Sequence[Array]:
        """Runs a registered step; a step with callbacks needs the client."""

    def release(self, handle: int) -> None:
        """Forgets a registered step, here and on the tasks that take part in it."""

    async def reset(
        self, containers: Sequence[str], connect_timeout: float, deadline: Deadline
    ) -> None:
        """Frees containers on every task and closes this server's other sessions."""

    def close(self) -> None:
        """Releases what the session registered; running calls are cancelled before."""


class Host(Protocol):
    """A server as the wire sees it."""

    def welcome(self) -> Welcome:
        """The introduction, as it is now."""

    def open_master_session(self) -> MasterSession:
        """A session for a client."""

    def open_worker_session(self) -> WorkerSession:
        """A session for another server."""
