"""`TaskProxy`: the worker of any task, as the other parts of a server call it.

A `Peer` is the proxy of another task, over a connection. `OwnTask` is the one of the server's own
task: it calls the worker directly, so no caller has to know which of the two it has.

Invariant: what crosses a proxy is immutable or handed over for good. The worker of the server's own
task sees the caller's own objects, where another one sees copies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from jflow.base.deadline import FOREVER, Deadline
from jflow.base.drivers.coroutines import Started
from jflow.base.values import Array
from jflow.net.protocol.records import (
    UNKNOWN_OWNER,
    Artifacts,
    Client,
    Registered,
    ServerInfo,
    StepOwner,
)
from jflow.net.protocol.services import WorkerSession
from jflow.net.protocol.signatures import rpc_of
from jflow.plan import Plan
from jflow.plan.trace.record import TaskRecord
from jflow.state.effects.effect import Staging

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


class TaskProxy(Protocol):
    """The worker of a task, as a server calls it. Every method must be called on the event loop.

    A call for one incarnation of the task is refused if another one answers.
    """

    @property
    def is_direct(self) -> bool:
        """Whether calls run in this process, at once, and never lose their connection."""

    @property
    def connection(self) -> int:
        """The number of the connection, 0 if there is none; registered plans are lost with it."""

    @property
    def incarnation(self) -> int:
        """The incarnation of the task at the last connection; 0 if there was none."""

    async def connect(
        self, connect_timeout: float, deadline: Deadline = FOREVER, *, is_lost: bool = False
    ) -> ServerInfo:
        """Connects unless there is a connection; returns the server info of the task."""

    async def call(
        self,
        method: Callable[Concatenate[S, P], Awaitable[R]],
        incarnation: int,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Calls a remote method of `WorkerService` or of one of its services.

        Args:
          method: the method, such as `StateSaves.take`.
          incarnation: the expected incarnation of the task.
          args, kwargs: its arguments.
        """

    async def register(
        self,
        incarnation: int,
        plans: Sequence[Plan],
        artifacts: Artifacts,
        is_restartable: bool = False,
        owner: StepOwner = UNKNOWN_OWNER,
    ) -> Registered:
        """See `WorkerService.register`."""

    def run_plans(
        self,
        incarnation: int,
        step: int,
        handle: int,
        feeds: Sequence[Array],
        client: Client | None = None,
        records: list[TaskRecord] | None = None,
        staging: Staging | None = None,
        connection: int | None = None,
    ) -> Awaitable[Sequence[Array]]:
        """See `WorkerService.run_plans`.

        Raises:
          UnregisteredError: if the connection is not the one with the number `connection`, over
            which the plans were registered; nothing was sent then.
        """

    def begin_plans(
        self,
        step: int,
        handle: int,
        feeds: Sequence[Array],
        staging: Staging | None = None,
        n_steps: int = 1,
    ) -> Started[Sequence[Array]] | None:
        """See `WorkerService.begin_plans`; returns None unless `is_direct`."""

    def check_devices(self, handle: int) -> None:
        """See `WorkerService.check_devices`; does nothing unless `is_direct`."""

    async def release(self, incarnation: int, handle: int) -> None:
        """Releases registered plans if the task is connected, in the same incarnation."""


class OwnTask:
    """The proxy of a server's own task. See `TaskProxy`.

    Its worker ends with the server that calls it, so there is one connection, which never ends.

    Args:
      info: gives the current server info of the server.
      worker: its worker.
    """

    is_direct = True
    connection = 1

    def __init__(self, info: Callable[[], ServerInfo], worker: WorkerSession) -> None:
        self._info = info
        self._worker = worker
        self.begin_plans = worker.begin_plans
        self.check_devices = worker.check_devices

    @property
    def incarnation(self) -> int:
        return self._info().incarnation

    async def connect(
        self, connect_timeout: float, deadline: Deadline = FOREVER, *, is_lost: bool = False
    ) -> ServerInfo:
        return self._info()

    async def call(
        self,
        method: Callable[Concatenate[S, P], Awaitable[R]],
        incarnation: int,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        result: R = await rpc_of(method).method(self._worker)(*args, **kwargs)
        return result

    async def register(
        self,
        incarnation: int,
        plans: Sequence[Plan],
        artifacts: Artifacts,
        is_restartable: bool = False,
        owner: StepOwner = UNKNOWN_OWNER,
    ) -> Registered:
        return await self._worker.register(plans, artifacts, is_restartable, owner)

    def run_plans(
        self,
        incarnation: int,
        step: int,
        handle: int,
        feeds: Sequence[Array],
        client: Client | None = None,
        records: list[TaskRecord] | None = None,
        staging: Staging | None = None,
        connection: int | None = None,
    ) -> Awaitable[Sequence[Array]]:
        return self._worker.run_plans(step, handle, feeds, client, records, staging)

    async def release(self, incarnation: int, handle: int) -> None:
        self._worker.release(handle)
