"""`Credits`: limits the memory of replies that a client has not read.

The calls of a stream run at the same time, and each may end with a large reply. What has ended is
in memory until the client has read it. So a step that cannot wait for other steps begins only while
there is room for its reply. Its size is that of the step's last reply, since most steps give as
much each time; before the first one, what is known of the results of its programs.

A step with large feeds that waits for credits keeps the stream from being read, because the feeds
of all that follow would be in memory. It waits for nothing but the client, which has to read.

Steps that may wait for others, such as one that takes an element from a queue, are not kept from
beginning: another step of the same client, behind them in the stream, may be what they wait for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from jflow.base.values import SentArray
from jflow.net.protocol import settings

MAX_UNREAD_BYTES = 16 << 20
"""How much the unread replies of a stream, and those being made, may take; with what gRPC buffers
and the calls themselves, a client that does not read costs less than 32 MB. One reply may be
larger: it is sent from the memory of its values, in chunks, as the client reads."""

UNKNOWN_BYTES = 4 << 20
"""The expected size of a step's first reply, if nothing else is known of it."""

SMALL_BYTES = 64 << 10
"""Replies up to this size take no credits: messages of calls take as much. See `Unsent`."""

MAX_UNSENT_BYTES = 4 << 20
"""How much small replies may take that the transport has not accepted, before no more calls are
read: a caller that does not read its answers gets no new ones."""

MESSAGE_BYTES = 1024
"""The size of a reply without its values."""


def total_bytes(values: Sequence[SentArray]) -> int:
    """Returns the total size of values in bytes; a plain loop, because each call runs it."""
    total = 0
    for value in values:
        total += value.nbytes
    return total


@dataclass
class ReplySize:
    """The size of the last reply of a step, in bytes."""

    n_bytes: int = UNKNOWN_BYTES


class Credits:
    """The credits of one stream. Use it on the event loop only."""

    def __init__(self) -> None:
        self._n_taken = 0
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def acquire(self, n_bytes: int) -> None:
        """Acquires credits for a reply; waits, in order, until enough are free, or all of them."""
        if not self._waiters and self._has(n_bytes):
            self._n_taken += n_bytes
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((n_bytes, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():  # it had been given them
                self.give(n_bytes)
            raise

    def give(self, n_bytes: int) -> None:
        """Releases credits; a negative `n_bytes` acquires more without waiting."""
        self._n_taken -= n_bytes
        while self._waiters:
            n_wanted, waiter = self._waiters[0]
            if not waiter.done():
                if not self._has(n_wanted):
                    return
                self._n_taken += n_wanted
                waiter.set_result(None)
            self._waiters.popleft()

    def _has(self, n_bytes: int) -> bool:
        return self._n_taken <= 0 or self._n_taken + n_bytes <= MAX_UNREAD_BYTES


class Reservation:
    """The credits of one reply; `resize(0)` releases them.

    Args:
      of_stream: the credits of the stream.
      n_bytes: the expected size of the reply.
    """

    def __init__(self, of_stream: Credits, n_bytes: int) -> None:
        self._credits = of_stream
        self._expected = n_bytes
        self._n_bytes = 0

    async def acquire(self) -> None:
        """Acquires the credits, unless it has them already."""
        if self._n_bytes:
            return
        await self._credits.acquire(self._expected)
        self._n_bytes = self._expected

    def resize(self, n_bytes: int) -> None:
        """Sets the credits to the actual size of the reply, or to 0 once it was sent."""
        self._credits.give(self._n_bytes - n_bytes)
        self._n_bytes = n_bytes


class Unsent:
    """Counts the bytes of a stream's small replies that are being sent, and detects a stall.

    Args:
      n_taken: gives a number that grows when a part of a large reply is taken.
      stalled: called once nothing of what is sent was taken for once to twice `UNREAD_S`.

    Attributes:
      n_bytes: how much that is, in bytes; above `MAX_UNSENT_BYTES` nothing is read.
    """

    def __init__(
        self,
        n_taken: Callable[[], int] = lambda: 0,
        stalled: Callable[[], object] = lambda: None,
    ) -> None:
        self.n_bytes = 0
        self._n_taken = n_taken
        self._stalled = stalled
        self._n_sending = self._n_sent = 0
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None

    @contextmanager
    def sending(self, values: Sequence[SentArray]) -> Iterator[None]:
        """Context manager that counts a reply while it is being sent."""
        n_bytes = total_bytes(values)
        # Larger ones are sent from the memory of their values, and credits limit them.
        n_counted = MESSAGE_BYTES + (n_bytes if n_bytes <= SMALL_BYTES else 0)
        self.n_bytes += n_counted
        self._n_sending += 1
        if self._timer is None:
            self._watch()
        try:
            yield
        finally:
            self._n_sending -= 1
            self._n_sent += 1
            self.n_bytes -= n_counted
            if self._waiter is not None and self.n_bytes <= MAX_UNSENT_BYTES:
                if not self._waiter.done():
                    self._waiter.set_result(None)
                self._waiter = None

    async def below_limit(self) -> None:
        """Waits until the replies being sent are within the limit. One caller at a time."""
        while self.n_bytes > MAX_UNSENT_BYTES:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def close(self) -> None:
        """Stops watching for a stall."""
        if self._timer is not None:
            self._timer.cancel()

    def _watch(self) -> None:
        """Starts a timer that checks whether the caller has taken anything meanwhile."""
        n_seen = self._n_sent + self._n_taken()
        later = asyncio.get_running_loop().call_later
        self._timer = later(settings.UNREAD_S, self._look, n_seen)

    def _look(self, n_seen: int) -> None:
        self._timer = None
        if not self._n_sending:
            return
        if self._n_sent + self._n_taken() == n_seen:
            self._stalled()
        else:
            self._watch()
