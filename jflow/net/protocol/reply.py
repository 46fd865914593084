"""`PendingReply`: the reply to one call of another task, and the wait for it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from jflow.base.drivers.coroutines import Waited
from jflow.errors import CancelledError, InternalError, OpError
from jflow.net.protocol import settings
from jflow.net.protocol.stream import Received


class PendingReply:
    """The reply to one call, and the wait for it. Use it on the event loop only.

    A wait that is cancelled leaves the reply that is on its way, as `asyncio.shield` would, but
    without the pass of the event loop that a shield adds to each reply.
    """

    __slots__ = ("_answer", "_arrival")

    def __init__(self) -> None:
        self._answer: Received | OpError | None = None
        self._arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(self, answer: Received | OpError) -> None:
        """Takes the reply, or the error in its place, unless there is one already."""
        if self._answer is None:
            self._answer = answer
            if not self._arrival.done():
                self._arrival.set_result(None)

    def sent(self, sending: asyncio.Future[None]) -> None:
        """The request was sent, or could not be."""
        error = None if sending.cancelled() else sending.exception()
        if isinstance(error, OpError):
            self.put(error)
        elif error is not None:
            self.put(InternalError(f"{type(error).__name__}: {error}"))

    async def wait(self) -> None:
        """Waits for the reply."""
        await self._arrival

    async def after_cancel(self) -> Received:
        """The reply to a call whose wait was cancelled, if it comes soon.

        The call may have been done before that was known, and the reply may hold an element that
        was taken from a queue, which must not be lost.

        Raises:
          asyncio.CancelledError: if the call was cancelled, or nothing comes.
          OpError: as `result`.
        """
        if self._answer is None:
            loop = asyncio.get_running_loop()
            self._arrival = arrival = loop.create_future()
            grace = loop.call_later(settings.GRACE_S, arrival.cancel)
            while not arrival.done():
                with suppress(asyncio.CancelledError):  # the call was cancelled once already
                    await asyncio.wait([arrival])
            grace.cancel()
        if self._answer is None:
            raise asyncio.CancelledError
        if isinstance(self._answer, CancelledError):
            waited = Waited(self._answer.message.partition("; ")[2], self._answer.op)
            raise asyncio.CancelledError(waited)
        return self.result()

    def result(self) -> Received:
        """The reply, which is there. Raises the error in its place."""
        assert self._answer is not None
        if isinstance(self._answer, OpError):
            raise self._answer
        return self._answer
