"""`MessageStream`: messages over one end of a stream of frames, on an event loop."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from jflow.base.cluster import Task
from jflow.base.drivers.coroutines import MAX_COST_ON_LOOP, computed
from jflow.base.values import Array, SentArray
from jflow.errors import OpError
from jflow.net.protocol.codec import (
    control_of,
    decoding_cost,
    open_control,
    tensors_of,
)
from jflow.net.protocol.frame import Message
from jflow.net.protocol.framing import ByteFraming, Framing
from jflow.net.protocol.templates import TemplateDecoder, TemplateEncoder, TemplateMessage
from jflow.net.protocol.transport import BrokenStreamError, EndedStreamError, FrameStream
from jflow.net.protocol.v1 import service_pb2 as pb

Received = tuple[pb.Envelope, list[Array]]


class MessageStream:
    """Sends and receives envelopes with tensors; messages may be sent concurrently.

    Args:
      stream: carries the frames.
      framing: the form in which it does; if None, frames are bytes.
      caller: the task at the other end, if this is a server's end and it is called by a task.

    Attributes:
      encoder: makes control parts with templates for `send_control`.
      n_taken: how many large frames were taken.
    """

    def __init__(
        self, stream: FrameStream, framing: Framing | None = None, caller: Task | None = None
    ) -> None:
        self.caller = caller
        self._stream = stream
        self._framing = ByteFraming() if framing is None else framing
        self._errors = stream.errors
        self._eof = stream.eof
        self._frame_ids = itertools.count(1)
        # A transport takes one write at a time. The lock is held for one frame only, so that small
        # messages pass between the chunks of large ones.
        self._writing = asyncio.Lock()
        self._flushing: asyncio.Future[None] | None = None
        self._is_over = False
        self.n_taken = 0
        self.encoder = TemplateEncoder()
        self._decoder = TemplateDecoder()

    async def send(self, envelope: pb.Envelope, tensors: Sequence[SentArray] = ()) -> None:
        """Sends a message; returns when the transport has accepted it.

        Raises:
          ResourceExhaustedError: if the message is too large; nothing is sent then.
          EndedStreamError: if the stream has ended before anything of the message was sent.
          BrokenStreamError: if the stream breaks.
        """
        await self.send_control(control_of(envelope, tensors), tensors)

    async def send_control(self, control: bytes, tensors: Sequence[SentArray] = ()) -> None:
        """Like `send`, for a control part that is already encoded."""
        await self._write_all(self._framing.frames(next(self._frame_ids), control, tensors))

    def send_now(self, control: bytes, tensors: Sequence[SentArray] = ()) -> Awaitable[None] | None:
        """Like `send_control`, without waiting if the stream accepts the message at once.

        Returns:
          What to wait for; None if the message is sent.
        """
        has_left = self._write_now(control, tensors)
        if has_left:
            return None
        if has_left is None:
            return self.send_control(control, tensors)
        return self._write_all(iter(([],)))

    def try_send(self, control: bytes, tensors: Sequence[SentArray] = ()) -> bool:
        """Like `send_now`, unless that would wait; sends what is left over in the background.

        Returns:
          False if nothing was done.
        """
        has_left = self._write_now(control, tensors)
        if has_left is False:
            self._flushing = asyncio.ensure_future(self._flush())
        return has_left is not None

    def _write_now(self, control: bytes, tensors: Sequence[SentArray]) -> bool | None:
        """Writes a message if the stream can do so now; returns whether all of it has left.

        None if nothing was done.
        """
        write_now = self._framing.write_now
        if write_now is None or self._is_over or self._writing.locked():
            return None
        return write_now(next(self._frame_ids), control, tensors)

    async def _flush(self) -> None:
        """Sends the rest of a message that the kernel has accepted only in part."""
        with suppress(BrokenStreamError):  # the task that reads finds the reason
            await self._write_all(iter(([],)))

    async def _write_all(self, frames: Iterator[Any]) -> None:
        """Writes the frames of a message; other messages may pass between them."""
        n_sent = 0
        framing = self._framing
        for frame in frames:
            async with self._writing:
                if self._is_over:
                    # The transport would wait forever, because nothing reads its frames.
                    raise _end_error("the stream has ended", n_sent)
                try:
                    await self._stream.write(frame)
                except self._errors as error:
                    broken = self._stream.broken(error)
                    if isinstance(broken, EndedStreamError):
                        broken = _end_error(str(broken), n_sent)
                    raise broken from error
                n_sent += bool(frame)  # one without bytes lets other messages pass
                self.n_taken += framing.is_sign_of_life(frame)

    @property
    def kind(self) -> str:
        """The transport of the messages: "grpc", "unix", "tcp" or "inproc"."""
        return self._stream.kind

    @property
    def n_signs(self) -> int:
        """The number of signs of life: received frames, and large frames that were sent."""
        return self.n_taken + self._framing.n_received

    def watch_long(self, on_begin: Callable[[pb.Envelope], object]) -> None:
        """Sets the function that is called with the envelope of a long message as it begins.

        It is called when the message begins, in the task that receives; not for large envelopes.
        """

        def open_begun(message: Message) -> None:
            if len(message.control) > MAX_COST_ON_LOOP:
                return
            envelope = self._decoder.envelope(message)
            on_begin(open_control(message) if envelope is None else envelope)

        self._framing.watch_long(open_begun)

    def offer_first(self, take: Callable[[TemplateMessage], bool]) -> None:
        """Sets the function that is offered messages with templates before `receive_any`.

        It is called as they come, on the event loop outside of tasks, if the transport can do so,
        and returns whether it has taken the message.
        """

        def offered(message: Message) -> Message | TemplateMessage | None:
            try:
                opened = self._decoder.open(message)
            except OpError:
                return message  # the reader takes the error
            if opened is None:
                return message
            return None if take(opened) else opened

        self._framing.offer_first(offered)

    def end(self) -> None:
        """Ends reading: refuses further messages, and frees those that were not read.

        Streams are in cycles of references, which the garbage collector may find much later.
        """
        self._is_over = True
        self._framing.close()

    async def receive(self) -> Received | None:
        """Waits for the next message, in its common form; otherwise like `receive_any`."""
        received = await self.receive_any()
        return received.common if isinstance(received, TemplateMessage) else received

    async def receive_any(self) -> Received | TemplateMessage | None:
        """Waits for the next message; None at the end of the stream. One caller at a time.

        Raises:
          OpError: if the message is malformed or too large.
          BrokenStreamError: if the stream broke.
        """
        while True:
            try:
                frame = await self._stream.read()
            except self._errors as error:
                raise self._stream.broken(error) from error
            if frame is self._eof:
                return None
            if isinstance(frame, TemplateMessage):  # it was offered
                return frame
            message = self._framing.feed(frame)
            if message is not None:
                repeated = self._decoder.open(message)
                if repeated is not None:
                    return repeated
                envelope = open_control(message)
                cost = decoding_cost(envelope, message.payload)
                opened = partial(tensors_of, envelope)
                return envelope, await computed(cost, opened, message)

    async def close(self) -> None:
        """Ends the stream, frees its connection and drops the messages that were not read."""
        await self._stream.close()
        self._framing.close()


def _end_error(details: str, n_sent: int) -> BrokenStreamError:
    """Returns the error for a stream that ended after `n_sent` frames of a message."""
    return BrokenStreamError(details) if n_sent else EndedStreamError(details)
