"""`Peer`: a server's connection to the worker of another task."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeVar

from jflow.cluster import Task
from jflow.deadline import FOREVER, Deadline
from jflow.deadline.clock import now
from jflow.errors import CancelledError, OpError, RestartedError, UnavailableError
from jflow.failpoints import async_failpoint
from jflow.fencing import Claim
from jflow.plan import Plan
from jflow.protocol import settings
from jflow.protocol.admission import enter, new_nonce
from jflow.protocol.codec import error_of
from jflow.protocol.coroutines import Waited, begin
from jflow.protocol.frame import CHUNK_BYTES, aligned
from jflow.protocol.handshake import Caller, CallerHandshake
from jflow.protocol.heartbeat import TICKS, Beat, Heartbeat, liveness_s, silence
from jflow.protocol.records import (
    Artifacts,
    Registered,
    ServerInfo,
    Staging,
)
from jflow.protocol.rpc import Rpc
from jflow.protocol.rpcs import (
    REGISTER_PLANS,
    RELEASE,
    RESET,
    RUN_PLANS,
    SEND_TENSORS,
)
from jflow.protocol.services import WorkerSession
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

P = ParamSpec("P")
R = TypeVar("R")


class Peer:
    """The worker service of another task. Every method must be called on the event loop.

    The connection is opened at its first use, and again after it broke. A call for one incarnation
    of the task is refused if another one answers.

    Args:
      transport: carries the frames.
      task: the task to call.
      caller: the caller, and the server that it means.
    """

    def __init__(self, transport: Transport, task: Task, caller: Caller) -> None:
        self.address = caller.target.address
        self._connector = _Connector(transport, task, caller)
        self._task = task
        self._connecting = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._link: _Link | None = None

    @property
    def connection(self) -> int:
        """The number of the connection, 0 if there is none; what is registered ends with it."""
        link = self._link
        return 0 if link is None or link.is_broken else link.number

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
        self, rpc: Rpc[WorkerSession, P, R], incarnation: int, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Calls an RPC of one incarnation of the worker; returns its result."""
        return rpc.read(*await self._reply(incarnation, *rpc.envelope(*args, **kwargs)))

    async def _reply(
        self,
        incarnation: int,
        envelope: pb.Envelope,
        tensors: Sequence[Array],
        connection: int | None = None,
    ) -> Received:
        try:
            link = await self._incarnation(incarnation)
            if connection is not None and link.number != connection:
                raise UnregisteredError(_CUT_OFF.format(self._task), task=str(self._task))
            return await link.call(envelope, tensors)
        except _UnsentError:
            if connection is not None:
                raise UnregisteredError(_CUT_OFF.format(self._task), task=str(self._task)) from None
            # The connection had ended before, unnoticed, and the request was not sent: it cannot be
            # executed twice.
            return await (await self._incarnation(incarnation)).call(envelope, tensors)

    async def register(
        self,
        incarnation: int,
        plans: Sequence[Plan],
        artifacts: Artifacts,
        is_restartable: bool = False,
        claim: Claim | None = None,
    ) -> Registered:
        """See `WorkerService.register`, for one incarnation of the task."""
        return await self.call(REGISTER_PLANS, incarnation, plans, artifacts, is_restartable, claim)

    async def run(
        self,
        incarnation: int,
        step: int,
        handle: int,
        feeds: Sequence[Array],
        records: list[TaskRecord] | None = None,
        staging: Staging | None = None,
        connection: int | None = None,
    ) -> Sequence[Array]:
        """See `WorkerService.run`, for one incarnation of the task.

        Raises:
          UnregisteredError: if the connection is not the one with the number `connection`, over
            which the plans were registered; nothing was sent then.
        """
        is_traced = records is not None
        request = RUN_PLANS.envelope(step, handle, feeds, is_traced=is_traced, staging=staging)
        sent = now()
        reply, tensors = await self._reply(incarnation, *request, connection)
        if records is None:
            return RUN_PLANS.read(reply, tensors)
        return without_records(reply.traced, tensors, sent, records)

    async def reset(
        self, containers: Sequence[str], connect_timeout: float, deadline: Deadline = FOREVER
    ) -> None:
        """See `WorkerService.reset`. Raises as `connect`."""
        await self.connect(connect_timeout, deadline)
        if self._link is not None:
            async with deadline.bounding(f"resetting {self._task}", str(self._task)):
                await self._link.call(*RESET.envelope(containers))

    async def deliver(self, step: int, edge: int, tensor: Array | None) -> None:
        """Sends a value, or a signal (None), under an edge of a step.

        What is sent in one iteration of the event loop and is not large is one message.
        """
        link = await self._linked()
        if link is not None:
            await link.deliver(step, edge, tensor)

    async def release(self, incarnation: int, handle: int) -> None:
        """Releases registered plans if the task is connected, in the same incarnation."""
        link = self._link
        if link is None or link.is_broken or link.info.incarnation != incarnation:
            return
        await link.push(*RELEASE.envelope(handle))

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


class UnregisteredError(UnavailableError):
    """A task was cut off since plans were registered on it, and has forgotten them."""


class _UnsentError(UnavailableError):
    """The stream had ended before any byte of a message was sent."""


