"""`MessageStream`: messages over one end of a stream of frames, on an event loop."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any

from jflow.cluster import Task
from jflow.protocol.codec import (
    control_of,
    decoding_cost,
    frames_of,
    open_control,
    open_tensors,
    small_bytes,
)
from jflow.protocol.coroutines import MAX_COST_ON_LOOP, computed
from jflow.protocol.frame import SMALL_BYTES, Message
from jflow.protocol.framing import ByteFraming, Framing
from jflow.protocol.parser import delimited_message
from jflow.protocol.stable import StableMessage, StableParser, StableWriter
from jflow.protocol.transport import BrokenStreamError, EndedStreamError, FrameStream
from jflow.protocol.v1 import service_pb2 as pb
from jflow.values import Array

Received = tuple[pb.Envelope, list[Array]]


class MessageStream:
    """Sends and receives envelopes with tensors; messages may be sent concurrently.

    Args:
      stream: carries the frames.
      framing: the form in which it does; if None, frames are bytes.
      caller: the task at the other end, if this is a server's end and it is called by a task.

    Attributes:
      stable: makes stable control parts for `send_control`.
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
        self._is_over = False
        self._n_taken = 0
        self.stable = StableWriter()
        self._parser = StableParser()

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
        await self._write_all(
            frames_of(self._framing.encode, next(self._frame_ids), control, tensors)
        )

    def send_now(self, control: bytes, tensors: Sequence[Array] = ()) -> Awaitable[None] | None:
        """As `send_control`, without waiting if the message is small and the stream takes it.

        Returns:
          What to wait for; None if the message is sent.
        """
        write_now = self._framing.write_now
        payload = None
        if not (write_now is None or self._is_over or self._writing.locked()):
            payload = small_bytes(tensors)
        if write_now is None or payload is None or len(control) > SMALL_BYTES:
            return self.send_control(control, tensors)
        frame = delimited_message(next(self._frame_ids), control, payload)
        has_left = write_now(frame)
        if has_left:
            return None
        if has_left is None:
            return self.send_control(control, tensors)
        return self._write_all(iter(([],)))

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
                self._n_taken += framing.is_sign_of_life(frame)

    @property
    def kind(self) -> str:
        """What carries the messages: "grpc", "unix" or "tcp"."""
        return self._stream.kind

    @property
    def n_signs(self) -> int:
        """How many signs of life there were: something came, or a large frame was taken."""
        return self._n_taken + self._framing.n_received

    @property
    def is_receiving(self) -> bool:
        """Whether a part of a message has come, and not the rest."""
        return self._framing.has_unfinished

    def watch_long(self, begun: Callable[[pb.Envelope], object]) -> None:
        """Sets what is called with the envelope of a message that takes long to come.

        It is called when the message begins, in the task that receives; not for large envelopes.
        """

        def open_begun(message: Message) -> None:
            if len(message.control) > MAX_COST_ON_LOOP:
                return
            envelope = self._parser.envelope(message)
            begun(open_control(message) if envelope is None else envelope)

        self._framing.watch_long(open_begun)

    def end(self) -> None:
        """Refuses further messages."""
        self._is_over = True

    async def receive(self) -> Received | None:
        """The next message in its common form; otherwise as `receive_any`."""
        received = await self.receive_any()
        return received.common if isinstance(received, StableMessage) else received

    async def receive_any(self) -> Received | StableMessage | None:
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
            message = self._framing.feed(frame)
            if message is not None:
                stable = self._parser.open(message)
                if stable is not None:
                    return stable
                envelope = open_control(message)
                cost = decoding_cost(envelope, message.payload)
                if cost <= MAX_COST_ON_LOOP:
                    return envelope, open_tensors(envelope, message.payload)
                opened = partial(open_tensors, envelope)
                return envelope, await computed(cost, opened, message.payload)

    async def close(self) -> None:
        """Ends the stream and frees its connection."""
        await self._stream.close()


def _ended(details: str, n_sent: int) -> BrokenStreamError:
    """The error for a stream that has ended after some frames of a message."""
    return BrokenStreamError(details) if n_sent else EndedStreamError(details)
