"""`Peer`: a server's connection to the worker of another task."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import (
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from jflow.cluster import Task
from jflow.deadline import FOREVER, Deadline
from jflow.deadline.clock import now
from jflow.errors import OpError, RestartedError, UnavailableError
from jflow.failpoints import async_failpoint
from jflow.fencing import Claim
from jflow.logs import event
from jflow.plan import Plan
from jflow.protocol import settings
from jflow.protocol.admission import enter, new_nonce
from jflow.protocol.codec import error_of
from jflow.protocol.coroutines import begin, retrieve
from jflow.protocol.frame import CHUNK_BYTES, aligned
from jflow.protocol.handshake import Caller, CallerHandshake
from jflow.protocol.heartbeat import TICKS, Beat, Heartbeat, liveness_s, silence
from jflow.protocol.records import (
    Artifacts,
    Client,
    Registered,
    ServerInfo,
    Staging,
)
from jflow.protocol.reply import PendingReply
from jflow.protocol.rpc import CallRequest
from jflow.protocol.rpcs import (
    REGISTER_PLANS,
    RELEASE,
    RUN_PLANS,
    SEND_TENSORS,
)
from jflow.protocol.run_rpcs import PlansRequest, ridden
from jflow.protocol.signatures import rpc_of
from jflow.protocol.stable import StableMessage
from jflow.protocol.stream import MessageStream, Received
from jflow.protocol.tasks import TaskSet
from jflow.protocol.traced import without_records
from jflow.protocol.transport import (
    BrokenStreamError,
    EndedStreamError,
    Transport,
    stream_error,
)
from jflow.protocol.v1 import service_pb2 as pb
from jflow.trace.record import TaskRecord
from jflow.values import Array

_LOG = logging.getLogger(__name__)
_CALLER = "the server that called it"
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
      arrivals: takes values that ride on replies; None if none may.
    """

    is_direct = False

    def __init__(self, transport: Transport, task: Task, caller: Caller) -> None:
        self.address = caller.target.address
        self._connector = _Connector(transport, task, caller)
        self._task = task
        self._connecting = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._link: _Link | None = None
        self.arrivals: Arrivals | None = None

    @property
    def connection(self) -> int:
        """The number of the connection, 0 if there is none; what is registered ends with it."""
        link = self._link
        return 0 if link is None or link.is_broken else link.number

    @property
    def incarnation(self) -> int:
        """The life of the task that it is, or was last, connected to; 0 if it never was."""
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
                self._link = await self._connector.connect(next(self._numbers), refused_s)
            return self._link.info

    async def call(
        self,
        method: Callable[Concatenate[S, P], Awaitable[R]],
        incarnation: int,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        rpc = rpc_of(method)
        result: R = rpc.read(*await self._reply(incarnation, rpc.prepared(*args, **kwargs)))
        return result

    async def _reply(
        self, incarnation: int, request: CallRequest, connection: int | None = None
    ) -> Received:
        try:
            link = self._link
            if link is None or link.is_broken or link.info.incarnation != incarnation:
                link = await self._incarnation(incarnation)
            if connection is not None and link.number != connection:
                raise UnregisteredError(_CUT_OFF.format(self._task), task=str(self._task))
            return await link.call(request)
        except _UnsentError:
            if connection is not None:
                raise UnregisteredError(_CUT_OFF.format(self._task), task=str(self._task)) from None
            # The connection had ended before, unnoticed, and the request was not sent: it cannot be
            # executed twice.
            return await (await self._incarnation(incarnation)).call(request)

    async def register(
        self,
        incarnation: int,
        plans: Sequence[Plan],
        artifacts: Artifacts,
        is_restartable: bool = False,
        claim: Claim | None = None,
    ) -> Registered:
        """See `WorkerService.register`, for one incarnation of the task."""
        request = REGISTER_PLANS.prepared(plans, artifacts, is_restartable, claim)
        return REGISTER_PLANS.read(*await self._reply(incarnation, request))

    async def run(
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
        """See `TaskProxy.run`; no function of a client can be called from another task."""
        is_traced, arrivals = records is not None, self.arrivals
        asker = arrivals.task if arrivals is not None and not is_traced else ""
        plans = PlansRequest(step, handle, feeds, is_traced, staging, asker)
        request = RUN_PLANS.prepared(plans)
        sent = now()
        reply, tensors = await self._reply(incarnation, request, connection)
        if records is None:
            if arrivals is not None and reply.HasField("ran_plans"):
                for edge, value in ridden(reply.ran_plans, tensors).items():
                    arrivals.deliver(step, edge, value)
            return RUN_PLANS.read(reply, tensors)
        return without_records(reply.traced, tensors, sent, records)

    def begin(
        self, step: int, handle: int, feeds: Sequence[Array], staging: Staging | None = None
    ) -> None:
        """See `TaskProxy.begin`."""

    def deliver(self, step: int, values: Mapping[int, Array | None]) -> Awaitable[None] | None:
        """Sends values, and signals (None), by their edges of a step; together unless large.

        Returns:
          What to wait for at once until they have left; None if they have.

        Raises:
          UnavailableError: if the connection has ended.
        """
        link = self._link
        if link is None or link.is_broken:
            return self._deliver_over_new(step, values)
        return link.deliver(step, values)

    async def _deliver_over_new(self, step: int, values: Mapping[int, Array | None]) -> None:
        """As `deliver`, once there is a connection."""
        link = await self._linked()
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

    async def _linked(self) -> _Link | None:
        """The connection, opened if there is none or it broke."""
        if self._link is None or self._link.is_broken:
            # As a task: a timeout needs to know the task that it cancels (see `begin`).
            is_lost = self._link is not None
            await asyncio.ensure_future(self.connect(settings.RECONNECT_TIMEOUT_S, is_lost=is_lost))
        return self._link

    async def _incarnation(self, incarnation: int) -> _Link:
        link = await self._linked()
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
    """What takes values for the plans of the task that calls.

    Attributes:
      task: the name of that task.
      deliver: takes a value, or a signal (None), under an edge of a step.
    """

    task: str
    deliver: Callable[[int, int, Array | None], object]


class UnregisteredError(UnavailableError):
    """A task was cut off since plans were registered on it, and has forgotten them."""


class _UnsentError(UnavailableError):
    """The stream had ended before any byte of a message was sent."""


def _together(values: Mapping[int, Array | None]) -> Iterator[Mapping[int, Array | None]]:
    """The values of each message: several unless they are large."""
    n_bytes = 0
    some: dict[int, Array | None] = {}
    for edge, value in values.items():
        size = 0 if value is None else aligned(value.nbytes)
        if some and n_bytes + size > CHUNK_BYTES:
            yield some
            n_bytes, some = 0, {}
        some[edge] = value
        n_bytes += size
    yield some


async def _all_sent(sending: Iterable[asyncio.Future[None]]) -> None:
    """Waits until messages are sent, which a caller that is cancelled must not stop."""
    for one in sending:
        await asyncio.shield(one)


class _Link:
    """One stream to one incarnation of a task, after the handshake, and its pending calls."""

    def __init__(
        self, task: Task, address: str, stream: MessageStream, info: ServerInfo, number: int
    ) -> None:
        self.number = number
        self._task = task
        self._address = address
        self._stream = stream
        self.info = info
        self._ids = itertools.count(1)
        self._cancelling = TaskSet()
        self._pending: dict[int, PendingReply] = {}
        stream.offer_first(self._take)
        self._reader = asyncio.create_task(self._read())
        self._watcher = asyncio.create_task(self._watch(liveness_s()))
        self._cause: object = "this end closed the connection"
        self.is_broken = False

    async def call(self, request: CallRequest) -> Received:
        """Sends a request and waits for its reply; cancelling the wait cancels the call.

        If the reply arrives nevertheless, it is returned.
        """
        key = next(self._ids)
        reply = self._pending[key] = PendingReply()
        sending: asyncio.Future[None] | None = None
        try:
            if (sending := self._send(request, key)) is not None:
                sending.add_done_callback(reply.sent)
            await reply.wait()
            return reply.result()
        except asyncio.CancelledError:
            self._cancelling.start(self._cancel(key, sending))
            return await reply.after_cancel()
        finally:
            self._pending.pop(key, None)

    async def _cancel(self, key: int, sending: asyncio.Future[None] | None) -> None:
        """Cancels a call at the other end, after its request was sent."""
        with suppress(OpError):  # nothing to cancel, or the other end is gone
            if sending is not None:
                await sending
            await self._send_control(pb.Envelope(cancel=pb.Cancel(id=key)).SerializeToString(), ())

    async def push(self, request: CallRequest) -> None:
        """Sends a message without a reply."""
        if (sending := self._send(request)) is not None:
            await asyncio.shield(sending)

    def deliver(self, step: int, values: Mapping[int, Array | None]) -> Awaitable[None] | None:
        """See `Peer.deliver`."""
        sending = [self._send(SEND_TENSORS.prepared(step, some)) for some in _together(values)]
        left = [one for one in sending if one is not None]
        return _all_sent(left) if left else None

    async def close(self) -> None:
        self._reader.cancel()
        self._watcher.cancel()
        await asyncio.gather(self._reader, self._watcher, return_exceptions=True)
        await self._stream.close()

    def _send(self, request: CallRequest, call: int = 0) -> asyncio.Future[None] | None:
        """Sends a request; returns None if it has left, or what to wait for.

        A caller that is cancelled must not cancel that: a message that is sent in part, or a write
        that the transport sees cancelled, would break the stream.

        Raises:
          UnavailableError: if the connection has ended.
        """
        if self.is_broken:
            raise self._lost(self._cause)
        control = request.control(self._stream.stable, call, self.info.incarnation)
        waiting = self._stream.send_now(control, request.tensors)
        if waiting is None:
            return None
        sending = begin(self._sent(waiting))
        if sending.done() and sending.exception() is None:
            return None
        sending.add_done_callback(retrieve)  # the caller may be cancelled before it fails
        return sending

    async def _send_control(self, control: bytes, tensors: Sequence[Array]) -> None:
        if self.is_broken:
            raise self._lost(self._cause)
        await self._sent(self._stream.send_control(control, tensors))

    async def _sent(self, sending: Awaitable[None]) -> None:
        """Waits until a message is sent. Raises UnavailableError if the stream ends before."""
        try:
            await sending
        except EndedStreamError as error:
            self.is_broken = True
            raise _UnsentError(self._lost(error).message, task=str(self._task)) from None
        except BrokenStreamError as error:
            raise self._lost(error) from None

    async def _read(self) -> None:
        cause: object = "it closed the connection"
        try:
            while (received := await self._stream.receive_any()) is not None:
                self._receive(received)
        except (BrokenStreamError, OpError) as error:
            cause = error
        except asyncio.CancelledError:
            cause = self._cause
            raise
        finally:
            self._lose(cause)
            self._watcher.cancel()

    def _lose(self, cause: object) -> None:
        """Fails what waits for the other end."""
        self.is_broken, self._cause = True, cause
        for reply in self._pending.values():
            reply.put(self._lost(cause))

    async def _watch(self, liveness: float) -> None:
        """Asks for a sign of life, or gives the stream up, if there was none for too long."""
        heartbeat = Heartbeat()
        while not self.is_broken:
            await asyncio.sleep(liveness / TICKS)
            match heartbeat.tick(self._stream.n_signs, is_waiting=bool(self._pending)):
                case Beat.ASK:
                    self._cancelling.start(self._ping())
                case Beat.LOST:
                    self._lose(silence(liveness))
                    self._reader.cancel()
                    await self._stream.close()

    async def _ping(self) -> None:
        with suppress(OpError):  # its reader notices that the stream has ended
            ping = pb.Envelope(id=next(self._ids), ping=pb.Ping())
            await self._send_control(ping.SerializeToString(), ())

    def _take(self, received: StableMessage) -> bool:
        """Takes a reply as it comes; False if it is an error."""
        if received.of.is_error:
            return False
        reply = self._pending.get(received.varying.id)
        if reply is not None:
            reply.put((received.of.envelope, received.tensors))
        return True

    def _receive(self, received: Received | StableMessage) -> None:
        if isinstance(received, StableMessage):
            if self._take(received):
                return
            received = received.common
        envelope, _ = received
        reply = self._pending.get(envelope.id)
        if reply is not None:
            reply.put(error_of(envelope.status) if envelope.status.code else received)

    def _lost(self, cause: object) -> OpError:
        where = f"{self._task} at {self._address}"
        return stream_error(cause, where, _CALLER, str(self._task))


class _Connector:
    """Makes connections to a task; arguments as for `Peer`."""

    def __init__(self, transport: Transport, task: Task, caller: Caller) -> None:
        self._transport = transport
        self._task = task
        self._caller = caller

    async def connect(self, number: int, refused_s: float | None) -> _Link:
        """The connection of this number, after the handshake.

        `refused_s` is as in `Transport.connect`.
        """
        task, address = self._task, self._caller.target.address
        # No warning: the caller whose call waits for it is told.
        noted = partial(event, _LOG, logging.INFO, "task_silent", silent=str(task), at=address)
        notice = asyncio.get_running_loop().call_later(settings.NOTICE_AFTER_S, noted)
        try:
            if (action := async_failpoint("peer.before_connect")) is not None:
                await action
            stream = await self._transport.connect(self._caller.service, task, address, refused_s)
        finally:
            notice.cancel()
        handshake = CallerHandshake(self._caller, new_nonce())
        try:
            messages, info = await enter(stream, handshake)
            return _Link(task, address, messages, info.over(messages.kind), number)
        except BrokenStreamError as error:
            await stream.close()
            raise stream_error(error, f"{task} at {address}", _CALLER, str(task)) from None
        except BaseException:
            await stream.close()
            raise
