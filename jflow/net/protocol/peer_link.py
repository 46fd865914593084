"""`PeerLink`: one stream between two servers, at the end that calls."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from jflow.base.cluster import Task
from jflow.base.drivers.coroutines import Waited, begin, retrieve
from jflow.base.drivers.loop import TaskSet
from jflow.base.values import SentArray
from jflow.base.versions import VERSION
from jflow.errors import CancelledError, InternalError, OpError, UnavailableError
from jflow.net.protocol import settings
from jflow.net.protocol.codec import error_of
from jflow.net.protocol.frame import CHUNK_BYTES, aligned
from jflow.net.protocol.heartbeat import TICKS, Beat, Heartbeat, liveness_s, silence
from jflow.net.protocol.records import ServerInfo
from jflow.net.protocol.rpc import CallRequest
from jflow.net.protocol.rpcs import RELEASE, SEND_TENSORS
from jflow.net.protocol.stream import MessageStream, Received
from jflow.net.protocol.templates import TemplateMessage
from jflow.net.protocol.transport import BrokenStreamError, EndedStreamError, stream_error
from jflow.net.protocol.v1 import service_pb2 as pb


class PendingReply:
    """A future of the reply to one call. Use it on the event loop only.

    A wait that is cancelled leaves the reply that is on its way, as `asyncio.shield` would, but
    without the pass of the event loop that a shield adds to each reply.
    """

    __slots__ = ("_arrival", "_reply")

    def __init__(self) -> None:
        self._reply: Received | OpError | None = None
        self._arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(self, answer: Received | OpError) -> None:
        """Sets the reply, or the error in its place, unless it is set already."""
        if self._reply is None:
            self._reply = answer
            if not self._arrival.done():
                self._arrival.set_result(None)

    def sent(self, sending: asyncio.Future[None]) -> None:
        """Fails the call if its request could not be sent."""
        error = None if sending.cancelled() else sending.exception()
        if isinstance(error, OpError):
            self.put(error)
        elif error is not None:
            self.put(InternalError(f"{type(error).__name__}: {error}"))

    async def wait(self) -> None:
        """Waits for the reply."""
        await self._arrival

    async def after_cancel(self) -> Received:
        """Waits a grace period for the reply to a call whose wait was cancelled.

        The call may have been done before that was known, and the reply may hold an element that
        was taken from a queue, which must not be lost.

        Raises:
          asyncio.CancelledError: if the call was cancelled, or nothing comes.
          OpError: as `result`.
        """
        if self._reply is None:
            loop = asyncio.get_running_loop()
            self._arrival = arrival = loop.create_future()
            grace = loop.call_later(settings.GRACE_S, arrival.cancel)
            while not arrival.done():
                with suppress(asyncio.CancelledError):  # the call was cancelled once already
                    await asyncio.wait([arrival])
            grace.cancel()
        if self._reply is None:
            raise asyncio.CancelledError
        if isinstance(self._reply, CancelledError):
            waited = Waited(self._reply.message.partition("; ")[2], self._reply.op)
            raise asyncio.CancelledError(waited)
        return self.result()

    def result(self) -> Received:
        """Returns the reply, which must have come, or raises the error in its place."""
        assert self._reply is not None
        if isinstance(self._reply, OpError):
            raise self._reply
        return self._reply


CALLER = "the server that called it"


class UnsentError(UnavailableError):
    """The stream had ended before any byte of a message was sent."""


def _batches(values: Mapping[int, SentArray | None]) -> Iterator[Mapping[int, SentArray | None]]:
    """Groups values into messages of up to CHUNK_BYTES; a larger value gets its own."""
    n_bytes = 0
    some: dict[int, SentArray | None] = {}
    for edge, value in values.items():
        size = 0 if value is None else aligned(value.nbytes)
        if some and n_bytes + size > CHUNK_BYTES:
            yield some
            n_bytes, some = 0, {}
        some[edge] = value
        n_bytes += size
    yield some


async def _all_sent(sending: Iterable[asyncio.Future[None]]) -> None:
    """Waits until messages are sent; cancelling the wait does not cancel the sending."""
    for one in sending:
        await asyncio.shield(one)


class PeerLink:
    """One stream to one incarnation of a task, after the handshake, and its pending calls.

    Attributes:
      number: counts the connections to the task.
      version: the version of the protocol that the stream has.
    """

    def __init__(
        self,
        task: Task,
        address: str,
        stream: MessageStream,
        info: ServerInfo,
        number: int,
        version: int = VERSION,
    ) -> None:
        self.number = number
        self.version = version
        self._task = task
        self._address = address
        self._stream = stream
        self.info = info
        self._ids = itertools.count(1)
        self._cancelling = TaskSet()
        self._pending: dict[int, PendingReply] = {}
        # By step, the sending of the call that begins it.
        self._beginnings: dict[int, asyncio.Future[None]] = {}
        stream.offer_first(self._take)
        self._reader = asyncio.create_task(self._read())
        self._watcher = asyncio.create_task(self._watch(liveness_s()))
        self._cause: object = "this end closed the connection"
        self.is_broken = False

    async def call(self, request: CallRequest, step: int | None = None) -> Received:
        """Sends a request and waits for its reply; cancelling the wait cancels the call.

        If the reply arrives nevertheless, it is returned.

        Args:
          request: what to send.
          step: the step that it begins, if it does.
        """
        key = next(self._ids)
        reply = self._pending[key] = PendingReply()
        sending: asyncio.Future[None] | None = None
        try:
            if (sending := self._send(request, key)) is not None:
                sending.add_done_callback(reply.sent)
                if step is not None:
                    self._beginnings[step] = sending
                    sending.add_done_callback(lambda _: self._beginnings.pop(step, None))
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

    def deliver(self, step: int, values: Mapping[int, SentArray | None]) -> Awaitable[None] | None:
        """See `Peer.deliver`."""
        if self._beginnings and (beginning := self._beginnings.get(step)) is not None:
            return self._deliver_after(beginning, step, values)
        sending = [self._send(SEND_TENSORS.prepared(step, some)) for some in _batches(values)]
        unsent = [one for one in sending if one is not None]
        return _all_sent(unsent) if unsent else None

    async def _deliver_after(
        self, beginning: asyncio.Future[None], step: int, values: Mapping[int, SentArray | None]
    ) -> None:
        """Like `deliver`, once the call that begins the step has left."""
        await asyncio.wait([beginning])
        if (sending := self.deliver(step, values)) is not None:
            await sending

    async def close(self) -> None:
        self._reader.cancel()
        self._watcher.cancel()
        await asyncio.gather(self._reader, self._watcher, return_exceptions=True)
        await self._stream.close()

    def _send(self, request: CallRequest, call: int = 0) -> asyncio.Future[None] | None:
        """Sends a request; returns None if it has left, else the future of its sending.

        A caller that is cancelled must not cancel that: a message that is sent in part, or a write
        that the transport sees cancelled, would break the stream.

        Raises:
          UnavailableError: if the connection has ended.
        """
        if self.is_broken:
            raise self._loss_error(self._cause)
        control = request.control(self._stream.encoder, call, self.info.incarnation)
        waiting = self._stream.send_now(control, request.tensors)
        if waiting is None:
            return None
        sending = begin(self._wait_until_sent(waiting))
        if sending.done() and sending.exception() is None:
            return None
        sending.add_done_callback(retrieve)  # the caller may be cancelled before it fails
        return sending

    async def _send_control(self, control: bytes, tensors: Sequence[SentArray]) -> None:
        if self.is_broken:
            raise self._loss_error(self._cause)
        await self._wait_until_sent(self._stream.send_control(control, tensors))

    async def _wait_until_sent(self, sending: Awaitable[None]) -> None:
        """Waits until a message is sent. Raises UnavailableError if the stream ends before."""
        try:
            await sending
        except EndedStreamError as error:
            self.is_broken = True
            raise UnsentError(self._loss_error(error).message, task=str(self._task)) from None
        except BrokenStreamError as error:
            raise self._loss_error(error) from None

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
            self._stream.end()
            self._watcher.cancel()

    def _lose(self, cause: object) -> None:
        """Marks the stream as broken, and fails the calls that wait for replies."""
        self.is_broken, self._cause = True, cause
        for reply in self._pending.values():
            reply.put(self._loss_error(cause))

    async def _watch(self, liveness: float) -> None:
        """Pings the other end after a long silence, and closes the stream if it stays silent."""
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

    def _take(self, received: TemplateMessage) -> bool:
        """Completes the call of an arriving reply; returns False if it needs the whole envelope."""
        if received.template.is_error:
            return False
        reply = self._pending.get(received.varying.id)
        if reply is None:
            return False
        reply.put((received.template.envelope, received.tensors))
        return True

    def _receive(self, received: Received | TemplateMessage) -> None:
        if isinstance(received, TemplateMessage):
            if self._take(received):
                return
            received = received.common
        envelope, _ = received
        reply = self._pending.get(envelope.id)
        if reply is not None:
            reply.put(error_of(envelope.status) if envelope.status.code else received)
        elif envelope.registered.handle:
            self._cancelling.start(self._release(envelope.registered.handle))

    async def _release(self, handle: int) -> None:
        """Releases plans of which the caller has been given no handle, because it had given up."""
        with suppress(OpError):
            await self.push(RELEASE.prepared(handle))

    def _loss_error(self, cause: object) -> OpError:
        server = f"{self._task} at {self._address}"
        return stream_error(cause, server, CALLER, str(self._task))
