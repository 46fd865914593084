"""Calls of a client's functions by the server, over the stream that the client opened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import grpc

from jflow.errors import InvalidArgumentError, OpError, UnknownError
from jflow.wire.codec import error_of, error_to_status
from jflow.wire.eager import begin
from jflow.wire.frame import Array
from jflow.wire.services import Client
from jflow.wire.stream import FrameStream
from jflow.wire.v1 import service_pb2 as pb

Function = Callable[[Sequence[Array]], Sequence[Array]]
"""A function of the client that a step calls."""


class ClientFunctions:
    """The functions of one client, as its server calls them. On the event loop only."""

    def __init__(self, stream: FrameStream) -> None:
        self._stream = stream
        self._asked: dict[tuple[int, int], asyncio.Future[Sequence[Array]]] = {}

    def of_call(self, call: int) -> Client:
        """How to call the functions of the step that runs as the client's call of that id."""
        return partial(self._ask, call)

    async def _ask(
        self,
        call: int,
        number: int,
        operands: Sequence[Array],
        answer: asyncio.Future[Sequence[Array]],
    ) -> None:
        key = call, number
        if key in self._asked:
            raise InvalidArgumentError(f"a step calls back to its function {number} twice")
        self._asked[key] = answer
        answer.add_done_callback(lambda _: self._asked.pop(key, None))
        message = pb.Envelope(id=call, call_back=pb.CallBack(number=number))
        # Once begun it is sent to its end: a write that gRPC sees cancelled ends the stream.
        await asyncio.shield(begin(self._send(message, operands)))

    async def _send(self, message: pb.Envelope, operands: Sequence[Array]) -> None:
        # If the client is gone, so is its call, which is cancelled with the stream.
        with suppress(grpc.RpcError, asyncio.InvalidStateError):
            await self._stream.send(message, operands)

    def answered(self, message: pb.Envelope, tensors: Sequence[Array]) -> None:
        """Takes an answer; one to a step that has ended meanwhile is dropped."""
        key = message.called_back.call, message.called_back.number
        answer = self._asked.get(key)
        if answer is None or answer.done():
            return
        if message.status.code:
            answer.set_exception(error_of(message.status))
        else:
            answer.set_result(tensors)


class Callbacks:
    """The callbacks of one running step, as its client answers them. Any thread may call.

    Args:
      functions: the functions of the step by number.
      send: sends a message with tensors under the id of the step's call.

    Attributes:
      error: what a function raised; the step fails because of it, and no other one is called.
    """

    def __init__(
        self,
        functions: Sequence[Function],
        send: Callable[[int, pb.Envelope, Sequence[Array]], None],
    ) -> None:
        self._functions = functions
        self._send = send
        self.error: Exception | None = None

    def answer(self, message: pb.Envelope, operands: Sequence[Array]) -> None:
        """Calls the function that a message asks for, and sends what it gives.

        Raises:
          BaseException: what it raises that is no Exception, such as KeyboardInterrupt.
        """
        call, number = message.id, message.call_back.number
        reply = pb.Envelope(called_back=pb.CalledBack(call=call, number=number))
        results: Sequence[Array] = ()
        if self.error is not None:
            return
        try:
            if number >= len(self._functions):
                raise InvalidArgumentError(f"the step has no callback {number}")
            results = self._functions[number](operands)
        except Exception as error:
            self.error = error
            reply.status.CopyFrom(error_to_status(_told(error), ""))
        self._send(call, reply, results)


def _told(error: Exception) -> OpError:
    """What other tasks are told of an exception that a function raised."""
    notes: list[Any] = getattr(error, "__notes__", [])
    words = " ".join(map(str, (f"{type(error).__name__}: {error}", *notes)))
    return UnknownError(f"a callback of the client failed: {words}")
