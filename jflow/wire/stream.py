"""One end of a stream of frames on an event loop, and the calls that go over it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any, Protocol

import grpc

from jflow.wire.codec import frames, open_message
from jflow.wire.frame import Array, Assembler
from jflow.wire.v1 import service_pb2 as pb

Received = tuple[pb.Envelope, list[Array]]


class _Call(Protocol):
    """What gRPC's two ends of a stream have in common."""

    async def read(self) -> Any: ...

    async def write(self, message: Any) -> None: ...


class FrameStream:
    """Sends and receives envelopes with tensors; messages may be sent at the same time."""

    def __init__(self, call: _Call) -> None:
        self._call = call
        self._assembler = Assembler()
        self._frame_ids = itertools.count(1)
        # gRPC allows one write at a time. Taken for each frame, so that small messages pass
        # between the chunks of large ones.
        self._writing = asyncio.Lock()
        self._is_over = False

    async def send(self, envelope: pb.Envelope, tensors: Sequence[Array] = ()) -> None:
        """Sends a message; returns when gRPC has taken it.

        Raises:
          ResourceExhaustedError: if the message is too large; nothing is sent then.
          asyncio.InvalidStateError: if the stream is over.
        """
        for frame in frames(next(self._frame_ids), envelope, tensors):
            async with self._writing:
                if self._is_over:
                    # gRPC would wait for ever for a reader that is gone.
                    raise asyncio.InvalidStateError("the stream is over")
                await self._call.write(frame)

    def end(self) -> None:
        """Nothing can be sent any more."""
        self._is_over = True

    async def receive(self) -> Received | None:
        """The next message, or None at the end of the stream; to be called by one at a time.

        Raises:
          OpError: if it is malformed or too large.
          grpc.RpcError: if the stream broke.
        """
        while (frame := await self._call.read()) is not grpc.aio.EOF:
            message = self._assembler.feed(frame)
            if message is not None:
                return open_message(message)
        return None
