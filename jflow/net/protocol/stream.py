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
from jflow.base.values import Array
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

    async def send(self, envelope: pb.Envelope, tensors: Sequence[Array] = ()) -> None:
        """Sends a message; returns when the transport has accepted it.

        Raises:
          ResourceExhaustedError: if the message is too large; nothing is sent then.
          EndedStreamError: if the stream has ended before anything of the message was sent.
          BrokenStreamError: if the stream breaks.
        """
        await self.send_control(control_of(envelope, tensors), tensors)

    async def send_control(self, control: bytes, tensors: Sequence[Array] = ()) -> None:
        """As `send`, for a control part that is made already."""
        await self._write_all(self._framing.frames(next(self._frame_ids), control, tensors))

    def send_now(self, control: bytes, tensors: Sequence[Array] = ()) -> Awaitable[None] | None:
        """As `send_control`, without waiting if the stream takes the message at once.

        Returns:
          What to wait for; None if the message is sent.
        """
        has_left = self._write_now(control, tensors)
        if has_left:
            return None
        if has_left is None:
            return self.send_control(control, tensors)
        return self._write_all(iter(([],)))

    def try_send(self, control: bytes, tensors: Sequence[Array] = ()) -> bool:
        """As `send_now`, unless that would wait; what the kernel leaves is sent in the background.

        Returns:
          False if nothing was done.
        """
        has_left = self._write_now(control, tensors)
        if has_left is False:
            self._flushing = asyncio.ensure_future(self._flush())
        return has_left is not None

    def _write_now(self, control: bytes, tensors: Sequence[Array]) -> bool | None:
        """Writes a message if the stream can do so now; returns whether all of it has left.

        None if nothing was done.
        """
        write_now = self._framing.write_now
        if write_now is None or self._is_over or self._writing.locked():
            return None
        return write_now(next(self._frame_ids), control, tensors)

    async def _flush(self) -> None:
        """Sends what the kernel has left of a message."""
        with suppress(BrokenStreamError):  # the task that reads finds the reason
            await self._write_all(iter(([],)))

    async def _write_all(self, frames: Iterator[Any]) -> None:
        """Sends the frames of a message."""
        n_sent = 0
        framing = self._framing
        for frame in frames:
            async with self._writing:
                if self._is_over:
                    # The transport would wait forever, because nothing reads its frames.
                    raise _ended("the stream has ended", n_sent)
                try:
                    await self._stream.write(frame)
                except self._errors as error:
                    broken = self._stream.broken(error)
                    if isinstance(broken, EndedStreamError):
                        broken = _ended(str(broken), n_sent)
                    raise broken from error
                n_sent += bool(frame)  # one without bytes lets other messages pass
                self.n_taken += framing.is_sign_of_life(frame)

    @property
    def kind(self) -> str:
        """What carries the messages: "grpc", "unix", "tcp" or "inproc"."""
        return self._stream.kind

    @property
    def n_signs(self) -> int:
        """How many signs of life there were: something came, or a large frame was taken."""
        return self.n_taken + self._framing.n_received

    def watch_long(self, on_begin: Callable[[pb.Envelope], object]) -> None:
        """Sets what is called with the envelope of a message that takes long to come.

        It is called when the message begins, in the task that receives; not for large envelopes.
        """

        def open_begun(message: Message) -> None:
            if len(message.control) > MAX_COST_ON_LOOP:
                return
            envelope = self._decoder.envelope(message)
            on_begin(open_control(message) if envelope is None else envelope)

        self._framing.watch_long(open_begun)

    def offer_first(self, take: Callable[[TemplateMessage], bool]) -> None:
        """Sets what is offered messages that have templates before `receive_any` gives them.

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
        """The next message in its common form; otherwise as `receive_any`."""
        received = await self.receive_any()
        return received.common if isinstance(received, TemplateMessage) else received

    async def receive_any(self) -> Received | TemplateMessage | None:
        """The next message, or None at the end of the stream. One caller at a time.

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
        """Ends the stream and frees its connection, and what has come and was not read."""
        await self._stream.close()
        self._framing.close()


def _ended(details: str, n_sent: int) -> BrokenStreamError:
    """The error for a stream that has ended after some frames of a message."""
    return BrokenStreamError(details) if n_sent else EndedStreamError(details)
