"""`Inbox`: the queue of messages received on a stream and not yet read by its task."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from jflow.net.protocol.frame import Message


class Inbox:
    """The messages of one end of a stream, for the task that reads it. On its event loop only.

    Args:
      on_wait: called when that task has to wait.

    Attributes:
      n_bytes: the size of the messages that it has kept since it was last empty.
      is_over: whether nothing more comes.
      error: raised after the last message; None for the end of the stream.
    """

    def __init__(self, on_wait: Callable[[], object] = lambda: None) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_wait = on_wait
        self._messages: deque[Any] = deque()
        self._offer: Callable[[Message], object | None] | None = None
        self._reader: asyncio.Future[None] | None = None
        self.n_bytes = 0
        self.is_over = False
        self.error: Exception | None = None

    def __len__(self) -> int:
        return len(self._messages)

    def offer_first(self, first: Callable[[Message], object | None]) -> None:
        """See `protocol.framing.Framing`."""
        self._offer = first

    def put(self, message: Message) -> None:
        """Adds a message; if the reader waits, offers it first and keeps only what that leaves."""
        rest: object | None = message
        reader = self._reader
        is_awaited = reader is not None and not reader.done() and not self._messages
        if is_awaited and self._offer is not None:
            rest = self._offer(message)
        if rest is not None:
            if not self._messages:
                self.n_bytes = 0
            self.n_bytes += len(message.payload)
            self._messages.append(rest)
            self._wake()

    async def get(self) -> Any:
        """Waits for the next message, or what an offer left of it; None at the stream's end."""
        while not self._messages:
            if self.is_over:
                if self.error is None:
                    return None
                raise self.error
            self._on_wait()
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        return self._messages.popleft()

    def end(self, error: Exception | None) -> None:
        """Marks the end of the stream; messages already received can still be read."""
        self.is_over, self.error = True, error
        self._offer = None
        self._wake()

    def close(self) -> None:
        """Drops the messages that were not read."""
        self._messages.clear()
        self._offer = None

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
