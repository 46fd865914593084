"""`Peer`: a server's connection to the worker of another task."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import (
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from jflow.base.cluster import Task
from jflow.base.deadline import FOREVER, Deadline
from jflow.base.deadline.clock import now
from jflow.base.failpoints import async_failpoint
from jflow.base.logs import event
from jflow.base.values import Array, SentArray
from jflow.errors import RestartedError, UnavailableError, UnimplementedError
from jflow.net.protocol import settings
from jflow.net.protocol.admission import enter, new_nonce
from jflow.net.protocol.handshake import Caller, CallerHandshake, OtherVersionError
from jflow.net.protocol.peer_link import CALLER, PeerLink, UnsentError
from jflow.net.protocol.records import (
    UNKNOWN_OWNER,
    Artifacts,
    Client,
    Registered,
    ServerInfo,
    StepOwner,
)
from jflow.net.protocol.rpc import CallRequest
from jflow.net.protocol.rpcs import (
    REGISTER_PLANS,
    RELEASE,
    RUN_PLANS,
)
from jflow.net.protocol.run_rpcs import PlansRequest, piggybacked_values, without_records
from jflow.net.protocol.signatures import rpc_of
from jflow.net.protocol.stream import Received
from jflow.net.protocol.transport import (
    BrokenStreamError,
    Transport,
    stream_error,
)
from jflow.plan import Plan
from jflow.plan.trace.record import TaskRecord
from jflow.state.core.task import RECONNECT_TIMEOUT_S
from jflow.state.effects.effect import Staging

_LOG = logging.getLogger(__name__)
_CUT_OFF = "{} was cut off, and has forgotten the plans that were registered on it"
_ADVICE = "start it or check the address in the cluster"

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


class Peer:
    """The proxy of another task. See `TaskProxy`.

    The connection is opened at its first use, and again after it broke.

    Args:
      transport: carries the frames.
      task: the task to call.
      caller: the caller, and the server that it means.

    Attributes:
      arrivals: takes values that are piggybacked on replies; None if none may.
    """

    is_direct = False

    def __init__(self, transport: Transport, task: Task, caller: Caller) -> None:
        self.address = caller.target.address
        self._transport = transport
        self._task = task
        self._caller = caller
        self._connecting = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._link: PeerLink | None = None
        self.arrivals: Arrivals | None = None

    @property
    def connection(self) -> int:
        """The number of the connection, 0 if there is none; registered plans are lost with it."""
        link = self._link
        return 0 if link is None or link.is_broken else link.number

    @property
    def incarnation(self) -> int:
        """The incarnation of the task at the last connection; 0 if there was none."""
        return 0 if self._link is None else self._link.info.incarnation

    async def connect(
        self, connect_timeout: float, deadline: Deadline = FOREVER, *, is_lost: bool = False
    ) -> ServerInfo:
        """Connects unless there is a connection; returns the server info of the task.

        Args:
          connect_timeout: the longest time to wait for the task to answer, in seconds.
          deadline: of the call that needs the connection.
          is_lost: whether the task was reached before, so that it is not about to start; if its
            address refuses connections, it has ended.

        Raises:
          UnavailableError: if the task does not answer within the connect timeout, the name of its
            host does not resolve, or a server that is not meant listens at its address.
          DeadlineExceededError: if the deadline passes first.
          UnauthenticatedError: if the task has another token.
        """
        limit = deadline.while_connecting(connect_timeout)
        doing = f"connecting to {self._task} at {self.address}"
        async with limit.bounding(doing, str(self._task), _ADVICE), self._connecting:
            if self._link is None or self._link.is_broken:
                refused_s = settings.REFUSED_S if is_lost else None
                self._link = await self._new_link(next(self._numbers), refused_s)
            return self._link.info

    async def _new_link(self, number: int, refused_s: float | None) -> PeerLink:
        """Opens the connection with this number, in the highest version that both ends speak.

        `refused_s` is as in `Transport.connect`.
        """
        try:
            return await self._enter(self._caller, number, refused_s)
        except OtherVersionError as error:
            earlier = replace(self._caller, version=error.version)
            return await self._enter(earlier, number, refused_s)

    async def _enter(self, caller: Caller, number: int, refused_s: float | None) -> PeerLink:
        task, address = self._task, self.address
        # No warning: the call that waits for it fails with an error.
        log_silence = partial(
            event, _LOG, logging.INFO, "task_silent", silent=str(task), at=address
        )
        notice = asyncio.get_running_loop().call_later(settings.NOTICE_AFTER_S, log_silence)
        try:
            if (action := async_failpoint("peer.before_connect")) is not None:
                await action
            stream = await self._transport.connect(caller.service, task, address, refused_s)
        finally:
            notice.cancel()
        handshake = CallerHandshake(caller, new_nonce())
        try:
            messages, info = await enter(stream, handshake)
            info = info.over(messages.kind)
            return PeerLink(task, address, messages, info, number, handshake.version)
        except BrokenStreamError as error:
            await stream.close()
            raise stream_error(error, f"{task} at {address}", CALLER, str(task)) from None
        except BaseException:
            await stream.close()
            raise

    async def call(
        self,
        method: Callable[Concatenate[S, P], Awaitable[R]],
        incarnation: int,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        link = await self._to(incarnation)
        server = f"{self._task} at {self.address}"
        try:
            rpc = rpc_of(method).in_version(link.version, server)
            request = rpc.prepared(*args, **kwargs)
        except UnimplementedError as error:
            error.with_context(task=str(self._task), doing=f"calling {server}")
            raise
        result: R = rpc.read(*await self._reply(incarnation, request))
        return result

    async def _reply(
        self,
        incarnation: int,
        request: CallRequest,
        connection: int | None = None,
        step: int | None = None,
    ) -> Received:
        try:
            link = await self._to(incarnation)
            if connection is not None and link.number != connection:
                raise UnregisteredError(_CUT_OFF.format(self._task), task=str(self._task))
            return await link.call(request, step)
        except UnsentError:
            if connection is not None:
                raise UnregisteredError(_CUT_OFF.format(self._task), task=str(self._task)) from None
            # The connection had ended before, unnoticed, and the request was not sent: it cannot be
            # executed twice.
            return await (await self._to(incarnation)).call(request, step)

    async def register(
        self,
        incarnation: int,
        plans: Sequence[Plan],
        artifacts: Artifacts,
        is_restartable: bool = False,
        owner: StepOwner = UNKNOWN_OWNER,
    ) -> Registered:
        """See `WorkerService.register`, for one incarnation of the task."""
        request = REGISTER_PLANS.prepared(plans, artifacts, is_restartable, owner)
        return REGISTER_PLANS.read(*await self._reply(incarnation, request))

    async def run_plans(
        self,
        incarnation: int,
        step: int,
        handle: int,
        feeds: Sequence[Array],
        client: Client | None = None,
        records: list[TaskRecord] | None = None,
        staging: Staging | None = None,
        connection: int | None = None,
    ) -> Sequence[Array]:
        """See `TaskProxy.run_plans`; no function of a client can be called from another task."""
        is_traced, arrivals = records is not None, self.arrivals
        asker = "" if arrivals is None else arrivals.task
        plans = PlansRequest(step, handle, feeds, is_traced, staging, asker)
        request = RUN_PLANS.prepared(plans)
        sent = now()
        reply, tensors = await self._reply(incarnation, request, connection, step)
        if records is not None:
            tensors = without_records(reply.traced, tensors, sent, records)
        ran = reply.ran_plans if records is None else reply.traced.ran
        if arrivals is not None and (ran.edges or ran.signals):
            for edge, value in piggybacked_values(ran, tensors).items():
                arrivals.deliver(step, edge, value)
        return RUN_PLANS.read(reply, tensors) if records is None else tensors

    def begin_plans(
        self,
        step: int,
        handle: int,
        feeds: Sequence[Array],
        staging: Staging | None = None,
        n_steps: int = 1,
    ) -> None:
        """See `TaskProxy.begin_plans`."""

    def check_devices(self, handle: int) -> None:
        """See `TaskProxy.check_devices`."""

    def deliver(self, step: int, values: Mapping[int, SentArray | None]) -> Awaitable[None] | None:
        """Sends values and signals (None) of a step by edge; batches them unless they are large.

        They never overtake the call of `run` that begins the step, if that goes the same way: the
        other end may not read on before it has begun.

        Returns:
          What to wait for at once until they have left; None if they have.

        Raises:
          UnavailableError: if the connection has ended.
        """
        link = self._link
        if link is None or link.is_broken:
            return self._deliver_over_new(step, values)
        return link.deliver(step, values)

    async def _deliver_over_new(self, step: int, values: Mapping[int, SentArray | None]) -> None:
        """Like `deliver`, after opening a connection."""
        link = await self._reconnected()
        sending = None if link is None else link.deliver(step, values)
        if sending is not None:
            await sending

    async def release(self, incarnation: int, handle: int) -> None:
        """Releases registered plans if the task is connected, in the same incarnation."""
        link = self._link
        if link is None or link.is_broken or link.info.incarnation != incarnation:
            return
        await link.push(RELEASE.prepared(handle))

    async def close(self) -> None:
        """Ends the connection; pending calls fail with UnavailableError."""
        link, self._link = self._link, None
        if link is not None:
            await link.close()

    async def _reconnected(self) -> PeerLink | None:
        """Opens a connection, as there is none or it broke; None if it was closed at once."""
        # As a task: a timeout needs to know the task that it cancels (see `begin`).
        is_lost = self._link is not None
        await asyncio.ensure_future(self.connect(RECONNECT_TIMEOUT_S, is_lost=is_lost))
        return self._link

    async def _to(self, incarnation: int) -> PeerLink:
        """Returns the connection to an incarnation of the task; opens one if there is none.

        Raises:
          RestartedError: if the task is in another incarnation.
          UnavailableError: if it cannot be reached.
        """
        link = self._link
        if link is None or link.is_broken:
            link = await self._reconnected()
        if link is None:
            raise UnavailableError(f"{self._task} was disconnected", task=str(self._task))
        if link.info.incarnation != incarnation:
            raise RestartedError(
                f"{self._task} at {self.address} has restarted: its variables and registered "
                "steps are gone; open a new session and initialize again",
                task=str(self._task),
            )
        return link


@dataclass(frozen=True)
class Arrivals:
    """Receives values for the plans of the calling task.

    Attributes:
      task: the name of that task.
      deliver: takes a value, or a signal (None), under an edge of a step.
    """

    task: str
    deliver: Callable[[int, int, Array | None], object]


class UnregisteredError(UnavailableError):
    """A task was cut off since plans were registered on it, and has forgotten them."""
