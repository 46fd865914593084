"""`Dispatcher`: serves the calls of one stream by a service's table of RPCs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

from jflow.base.drivers.coroutines import Waited, noticing
from jflow.base.logs import event
from jflow.base.values import Array, SentArray
from jflow.errors import (
    AbortedError,
    CancelledError,
    InvalidArgumentError,
    OpError,
    ResourceExhaustedError,
)
from jflow.net.protocol import settings
from jflow.net.protocol.client_functions import ClientFunctions
from jflow.net.protocol.codec import error_to_status
from jflow.net.protocol.credits import (
    MAX_UNSENT_BYTES,
    SMALL_BYTES,
    Credits,
    ReplySize,
    Reservation,
    Unsent,
    total_bytes,
)
from jflow.net.protocol.frame import CHUNK_BYTES, new_tuple
from jflow.net.protocol.identity import restarted
from jflow.net.protocol.records import ServerInfo
from jflow.net.protocol.rights import Rights
from jflow.net.protocol.rpc import Incoming, Rpc, Service, name_of
from jflow.net.protocol.stream import MessageStream
from jflow.net.protocol.templates import NO_NUMBERS, TemplateMessage, TemplateReply, Varying
from jflow.net.protocol.transport import BrokenStreamError
from jflow.net.protocol.v1 import service_pb2 as pb

_LOG = logging.getLogger(__name__)

S = TypeVar("S")
Reply = tuple[pb.Envelope, Sequence[SentArray]]
CALL_CANCELLED = "the call was cancelled"
"""The message of a cancelled call's reply; "; " and what it was waiting for may follow."""


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
      rights: those of the caller.
    """

    def __init__(
        self,
        info: ServerInfo,
        stream: MessageStream,
        service: Service[S],
        session: S,
        rights: Rights,
    ) -> None:
        self._task = str(info.task)
        self._incarnation = info.incarnation
        self._stream = stream
        self._service = service
        self._session = session
        self._functions = ClientFunctions(stream)
        self._credits = Credits()
        self._unsent = Unsent(lambda: stream.n_taken, self._give_up)
        self._refusal: OpError | None = None
        self.allow(rights)
        self._working: dict[int, asyncio.Task[None]] = {}
        # Tasks that watch calls whose messages are coming; None once they have answered.
        self._coming: dict[int, asyncio.Task[None] | None] = {}
        stream.watch_long(self._watch)
        stream.offer_first(self._take_now)
        self._all: set[asyncio.Task[None]] = set()
        self._outcome: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    async def serve(self) -> None:
        """Serves messages until the stream ends.

        Raises:
          OpError: if a message is malformed.
          BrokenStreamError: if the stream broke.
        """
        self._read_on()
        error = await self._outcome
        if error is not None:
            raise error

    async def end(self, close: Callable[[], None]) -> None:
        """Cancels all unanswered calls, then closes the session.

        Run it in a task of its own: a transport may cancel the one that serves the stream several
        times.
        """
        self._stream.end()
        self._unsent.close()
        tasks = list(self._all)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        close()

    def allow(self, rights: Rights) -> None:
        """Serves what a caller with these rights may call, from now on, and nothing else."""
        self._rights = rights
        if self._refusal is None:
            self._rpcs: Mapping[str, Rpc[S, ..., Any]] = {
                name: rpc for name, rpc in self._service.rpcs.items() if rights.role >= rpc.needs
            }  # so that calls that are served pay for no check

    @property
    def service(self) -> Service[S]:
        """The service with its table of RPCs."""
        return self._service

    @property
    def is_working(self) -> bool:
        """Whether calls are not answered yet."""
        return bool(self._working)

    def refuse_new_calls(self, error: OpError) -> None:
        """Fails the calls that come from now on, with an error."""
        self._refusal = error
        self._rpcs = {}

    def refuse_calls(self, error: OpError) -> None:
        """Fails all unanswered calls, and those that come from now on, with an error."""
        self.refuse_new_calls(error)
        for task in [*self._working.values()]:
            task.cancel()

    def _give_up(self) -> None:
        """Ends the stream of a caller that reads no replies."""
        if not self._outcome.done():
            message_text = f"it has taken no answer for {settings.UNREAD_S:g} s"
            self._outcome.set_result(BrokenStreamError(message_text))

    def refuse(self, error: OpError) -> None:
        """Ends the stream: `serve` raises the error."""
        if not self._outcome.done():
            self._outcome.set_result(error)

    def _read_on(self) -> None:
        self._start(self._read())

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._all.add(task)
        task.add_done_callback(self._all.discard)
        return task

    def _watch(self, message: pb.Envelope) -> None:
        """Watches, while a long request arrives, for a failure that makes its call pointless."""
        call, rpc = message.id, self._rpcs.get(name_of(message))
        watching = None if rpc is None else rpc.watch(self._session, message)
        if watching is not None and call and call not in self._coming:
            self._coming[call] = self._start(self._fail_early(call, watching))

    async def _fail_early(self, call: int, watching: Awaitable[None]) -> None:
        """Replies with an error, before the whole request is there, once its call can only fail."""
        try:
            await watching
        except OpError as error:
            if call in self._coming:
                self._coming[call] = None
                await self._send(self._failure_reply(call, error), ())

    def _has_failed(self, call: int) -> bool:
        """Whether a call, whose request is complete now, has already failed in `_fail_early`."""
        if call not in self._coming:
            return False
        watching = self._coming.pop(call)
        if watching is not None:
            watching.cancel()
        return watching is None

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
                received = await self._stream.receive_any()
                if received is None:
                    break
                if isinstance(received, TemplateMessage):
                    await self._take_template(received, hand_over)
                else:
                    await self._take(*received, hand_over)
            else:
                return
        except Exception as caught:
            error = caught
        if not self._outcome.done():  # it is if `serve` was cancelled
            self._outcome.set_result(error)

    async def _take(
        self, message: pb.Envelope, tensors: list[Array], hand_over: Callable[[], None]
    ) -> None:
        if message.WhichOneof("body") == "cancel":
            self._cancel(message.cancel.id)
        elif message.HasField("ping"):
            await self._send(pb.Envelope(id=message.id), ())
        elif self._has_failed(message.id):
            return
        elif message.id:
            size = self._reply_size(message)
            work = partial(self._dispatch, message, tensors)
            n_fed = sum(tensor.nbytes for tensor in tensors)
            await self._take_call(message, message.id, size, hand_over, work, n_fed)
        elif self._refusal is None:
            with suppress(AbortedError):
                self._check_incarnation(message)
                await self._dispatch(message, tensors)

    def _take_now(self, message: TemplateMessage) -> bool:
        """Begins a call outside of asyncio tasks, and replies if it need not wait.

        Returns:
          False if the reading task has to complete it.
        """
        if self._coming or self._unsent.n_bytes > MAX_UNSENT_BYTES:
            return False
        self._begin(message)
        reply = message.early_result
        if not isinstance(reply, TemplateReply):
            return False
        return not message.varying.id or self._answer_now(message, reply)

    def _begin(self, message: TemplateMessage) -> None:
        """Begins a call in this plain function, up to its first wait."""
        rpc, envelope = self._rpcs.get(message.template.name), message.template.envelope
        if rpc is None:
            return
        message.size = size = rpc.reply_size(self._session, envelope)
        if size is not None and size.n_bytes > SMALL_BYTES:
            return  # it has to wait for credits
        try:
            self._check_incarnation(envelope)
            self._check_room()
            message.early_result = rpc.begin(self._session, message, self._functions)
        except Exception as error:
            message.early_result = error

    def _answer_now(self, message: TemplateMessage, reply: TemplateReply) -> bool:
        """Replies to a call if the reply is small and can leave at once."""
        n_bytes, size = total_bytes(reply.tensors), message.size
        if n_bytes > SMALL_BYTES:
            return False
        stream = self._stream
        varying = new_tuple(Varying, (message.varying.id, 0.0, NO_NUMBERS))
        control = stream.encoder.control(reply.key, varying, reply.tensors, reply.make)
        if control is None or not stream.try_send(control, reply.tensors):
            return False
        if size is not None:
            size.n_bytes = n_bytes
        return True

    async def _take_template(self, message: TemplateMessage, hand_over: Callable[[], None]) -> None:
        """Serves a message that has a template: as `_take`, but begun without a coroutine."""
        call, envelope = message.varying.id, message.template.envelope
        if self._coming and self._has_failed(call):
            return
        if message.early_result is None:
            self._begin(message)
        # The reader keeps the message until the next one; its reply may hold a lease on a variable.
        on_begin, message.early_result = message.early_result, None
        if on_begin is None:
            await self._take(message.envelope, message.tensors, hand_over)
        elif isinstance(on_begin, TemplateReply):
            if call and not self._answer_now(message, on_begin):
                n_bytes = total_bytes(on_begin.tensors)
                if n_bytes > CHUNK_BYTES:
                    hand_over()
                if message.size is not None:
                    message.size.n_bytes = n_bytes
                await self._send_template(call, on_begin)
        elif isinstance(on_begin, Exception):
            if call:
                await self._send(self._failure_reply(call, on_begin), ())
            elif not isinstance(on_begin, AbortedError):
                raise on_begin
        elif call:
            await self._take_call(envelope, call, message.size, hand_over, on_begin)
        else:
            with suppress(AbortedError):
                await on_begin()

    async def _take_call(
        self,
        request: pb.Envelope,
        call: int,
        size: ReplySize | None,
        hand_over: Callable[[], None],
        work: Callable[[], Awaitable[Reply | TemplateReply]],
        n_fed: int = 0,
    ) -> None:
        """Completes a call and sends its reply.

        Args:
          request: its envelope; it may be shared.
          call: the id of the call.
          size: the size of the last reply to such a call; None if it takes no credits.
          hand_over: lets another task read on.
          work: executes the call.
          n_fed: the size of the fed values, which are kept while the call waits for credits.
        """
        reserved = None
        if size is not None and size.n_bytes > SMALL_BYTES:
            reserved = Reservation(self._credits, size.n_bytes)
        try:
            if reserved is not None and n_fed > SMALL_BYTES:
                # Nothing is read meanwhile, or what waits for credits would take memory instead.
                await reserved.acquire()
            replying = self._reply_to(request, call, work, reserved)
            reply = await noticing(replying, hand_over)
            if isinstance(reply, TemplateReply):
                values, has_failed = reply.tensors, False
            else:
                values, has_failed = reply[1], bool(reply[0].status.code)
            n_bytes = total_bytes(values)
            # A small answer is sent before the next message is read.
            if n_bytes > CHUNK_BYTES:
                hand_over()
            if size is not None and not has_failed:
                size.n_bytes = n_bytes
            if reserved is not None:
                reserved.resize(n_bytes)
            if isinstance(reply, TemplateReply):
                await self._send_template(call, reply)
            else:
                await self._send(*reply)
        finally:
            if reserved is not None:
                reserved.resize(0)

    def _reply_size(self, message: pb.Envelope) -> ReplySize | None:
        """Returns the size of the last reply to such a call; None if it takes no credits."""
        rpc = self._rpcs.get(name_of(message))
        return None if rpc is None else rpc.reply_size(self._session, message)

    def _cancel(self, key: int) -> None:
        """Cancels the work for a call; a reply that is being sent is completed."""
        if key in self._working:
            self._working[key].cancel()

    async def _dispatch(self, request: pb.Envelope, tensors: list[Array]) -> Reply:
        name = name_of(request)
        rpc = self._rpcs.get(name)
        if rpc is None:
            raise self._refusal or self._not_served(name, request)
        self._check_room()
        incoming = Incoming(request, tensors, self._functions)
        message, values = await rpc.serve(self._session, incoming)
        return pb.Envelope() if message is None else pb.Envelope(**{rpc.reply: message}), values

    def _not_served(self, name: str, request: pb.Envelope) -> OpError:
        """Returns the error for a call of an RPC that the caller may not call, or that is none."""
        rpc = self._service.rpcs.get(name)
        if rpc is None:
            return InvalidArgumentError(f"{self._service.role} has no RPC {name!r}")
        try:
            doing = rpc.doing(getattr(request, rpc.body or name))
        except (InvalidArgumentError, LookupError):  # the request is malformed
            doing = f"the call {name!r}"
        return self._rights.refusal(rpc.needs, doing)

    async def _reply_to(
        self,
        request: pb.Envelope,
        call: int,
        work: Callable[[], Awaitable[Reply | TemplateReply]],
        reserved: Reservation | None,
    ) -> Reply | TemplateReply:
        task = asyncio.current_task()
        assert task is not None
        self._working[call] = task
        try:
            self._check_incarnation(request)
            if reserved is not None:
                await reserved.acquire()
            reply = await work()
            if not isinstance(reply, TemplateReply):
                reply[0].id = call
        except asyncio.CancelledError as error:
            waited = Waited.of(error)
            reason = f"{CALL_CANCELLED}; {waited.reason}" if waited.reason else CALL_CANCELLED
            ended = self._refusal or CancelledError(message=reason, op=waited.op)
            reply = self._failure_reply(call, ended), ()
        except Exception as error:  # any error is reported to the caller
            reply = self._failure_reply(call, error), ()
        self._working.pop(call, None)
        return reply

    async def _send(self, reply: pb.Envelope, values: Sequence[SentArray]) -> None:
        # If the caller is gone, the task that reads the stream notices its end.
        with suppress(BrokenStreamError), self._unsent.sending(values):
            try:
                await self._stream.send(reply, values)
            except ResourceExhaustedError as error:
                await self._stream.send(self._failure_reply(reply.id, error))

    async def _send_template(self, call: int, reply: TemplateReply) -> None:
        """Sends the reply to a call, by a template if the reply can have one."""
        control = self._stream.encoder.control(reply.key, Varying(call), reply.tensors, reply.make)
        if control is None:
            envelope = reply.make()
            envelope.id = call
            await self._send(envelope, reply.tensors)
            return
        sending = self._stream.send_now(control, reply.tensors)
        if sending is not None:
            with suppress(BrokenStreamError), self._unsent.sending(reply.tensors):
                await sending

    def _failure_reply(self, call: int, error: BaseException) -> pb.Envelope:
        """Logs the failure of a call, and returns the reply that reports it."""
        if not isinstance(error, OpError):
            _LOG.error("a call failed with an unexpected error", exc_info=error)
        elif _LOG.isEnabledFor(logging.INFO):
            # Not its message, which may have values of the user's in it.
            event(
                _LOG,
                logging.INFO,
                "call_failed",
                call=call,
                code=error.error_code.name,
                op=error.op,
                failed_task=error.task,
            )
        return pb.Envelope(id=call, status=error_to_status(error, self._task))

    def _check_room(self) -> None:
        """Raises ResourceExhaustedError if too many calls of this stream wait already."""
        if len(self._working) > settings.MAX_CALLS:
            raise ResourceExhaustedError(
                f"{settings.MAX_CALLS} calls of this client wait on {self._task}, which takes no "
                "more before some of them end"
            )

    def _check_incarnation(self, request: pb.Envelope) -> None:
        if request.incarnation not in (0, self._incarnation):
            raise restarted(self._task, request.incarnation, self._incarnation)
