"""`SocketStream`: one end of a data stream, on an event loop.

It reads into the memory of its messages and writes from that of the tensors, which asyncio's own
transports cannot. A write is over when the kernel has taken all of it, so buffers may be used again
then. It reads on only as its reader takes messages, so that what a caller sends stays in the socket
buffer until the server takes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from jflow.base.values import SentArray
from jflow.errors import OpError
from jflow.net.protocol.codec import frames_of, small_payload
from jflow.net.protocol.frame import CHUNK_BYTES, SMALL_BYTES, Buffers, Message
from jflow.net.protocol.inbox import Inbox
from jflow.net.protocol.offers import DataOffer
from jflow.net.protocol.parser import Parser, delimited, delimited_message
from jflow.net.protocol.transport import BrokenStreamError, EndedStreamError, FrameStream
from jflow.net.wire.connections import DataConnection
from jflow.net.wire.segment_exchange import SegmentExchange

_MAX_QUEUED, _MAX_QUEUED_BYTES = 64, 16 << 20
"""How many messages, and bytes of them, may be parsed and not taken before the stream is not read
any more."""


class SocketStream:
    """One end of a data stream; see `protocol.transport.FrameStream` and `PairedStream`.

    What `read` returns are messages, what `write` takes is a frame as its buffers.

    Args:
      connection: its connection, which belongs to the stream from now on.

    Attributes:
      kind: "unix" or "tcp".
      segments: large messages lie in them, if the other end can be given their files.
      parser: parses the received bytes.
    """

    eof: object = None
    errors: tuple[type[Exception], ...] = (BrokenStreamError,)

    def __init__(self, connection: DataConnection) -> None:
        self._connection = connection
        self.kind = connection.kind
        self._fd = connection.fileno()
        self._loop = asyncio.get_running_loop()
        self.segments = SegmentExchange(self._wake, passes_files=connection.passes_files)
        self.parser = Parser(segments=self.segments)
        self._inbox = Inbox(self._read_on)
        self._writer: asyncio.Future[None] | None = None
        self._is_reading = False
        self._is_mid_frame = False  # whether a part of a frame was sent, and not the rest
        self._rest: Buffers = []  # what `write_now` has left over, which comes first
        self.offer_first = self._inbox.offer_first
        self.read: Callable[[], Awaitable[Any]] = self._inbox.get
        self.write: Callable[[Any], Awaitable[None]] = self._write

    def broken(self, error: Exception) -> BrokenStreamError:
        return error if isinstance(error, BrokenStreamError) else BrokenStreamError(str(error))

    async def close(self) -> None:
        self.discard()

    def discard(self) -> None:
        """Ends the stream, and drops the received messages that were not read."""
        self.end(EndedStreamError("this end closed the data stream"))
        self._inbox.close()

    def end(self, error: Exception | None) -> None:
        """Ends the stream.

        Args:
          error: what reading and writing raises from now on; None for the end of the stream.
        """
        if self._inbox.is_over:
            return
        if self._is_reading:
            self._loop.remove_reader(self._fd)
        if self._writer is not None:
            self._loop.remove_writer(self._fd)
        self._connection.close()
        self.segments.close()
        self._inbox.end(error)
        self._on_writable()

    def _read_on(self) -> None:
        """Starts to read the socket, because a task waits for a message."""
        if not self._is_reading:
            self._is_reading = True
            self._loop.add_reader(self._fd, self._on_readable)
            self._read_buffered()

    def _read_buffered(self) -> None:
        """Schedules a read of bytes that the connection has buffered, which no poll shows."""
        if self._connection.has_buffered:
            self._loop.call_soon(self._on_readable)

    def _on_readable(self) -> None:
        if not self._is_reading or self._inbox.is_over:  # since `_read_buffered`
            return
        try:
            is_open = self._receive()
        except OSError as error:
            self.end(BrokenStreamError(f"the data stream broke: {error}"))
            return
        except OpError as error:  # a message is malformed
            self.end(error)
            return
        if not is_open:
            self.end(None)
        elif self._is_full():
            self._is_reading = False
            self._loop.remove_reader(self._fd)
        else:
            self._read_buffered()

    def _is_full(self) -> bool:
        n_queued = len(self._inbox)
        return n_queued > _MAX_QUEUED or (n_queued > 0 and self._inbox.n_bytes > _MAX_QUEUED_BYTES)

    def _receive(self) -> bool:
        """Receives what has arrived, with the available rest of a large frame.

        The kernel gives some 32 KiB at once while the other end still sends; a pass of the event
        loop for each of these takes longer than to copy them.

        Returns:
          Whether the stream goes on.
        """
        while True:
            buffer = self.parser.buffer()
            try:
                n_bytes = self._connection.receive_into(buffer, self.segments.add_descriptors)
            except (BlockingIOError, InterruptedError):
                return True
            if not n_bytes:
                return False
            for message in self.parser.received(n_bytes):
                self._inbox.put(message)
            if not self.parser.is_mid_payload:
                return True

    def write_now(self, frame: bytes) -> bool | None:
        """Sends a small frame, prefixed with its length, if the kernel accepts it at once.

        Use it between two calls of `write`. What the kernel leaves of the frame is sent in front of
        the next one, or by a `write` of no frame.

        Returns:
          Whether the kernel took all of it; None if nothing was done, and `write` finds the reason.
        """
        connection = self._connection
        if (
            self._inbox.is_over
            or self._is_mid_frame
            or self.segments.has_more
            or connection.has_unsent
        ):
            return None
        try:
            n_sent = connection.send([frame])
        except OSError:
            return None
        if n_sent < len(frame):
            self._rest, self._is_mid_frame = [memoryview(frame)[n_sent:]], True
        return not (self._is_mid_frame or connection.has_unsent)

    async def _write(self, frame: Buffers) -> None:
        """Sends a frame; returns when the kernel has accepted all of it."""
        if not (frame or self._rest or self._connection.has_unsent):
            await asyncio.sleep(0)  # others may run while a large message is copied
            return
        rest, self._rest = self._rest, []
        if frame:
            rest = [*rest, *delimited(frame)]
        n_sent = 0
        while rest or self._connection.has_unsent:
            if self._inbox.is_over:
                # The other end ignores a frame that is not complete, and so never acts on it.
                raise EndedStreamError(_end_text(self._inbox.error))
            try:
                if not self._is_mid_frame and not self.segments.send_pending(self._connection):
                    raise BlockingIOError
                n_sent = self._connection.send(rest)
            except (BlockingIOError, InterruptedError):
                await self._writable()
                continue
            except OSError as error:
                broken = EndedStreamError(f"the data stream broke: {error}")
                self.end(broken)
                raise broken from error
            rest = unsent(rest, n_sent)
            self._is_mid_frame = bool(rest)

    def _wake(self) -> None:
        """Schedules the sending of pending frames about segments; thread-safe."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._send_segment_frames)

    def _send_segment_frames(self) -> None:
        if self._inbox.is_over or self._is_mid_frame:
            return  # the next frame brings it
        with suppress(OSError):  # the task that reads finds the reason
            self.segments.send_pending(self._connection)

    async def _writable(self) -> None:
        self._writer = self._loop.create_future()
        self._loop.add_writer(self._fd, self._on_writable)
        try:
            await self._writer
        finally:
            if not self._inbox.is_over:
                self._loop.remove_writer(self._fd)
            self._writer = None

    def _on_writable(self) -> None:
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)


