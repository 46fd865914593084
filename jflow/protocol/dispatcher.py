"""`Dispatcher`: serves the calls of one stream by a service's table of RPCs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from jflow.errors import (
    AbortedError,
    CancelledError,
    InvalidArgumentError,
    OpError,
    ResourceExhaustedError,
)
from jflow.protocol.client_functions import ClientFunctions
from jflow.protocol.codec import error_to_status
from jflow.protocol.coroutines import Waited, noticing
from jflow.protocol.credits import SMALL_BYTES, Credits, ReplySize, Reservation, Unsent
from jflow.protocol.frame import CHUNK_BYTES
from jflow.protocol.identity import restarted
from jflow.protocol.records import ServerInfo
from jflow.protocol.rpc import Incoming, Service
from jflow.protocol.stream import MessageStream
from jflow.protocol.transport import BrokenStreamError
from jflow.protocol.v1 import service_pb2 as pb
from jflow.values import Array

_LOG = logging.getLogger(__name__)

S = TypeVar("S")
Reply = tuple[pb.Envelope, Sequence[Array]]
CALL_CANCELLED = "the call was cancelled"
"""The message of a cancelled call's answer; "; " and what it was waiting for may follow."""


class Dispatcher(Generic[S]):
    """Serves the calls of one stream.

    The task that reads a call also answers it; at the call's first wait another task continues to
    read. So a call that does not wait is answered in the iteration of the loop in which it arrived.

    Invariant: at any time exactly one task reads the stream, until one sees its end. `hand_over`
    starts the next reader and makes its caller the answerer of its call only; it acts once, because
    a reader may have several reasons to hand over (a wait, then a large answer).

    Args:
      info: the server info that the caller was given.
      stream: carries the calls and answers.
      service: the service with its table of RPCs.
      session: the session that the RPCs are called on.
    """

    def __init__(
        self, info: ServerInfo, stream: MessageStream, service: Service[S], session: S
    ) -> None:
        self._task = str(info.task)
        self._incarnation = info.incarnation
        self._stream = stream
        self._role = service.role
        self._rpcs = service.rpcs
        self._session = session
        self._functions = ClientFunctions(stream)
        self._credits = Credits()
        self._unsent = Unsent()
        self._working: dict[int, asyncio.Task[None]] = {}
        self._all: set[asyncio.Task[None]] = set()
        self._over: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    async def serve(self) -> None:
        """Serves messages until the stream ends.

        Raises:
          OpError: if a message is malformed.
          BrokenStreamError: if the stream broke.
        """
        self._read_on()
        error = await self._over
        if error is not None:
            raise error

    async def end(self, close: Callable[[], None]) -> None:
        """Cancels all unanswered calls, then closes the session.

        Run it in a task of its own: a transport may cancel the one that serves the stream several
        times.
        """
        self._stream.end()
        tasks = list(self._all)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        close()

    def _read_on(self) -> None:
        task = asyncio.create_task(self._read())
        self._all.add(task)
        task.add_done_callback(self._all.discard)

    async def _read(self) -> None:
        """Serves messages up to the first call that must wait, and completes that call."""
        reads_on = True

        def hand_over() -> None:
            nonlocal reads_on
            if reads_on:
                reads_on = False
                self._read_on()

        error: Exception | None = None
        try:
            while reads_on:
                await self._unsent.below_limit()
                received = await self._stream.receive()
                if received is None:
                    break
                await self._take(*received, hand_over)
            else:
                return
        except Exception as caught:
            error = caught
        if not self._over.done():  # it is if `serve` was cancelled
            self._over.set_result(error)

    async def _take(
        self, message: pb.Envelope, tensors: list[Array], hand_over: Callable[[], None]
    ) -> None:
        if message.WhichOneof("body") == "cancel":
            self._cancel(message.cancel.id)
        elif message.HasField("ping"):
            await self._send(pb.Envelope(id=message.id), ())
        elif message.id:
            await self._take_call(message, tensors, hand_over)
        else:
            with suppress(AbortedError):
                self._check_incarnation(message)
                await self._dispatch(message, tensors)

    async def _take_call(
        self, message: pb.Envelope, tensors: list[Array], hand_over: Callable[[], None]
    ) -> None:
        size = self._reply_size(message)
        reserved = None
        if size is not None and size.n_bytes > SMALL_BYTES:
            reserved = Reservation(self._credits, size.n_bytes)
        try:
            reply, values = await noticing(self._answer(message, tensors, reserved), hand_over)
            n_bytes = sum(value.nbytes for value in values)
            # A small answer is sent before the next message is read.
            if n_bytes > CHUNK_BYTES:
                hand_over()
            if size is not None and not reply.status.code:
                size.n_bytes = n_bytes
            if reserved is not None:
                reserved.resize(n_bytes)
            await self._send(reply, values)
        finally:
            if reserved is not None:
                reserved.resize(0)

    def _reply_size(self, message: pb.Envelope) -> ReplySize | None:
        """The size of the last reply to such a call; None if it takes no credits."""
        rpc = self._rpcs.get(message.WhichOneof("body") or "")
        return None if rpc is None else rpc.reply_size(self._session, message)

    def _cancel(self, key: int) -> None:
        """Cancels the work for a call; an answer that is being sent is completed."""
        if key in self._working:
            self._working[key].cancel()

    async def _dispatch(self, request: pb.Envelope, tensors: list[Array]) -> Reply:
        name = request.WhichOneof("body")
        rpc = self._rpcs.get(name or "")
        if rpc is None:
            raise InvalidArgumentError(f"{self._role} has no RPC {name!r}")
        incoming = Incoming(request, tensors, self._functions)
        message, values = await rpc.serve(self._session, incoming)
        return pb.Envelope() if message is None else pb.Envelope(**{rpc.reply: message}), values

    async def _answer(
        self, request: pb.Envelope, tensors: list[Array], reserved: Reservation | None
    ) -> Reply:
        task = asyncio.current_task()
        assert task is not None
        self._working[request.id] = task
        try:
            self._check_incarnation(request)
            if reserved is not None:
                await reserved.take()
            reply, values = await self._dispatch(request, tensors)
        except asyncio.CancelledError as error:
            waited = Waited.of(error)
            said = f"{CALL_CANCELLED}; {waited.reason}" if waited.reason else CALL_CANCELLED
            reply, values = self._failed(CancelledError(message=said, op=waited.op)), ()
        except Exception as error:  # any error is reported to the caller
            if not isinstance(error, OpError):
                _LOG.exception("a call failed with an unexpected error")
            reply, values = self._failed(error), ()
        self._working.pop(request.id, None)
        reply.id = request.id
        return reply, values

    async def _send(self, reply: pb.Envelope, values: Sequence[Array]) -> None:
        # If the caller is gone, the task that reads the stream notices its end.
        with suppress(BrokenStreamError), self._unsent.sending(values):
            try:
                await self._stream.send(reply, values)
            except ResourceExhaustedError as error:
                await self._stream.send(pb.Envelope(id=reply.id, status=self._failed(error).status))

    def _failed(self, error: BaseException) -> pb.Envelope:
        return pb.Envelope(status=error_to_status(error, self._task))

    def _check_incarnation(self, request: pb.Envelope) -> None:
        if request.incarnation not in (0, self._incarnation):
            raise restarted(self._task, request.incarnation, self._incarnation)
