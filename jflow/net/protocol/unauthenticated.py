"""`UnauthenticatedStreams`: how many streams are in the handshake at one time, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice

from jflow.errors import ResourceExhaustedError, UnauthenticatedError
from jflow.net.protocol import settings


class UnauthenticatedStreams:
    """The streams of a server whose callers have not proven themselves yet. On the event loop only.

    At most `MAX_UNPROVEN` of them are read, because each can make the server keep a frame; at most
    `MAX_WAITING` others wait, unread, in the order in which they came. Each has `HELLO_S` in all.
    For each that waits, the oldest of those that are read has `READ_S` only, so that silent ones
    do not keep out those that speak.
    """

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(settings.MAX_UNPROVEN)
        self._n_waiting = 0
        self._ends: dict[asyncio.Timeout, float] = {}

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Waits until a stream may be read, and ends what is done with it when its time is over.

        Raises:
          ResourceExhaustedError: if too many others wait, or for too long.
          UnauthenticatedError: if the handshake takes too long.
        """
        clock = asyncio.get_running_loop().time
        is_read = False
        try:
            async with asyncio.timeout(settings.HELLO_S) as limit:
                await self._wait()
                is_read = True
                self._ends[limit] = clock() + settings.READ_S
                self._shorten()
                try:
                    yield
                finally:
                    del self._ends[limit]
                    self._free.release()
        except TimeoutError:
            raise _late() if is_read else _crowded() from None

    async def _wait(self) -> None:
        if self._n_waiting >= settings.MAX_WAITING:
            raise _crowded()
        self._n_waiting += 1
        self._shorten()
        try:
            await self._free.acquire()
        finally:
            self._n_waiting -= 1

    def _shorten(self) -> None:
        """Ends early as many of those that are read longest as others wait."""
        if self._n_waiting and self._free.locked():
            for limit, end in islice(self._ends.items(), self._n_waiting):
                if not limit.expired() and end < (limit.when() or end):
                    limit.reschedule(end)


def _late() -> UnauthenticatedError:
    return UnauthenticatedError(
        f"the handshake was not complete within {settings.HELLO_S:g} s, "
        f"or {settings.READ_S:g} s while others waited"
    )


def _crowded() -> ResourceExhaustedError:
    return ResourceExhaustedError(
        f"more than {settings.MAX_UNPROVEN} other streams are in the handshake; try again later"
    )
