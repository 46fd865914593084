"""A server's connection to another server."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import grpc

from jflow.cluster import ClusterSpec, Device, Task
from jflow.deadline import FOREVER, Deadline
from jflow.errors import (
    AbortedError,
    CancelledError,
    InternalError,
    OpError,
    UnauthenticatedError,
    UnavailableError,
)
from jflow.plan import Plan
from jflow.wire import settings
from jflow.wire.background import Background
from jflow.wire.codec import error_of, plan_to_proto
from jflow.wire.eager import begin
from jflow.wire.frame import Array
from jflow.wire.names import looked_up, unresolved
from jflow.wire.services import Artifacts, DeviceRecord, Registered, Welcome
from jflow.wire.stream import FrameStream, Received
from jflow.wire.token import credentials
from jflow.wire.v1 import service_pb2 as pb

_LOG = logging.getLogger(__name__)
_NOTICE_AFTER_S = 10.0
_ADVICE = "start it or check the address in the cluster"
REDIAL_TIMEOUT_S = 2.0
"""How long to look for a task that was lost, in seconds."""


class GrpcPeer:
    """The worker service of another task. Every method must be called on the event loop.

    The connection is made when it is first needed and made again after it broke. What is meant
    for one life of the task is refused when another one answers.

    Args:
      task: whom to call.
      address: where it listens, "host:port".
      token: the secret to show.
    """

    def __init__(self, task: Task, address: str, token: str) -> None:
        self.address = address
        self._task = task
        self._token = token
        self._dialing = asyncio.Lock()
        self._link: _Link | None = None

    async def connect(self, connect_timeout: float, deadline: Deadline = FOREVER) -> Welcome:
        """Makes sure that there is a connection.

        Args:
          connect_timeout: longest time to wait for the task, in seconds.
          deadline: of the call that needs the connection.

        Raises:
          UnavailableError: if the task does not answer for the connect timeout, or the name of its
            host does not resolve.
          DeadlineExceededError: if the deadline comes before.
          UnauthenticatedError: if it does not take the token.
        """
        limit = deadline.while_connecting(connect_timeout)
        doing = f"connecting to {self._task} at {self.address}"
        async with limit.bounding(doing, str(self._task), _ADVICE), self._dialing:
            if self._link is None or self._link.is_broken:
                self._link = await _dial(self._task, self.address, self._token)
            return self._link.welcome

    async def _linked(self) -> _Link | None:
        """The connection, which is there already but for the first time and after it broke."""
        if self._link is None or self._link.is_broken:
            # In a task of its own: a timeout must know which task it cancels (see `begin`).
            await asyncio.ensure_future(self.connect(REDIAL_TIMEOUT_S))
        return self._link

    async def _meant_for(self, incarnation: int) -> _Link:
        link = await self._linked()
        if link is None:
            raise UnavailableError(f"{self._task} was disconnected", task=str(self._task))
        if link.welcome.incarnation != incarnation:
            raise AbortedError(
                f"{self._task} at {self.address} has restarted: its variables and registered "
                "steps are gone; open a new session and initialize again",
                task=str(self._task),
            )
        return link

    async def _call(
        self, incarnation: int, envelope: pb.Envelope, tensors: Sequence[Array]
    ) -> Received:
        try:
            return await (await self._meant_for(incarnation)).call(envelope, tensors)
        except _UnsentError:
            # The connection had ended before, unnoticed: nothing was said twice.
            return await (await self._meant_for(incarnation)).call(envelope, tensors)

    async def register(
        self, incarnation: int, plans: Sequence[Plan], artifacts: Artifacts
    ) -> Registered:
        """See `WorkerService.register`; for the life `incarnation` of the task."""
        body = pb.RegisterParts(
            plans=[plan_to_proto(plan) for plan in plans],
            artifacts=[pb.Artifact(digest=digest) for digest in artifacts],
        )
        message = pb.Envelope(register_parts=body)
        reply, _ = await self._call(incarnation, message, list(artifacts.values()))
        return Registered(reply.registered.handle, tuple(reply.registered.missing))

    async def run(
        self, incarnation: int, step: int, handle: int, feeds: Sequence[Array]
    ) -> Sequence[Array]:
        """See `WorkerService.run`; for the life `incarnation` of the task."""
        body = pb.RunParts(step=step, handle=handle)
        _, values = await self._call(incarnation, pb.Envelope(run_parts=body), feeds)
        return values

    async def reset(
        self, containers: Sequence[str], connect_timeout: float, deadline: Deadline = FOREVER
    ) -> None:
        """See `WorkerService.reset`. Raises as `connect`."""
        await self.connect(connect_timeout, deadline)
        if self._link is not None:
            async with deadline.bounding(f"resetting {self._task}", str(self._task)):
                await self._link.call(pb.Envelope(reset=pb.Reset(containers=containers)))

    async def deliver(self, step: int, edge: int, tensor: Array | None) -> None:
        """Sends the task a value under an edge of a step."""
        link = await self._linked()
        if link is not None:
            envelope = pb.Envelope(send_tensor=pb.SendTensor(step=step, edge=edge))
            await link.push(envelope, () if tensor is None else (tensor,))

    async def release(self, incarnation: int, handle: int) -> None:
        """Forgets registered parts if the task is still there and in the same life."""
        link = self._link
        if link is None or link.is_broken or link.welcome.incarnation != incarnation:
            return
        await link.push(pb.Envelope(release=pb.Release(handles=[handle])))

    async def close(self) -> None:
        """Ends the connection; calls under way fail with UnavailableError."""
        link, self._link = self._link, None
        if link is not None:
            await link.close()


class _UnsentError(UnavailableError):
    """The stream had ended before a message began."""


class _Link:
    """One stream to one life of a task."""

    def __init__(self, task: Task, address: str, channel: grpc.aio.Channel, token: str) -> None:
        self._task = task
        self._address = address
        self._channel = channel
        method: Any = channel.stream_stream(settings.PEER_METHOD)
        self._stream = FrameStream(method(metadata=credentials(token)))
        self._ids = itertools.count(1)
        self._background = Background()
        self._pending: dict[int, asyncio.Future[Received]] = {}
        self._reader = asyncio.create_task(self._read())
        self._cause: object = "the connection is broken"
        self.is_broken = False
        self.welcome: Welcome

    async def greet(self) -> None:
        reply, _ = await self.call(pb.Envelope(hello=pb.Hello()))
        self.welcome = welcome_from_proto(reply.welcome)

    async def call(self, envelope: pb.Envelope, tensors: Sequence[Array] = ()) -> Received:
        """Sends a request and waits for its reply; cancelling the wait cancels the call.

        A reply that is on its way already is given all the same.
        """
        key = envelope.id = next(self._ids)
        future: asyncio.Future[Received] = asyncio.get_running_loop().create_future()
        self._pending[key] = future
        # Once begun, a message is sent to its end whatever becomes of its sender: half a message,
        # or a write that gRPC sees cancelled, would be the end of the stream.
        sending = begin(self._send(envelope, tensors))
        sending.add_done_callback(partial(_fail, future))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self._background.start(self._cancel(key, sending))
            return await _reply_after_all(future)
        finally:
            self._pending.pop(key, None)

    async def _cancel(self, key: int, sending: asyncio.Future[None]) -> None:
        """Cancels a call at the other end, once it is there."""
        with suppress(OpError):  # then there is nothing to cancel, or nobody to be told
            await sending
            await self._send(pb.Envelope(cancel=pb.Cancel(id=key)), ())

    async def push(self, envelope: pb.Envelope, tensors: Sequence[Array] = ()) -> None:
        """Sends a message that has no reply."""
        await asyncio.shield(begin(self._send(envelope, tensors)))

    async def close(self) -> None:
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._channel.close()

    async def _send(self, envelope: pb.Envelope, tensors: Sequence[Array]) -> None:
        if self.is_broken:
            raise self._gone(self._cause)
        if envelope.WhichOneof("body") not in ("hello", "cancel"):
            envelope.incarnation = self.welcome.incarnation
        try:
            await self._stream.send(envelope, tensors)
        except asyncio.InvalidStateError as error:
            self.is_broken = True
            raise _UnsentError(self._gone(error).message, task=str(self._task)) from None
        except grpc.RpcError as error:
            raise self._gone(error) from None

    async def _read(self) -> None:
        cause: object = "it closed the connection"
        try:
            while (received := await self._stream.receive()) is not None:
                self._receive(*received)
        except grpc.RpcError as error:
            cause = error
        except OpError as error:
            cause = error
        finally:
            self.is_broken = True
            self._cause = cause
            for future in self._pending.values():
                if not future.done():
                    future.set_exception(self._gone(cause))

    def _receive(self, envelope: pb.Envelope, tensors: list[Array]) -> None:
        future = self._pending.get(envelope.id)
        if future is None or future.done():
            return
        if envelope.status.code:
            future.set_exception(error_of(envelope.status))
        else:
            future.set_result((envelope, tensors))

    def _gone(self, cause: object) -> OpError:
        where = f"{self._task} at {self._address}"
        return rpc_error(cause, where, "the server that called it", str(self._task))


async def _reply_after_all(reply: asyncio.Future[Received]) -> Received:
    """What became of a call that was cancelled; it may have been done before it was known.

    It may be an element that was taken from a queue, which must not be lost.
    """
    grace = asyncio.get_running_loop().call_later(settings.GRACE_S, reply.cancel)
    while not reply.done():
        with suppress(asyncio.CancelledError):  # it was told once, and that is enough
            await asyncio.wait([reply])
    grace.cancel()
    try:
        return reply.result()
    except CancelledError as error:
        raise asyncio.CancelledError(*error.message.split("; ", 1)[1:]) from None


def _fail(future: asyncio.Future[Received], sending: asyncio.Future[None]) -> None:
    """Who waits for a reply learns that the request was not sent."""
    error = None if sending.cancelled() else sending.exception()
    if error is not None and not future.done():
        future.set_exception(error)


async def _dial(task: Task, address: str, token: str) -> _Link:
    await _resolve(task, address)
    channel = grpc.aio.insecure_channel(address, options=settings.CHANNEL_OPTIONS)
    try:
        await _wait_until_ready(channel, task, address)
        link = _Link(task, address, channel, token)
    except BaseException:
        await channel.close()
        raise
    try:
        await link.greet()
    except BaseException:
        await link.close()
        raise
    return link


async def _resolve(task: Task, address: str) -> None:
    """Makes sure that the host of an address is known."""
    try:
        await asyncio.wrap_future(looked_up(address))
    except (OSError, UnicodeError) as error:
        raise UnavailableError(
            f"{task} cannot be reached at {address!r}, its address in the cluster: "
            f"{unresolved(address, error)}; correct the address, or make the name known to the "
            "machine that calls it",
            task=str(task),
        ) from None


async def _wait_until_ready(channel: grpc.aio.Channel, task: Task, address: str) -> None:
    notice = asyncio.get_running_loop().call_later(
        _NOTICE_AFTER_S, _LOG.warning, "still waiting for %s at %s", task, address
    )
    try:
        await channel.channel_ready()
    finally:
        notice.cancel()


def rpc_error(cause: object, server: str, caller: str, task: str | None) -> OpError:
    """The error for a stream that failed.

    Args:
      cause: what gRPC raised, or a sentence.
      server: the other end, for the message.
      caller: this end, likewise.
      task: the task at the other end.
    """
    if isinstance(cause, grpc.RpcError):
        code, details = cause.code(), cause.details() or ""
        if code is grpc.StatusCode.UNAUTHENTICATED:
            message = f"{server} refused the token of {caller}: {details}"
            return UnauthenticatedError(message, task=task)
        cause = f"{code.name.lower()}: {details}"
    return UnavailableError(f"{server} cannot be reached ({cause})", task=task)


def welcome_from_proto(message: pb.Welcome) -> Welcome:
    """A server's introduction. Raises InternalError if it makes no sense."""
    try:
        return _welcome(message)
    except (TypeError, ValueError) as error:
        raise InternalError(f"a server introduced itself in an unknown way: {error}") from None


def _welcome(message: pb.Welcome) -> Welcome:
    jobs: dict[str, dict[int, str]] = {}
    for name, address in message.cluster.items():
        task = Task.parse(name)
        jobs.setdefault(task.job, {})[task.index] = address
    return Welcome(
        Task.parse(message.task),
        message.incarnation,
        ClusterSpec(jobs),
        tuple(device_from_proto(device) for device in message.devices),
        message.n_compiled,
    )


def device_from_proto(message: pb.Device) -> DeviceRecord:
    """A device of a task."""
    return DeviceRecord(Device.parse(message.name), message.platform, message.incarnation)