@dataclass
class _Batch:
    """Values of a step, by edge, that are to leave in one message."""

    step: int
    values: dict[int, Array | None]
    n_bytes: int
    sending: asyncio.Task[None]


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
        self._pending: dict[int, asyncio.Future[Received]] = {}
        self._batch: _Batch | None = None
        self._reader = asyncio.create_task(self._read())
        self._watcher = asyncio.create_task(self._watch(liveness_s()))
        self._cause: object = "this end closed the connection"
        self.is_broken = False

    async def call(self, envelope: pb.Envelope, tensors: Sequence[Array] = ()) -> Received:
        """Sends a request and waits for its reply; cancelling the wait cancels the call.

        If the reply arrives nevertheless, it is returned.
        """
        key = envelope.id = next(self._ids)
        future: asyncio.Future[Received] = asyncio.get_running_loop().create_future()
        self._pending[key] = future
        # Shielded from the caller's cancellation: a message that is sent in part, or a write that
        # the transport sees cancelled, would break the stream.
        sending = begin(self._send(envelope, tensors))
        sending.add_done_callback(partial(_fail, future))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self._cancelling.start(self._cancel(key, sending))
            return await _reply_after_cancel(future)
        finally:
            self._pending.pop(key, None)

    async def _cancel(self, key: int, sending: asyncio.Future[None]) -> None:
        """Cancels a call at the other end, after its request was sent."""
        with suppress(OpError):  # nothing to cancel, or the other end is gone
            await sending
            await self._send(pb.Envelope(cancel=pb.Cancel(id=key)), ())

    async def push(self, envelope: pb.Envelope, tensors: Sequence[Array] = ()) -> None:
        """Sends a message without a reply."""
        sending = begin(self._send(envelope, tensors))
        sending.add_done_callback(_retrieve)  # the caller may be cancelled before it fails
        await asyncio.shield(sending)

    async def deliver(self, step: int, edge: int, tensor: Array | None) -> None:
        """Sends a value, or a signal, together with what follows it at once."""
        n_bytes = 0 if tensor is None else aligned(tensor.nbytes)
        batch = self._batch
        if batch is None or batch.step != step or batch.n_bytes + n_bytes > CHUNK_BYTES:
            values: dict[int, Array | None] = {}
            sending = asyncio.create_task(self._send_batch(step, values))
            batch = self._batch = _Batch(step, values, 0, sending)
        batch.values[edge] = tensor
        batch.n_bytes += n_bytes
        await asyncio.shield(batch.sending)

    async def _send_batch(self, step: int, values: dict[int, Array | None]) -> None:
        if self._batch is not None and self._batch.values is values:
            self._batch = None
        await self._send(*SEND_TENSORS.envelope(step, values))

    async def close(self) -> None:
        self._reader.cancel()
        self._watcher.cancel()
        await asyncio.gather(self._reader, self._watcher, return_exceptions=True)
        await self._stream.close()

    async def _send(self, envelope: pb.Envelope, tensors: Sequence[Array]) -> None:
        if self.is_broken:
            raise self._lost(self._cause)
        if envelope.WhichOneof("body") not in ("cancel", "ping"):
            envelope.incarnation = self.info.incarnation
        try:
            await self._stream.send(envelope, tensors)
        except EndedStreamError as error:
            self.is_broken = True
            raise _UnsentError(self._lost(error).message, task=str(self._task)) from None
        except BrokenStreamError as error:
            raise self._lost(error) from None

    async def _read(self) -> None:
        cause: object = "it closed the connection"
        try:
            while (received := await self._stream.receive()) is not None:
                self._receive(*received)
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
        for future in self._pending.values():
            if not future.done():
                future.set_exception(self._lost(cause))

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
            await self._send(pb.Envelope(id=next(self._ids), ping=pb.Ping()), ())

    def _receive(self, envelope: pb.Envelope, tensors: list[Array]) -> None:
        future = self._pending.get(envelope.id)
        if future is None or future.done():
            return
        if envelope.status.code:
            future.set_exception(error_of(envelope.status))
        else:
            future.set_result((envelope, tensors))

    def _lost(self, cause: object) -> OpError:
        where = f"{self._task} at {self._address}"
        return stream_error(cause, where, _CALLER, str(self._task))


async def _reply_after_cancel(reply: asyncio.Future[Received]) -> Received:
    """The reply to a call that was cancelled, which may have been done before it was known.

    It may hold an element that was taken from a queue, which must not be lost.
    """
    grace = asyncio.get_running_loop().call_later(settings.GRACE_S, reply.cancel)
    while not reply.done():
        with suppress(asyncio.CancelledError):  # the call was cancelled once already
            await asyncio.wait([reply])
    grace.cancel()
    try:
        return reply.result()
    except CancelledError as error:
        waited = Waited(error.message.partition("; ")[2], error.op)
        raise asyncio.CancelledError(waited) from None


def _retrieve(sending: asyncio.Future[None]) -> None:
    if not sending.cancelled():
        sending.exception()


def _fail(future: asyncio.Future[Received], sending: asyncio.Future[None]) -> None:
    """Fails the wait for the reply if the request could not be sent."""
    error = None if sending.cancelled() else sending.exception()
    if error is not None and not future.done():
        future.set_exception(error)


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
        notice = asyncio.get_running_loop().call_later(
            settings.NOTICE_AFTER_S, _LOG.warning, "still waiting for %s at %s", task, address
        )
        try:
            if (action := async_failpoint("peer.before_connect")) is not None:
                await action
            stream = await self._transport.connect(self._caller.service, task, address, refused_s)
        finally:
            notice.cancel()
        handshake = CallerHandshake(self._caller, new_nonce())
        try:
            return _Link(task, address, *await enter(stream, handshake), number)
        except BrokenStreamError as error:
            await stream.close()
            raise stream_error(error, f"{task} at {address}", _CALLER, str(task)) from None
        except BaseException:
            await stream.close()
            raise
