"""Calls of a client's functions by its server, over the stream that the client opened."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from jflow.errors import InvalidArgumentError
from jflow.protocol.codec import error_of
from jflow.protocol.coroutines import begin
from jflow.protocol.records import Client
from jflow.protocol.stream import MessageStream
from jflow.protocol.transport import BrokenStreamError
from jflow.protocol.v1 import service_pb2 as pb
from jflow.values import Array


class ClientFunctions:
    """The functions of one client, as its server calls them. On the event loop only."""

    def __init__(self, stream: MessageStream) -> None:
        self._stream = stream
        self._pending: dict[tuple[int, int], asyncio.Future[Sequence[Array]]] = {}

    def of_call(self, call: int) -> Client:
        """How to call the functions of the step that runs as the client's call of that id."""
        return partial(self._request, call)

    async def _request(
        self,
        call: int,
        number: int,
        operands: Sequence[Array],
        answer: asyncio.Future[Sequence[Array]],
    ) -> None:
        key = call, number
        if key in self._pending:
            raise InvalidArgumentError(f"a step calls back to its function {number} twice")
        self._pending[key] = answer
        answer.add_done_callback(lambda _: self._pending.pop(key, None))
        message = pb.Envelope(id=call, call_back=pb.CallBack(number=number))
        # Once begun it is sent to its end: half a message would be the end of the stream.
        await asyncio.shield(begin(self._send(message, operands)))

    async def _send(self, message: pb.Envelope, operands: Sequence[Array]) -> None:
        # If the client is gone, so is its call, which is cancelled with the stream.
        with suppress(BrokenStreamError):
            await self._stream.send(message, operands)

    def answered(self, message: pb.Envelope, tensors: Sequence[Array]) -> None:
        """Takes an answer; one to a step that has ended meanwhile is dropped."""
        key = message.called_back.call, message.called_back.number
        answer = self._pending.get(key)
        if answer is None or answer.done():
            return
        if message.status.code:
            answer.set_exception(error_of(message.status))
        else:
            answer.set_result(tensors)