def unsent(buffers: Buffers, n_bytes: int) -> Buffers:
    """Returns the rest of buffers of which `n_bytes` were sent."""
    for i, buffer in enumerate(buffers):
        if n_bytes < len(buffer):
            return [memoryview(buffer)[n_bytes:], *buffers[i + 1 :]]
        n_bytes -= len(buffer)
    return []


def _end_text(end: Exception | None) -> str:
    return "the other end closed the data stream" if end is None else str(end)


class PartsFraming:
    """The framing of a data stream, which writes lists of buffers and parses what it reads itself.

    Args:
      stream: the stream.
    """

    def __init__(self, stream: SocketStream) -> None:
        self._parser = stream.parser
        self._encode = stream.segments.encode
        self._write_frame = stream.write_now
        self.offer_first = stream.offer_first
        self._discard = stream.discard

    def frames(
        self, message_id: int, control: bytes, tensors: Sequence[SentArray]
    ) -> Iterator[Buffers]:
        return frames_of(self._encode, message_id, control, tensors)

    def write_now(
        self, message_id: int, control: bytes, tensors: Sequence[SentArray]
    ) -> bool | None:
        payload = small_payload(tensors)
        if payload is None or len(control) > SMALL_BYTES:
            return None
        return self._write_frame(delimited_message(message_id, control, payload))

    @property
    def n_received(self) -> int:
        return self._parser.n_received

    def feed(self, read: Message) -> Message:
        return read

    def watch_long(self, on_long: Callable[[Message], object]) -> None:
        self._parser.assembler.on_long = on_long

    def close(self) -> None:
        self._discard()
        self._parser.close()

    @staticmethod
    def is_sign_of_life(frame: Buffers) -> bool:
        # Socket buffers of the kernel are smaller.
        return sum(map(len, frame)) >= CHUNK_BYTES


class PairedStream:
    """A data stream beside the stream of its handshake; see `protocol.transport.FrameStream`.

    It ends when either of its streams ends. Nothing more may come over the lifeline: messages never
    change their stream in mid-session.

    Args:
      data: the data stream.
      lifeline: the stream of the handshake, over which nothing is sent any more.
      reading: a read of the lifeline that is pending, if there is one.
    """

    def __init__(
        self, data: SocketStream, lifeline: FrameStream, reading: asyncio.Future[Any] | None = None
    ) -> None:
        self._data = data
        self.kind = data.kind
        self._lifeline = lifeline
        self.eof, self.errors = data.eof, data.errors
        self.caller_names, self.machine = lifeline.caller_names, lifeline.machine
        self.read: Callable[[], Awaitable[Any]] = data.read
        self.write: Callable[[Any], Awaitable[None]] = data.write
        self.framing = PartsFraming(data)
        self._reading = asyncio.ensure_future(lifeline.read()) if reading is None else reading
        self._reading.add_done_callback(self._on_lifeline)

    def broken(self, error: Exception) -> BrokenStreamError:
        return self._data.broken(error)

    def offer(self) -> None:
        """Returns None: a data stream has no other one beside it."""

    async def attach(self, offer: DataOffer | None) -> None:
        """Does nothing: a data stream has no other one beside it."""

    def end(self) -> None:
        """Ends the data stream; the lifeline goes on."""
        self._data.discard()
        self._reading.cancel()

    async def close(self) -> None:
        self.end()
        await self._lifeline.close()

    def _on_lifeline(self, reading: asyncio.Future[Any]) -> None:
        """Ends the data stream because its lifeline has ended or sent a frame."""
        error = None if reading.cancelled() else reading.exception()
        if reading.cancelled():
            self._data.end(EndedStreamError("the stream of the handshake was cancelled"))
        elif isinstance(error, self._lifeline.errors):
            self._data.end(self._lifeline.broken(error))
        elif error is None and reading.result() is self._lifeline.eof:
            self._data.end(None)
        else:
            reason = "a frame came beside the data stream" if error is None else repr(error)
            self._data.end(BrokenStreamError(reason))
