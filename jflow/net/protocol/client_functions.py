"""The server's side of callbacks: calls of a client's functions over the client's stream."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from jflow.base.drivers.coroutines import begin, retrieve
from jflow.base.values import Array
from jflow.errors import InvalidArgumentError
from jflow.net.protocol.codec import error_of
from jflow.net.protocol.records import Client
from jflow.net.protocol.stream import MessageStream
from jflow.net.protocol.transport import BrokenStreamError
from jflow.net.protocol.v1 import service_pb2 as pb


class ClientFunctions:
    """The functions of one client, as its server calls them; use it on the event loop only.

    A pair of a call and a function number identifies a request, because a step calls each of its
    functions at most once at a time.
    """

    def __init__(self, stream: MessageStream) -> None:
        self._stream = stream
        self._pending: dict[tuple[int, int], asyncio.Future[Sequence[Array]]] = {}

    def of_call(self, call: int) -> Client:
        """Returns a function that calls the callbacks of the step that a client's call runs."""
        return partial(self._request, call)

    async def _request(
        self,
        call: int,
        number: int,
        operands: Sequence[Array],
        results: asyncio.Future[Sequence[Array]],
    ) -> None:
        key = call, number
        if key in self._pending:
            raise InvalidArgumentError(
                f"a step calls its function {number} again before the client has answered"
            )
        self._pending[key] = results
        results.add_done_callback(lambda _: self._pending.pop(key, None))
        message = pb.Envelope(id=call, call_back=pb.CallBack(number=number))
        sending = begin(self._send(message, operands))
        sending.add_done_callback(retrieve)
        # Shielded: a message that is sent in part would break the stream.
        await asyncio.shield(sending)

    async def _send(self, message: pb.Envelope, operands: Sequence[Array]) -> None:
        # If the client is gone, its call is cancelled with the stream.
        with suppress(BrokenStreamError):
            await self._stream.send(message, operands)

    def answered(self, message: pb.Envelope, tensors: Sequence[Array]) -> None:
        """Receives the results of a callback; ignores them if the step has ended."""
        key = message.called_back.call, message.called_back.number
        results = self._pending.get(key)
        if results is None or results.done():
            return
        if message.status.code:
            results.set_exception(error_of(message.status))
        else:
            results.set_result(tensors)
