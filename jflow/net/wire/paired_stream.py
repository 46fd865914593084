"""`PairedStream`: a data stream that lives as long as the stream of its handshake."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from jflow.net.protocol.framing import PartsFraming
from jflow.net.protocol.offers import DataOffer
from jflow.net.protocol.transport import BrokenStreamError, EndedStreamError, FrameStream
from jflow.net.wire.socket_stream import SocketStream


class PairedStream:
    """Carries frames over a data stream; see `protocol.transport.FrameStream`.

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
        self.framing = PartsFraming(
            data.parser, data.segments.encode, data.write_now, data.offer_first, data.discard
        )
        self._reading = asyncio.ensure_future(lifeline.read()) if reading is None else reading
        self._reading.add_done_callback(self._on_lifeline)

    def broken(self, error: Exception) -> BrokenStreamError:
        return self._data.broken(error)

    def offer(self) -> None:
        """A data stream has no other one beside it."""

    async def attach(self, offer: DataOffer | None) -> None:
        """A data stream has no other one beside it."""

    def end(self) -> None:
        """Ends the data stream; the lifeline goes on."""
        self._data.discard()
        self._reading.cancel()

    async def close(self) -> None:
        self.end()
        await self._lifeline.close()

    def _on_lifeline(self, reading: asyncio.Future[Any]) -> None:
        """Takes the end of the lifeline."""
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
