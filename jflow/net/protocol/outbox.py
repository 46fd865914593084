"""`Outbox`: the queue of messages that a client sends, read as one sequence of frames."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from typing import Generic

from jflow.net.protocol.frame import F


class Outbox(Generic[F]):
    """A queue of messages: any thread adds them, and one thread at a time reads their frames.

    Messages alternate, so that small ones overtake large ones.
    """

    def __init__(self) -> None:
        self._messages: SimpleQueue[tuple[int, Iterator[F]] | None] = SimpleQueue()
        self._sending: OrderedDict[int, Iterator[F]] = OrderedDict()

    def put(self, key: int, message: Iterator[F]) -> None:
        """Adds the frames of a message; messages of one key are sent in order.

        A finalizer may call it, in the middle of another call of it.
        """
        self._messages.put((key, message))

    def close(self) -> None:
        """Ends the sequence of frames."""
        self._messages.put(None)

    @property
    def is_empty(self) -> bool:
        """Whether there is no frame to send; any thread may ask."""
        return not self._sending and self._messages.empty()

    def frames(self) -> Iterator[F]:
        """Yields the frames to send; blocks while there are none."""
        while True:
            if not self._sending or not self._messages.empty():
                item = self._messages.get()
                if item is None:
                    return
                self._add(*item)
            frame = self._next()
            if frame is not None:
                yield frame

    def next_frame(self) -> F | None:
        """Returns the next frame to send; None if there is none now."""
        while True:
            try:
                item = self._messages.get_nowait()
            except Empty:
                if not self._sending:
                    return None
            else:
                if item is not None:
                    self._add(*item)
            frame = self._next() if self._sending else None
            if frame is not None:
                return frame

    def _add(self, key: int, message: Iterator[F]) -> None:
        self._sending[key] = itertools.chain(self._sending.get(key, ()), message)

    def _next(self) -> F | None:
        """Returns the next frame, round-robin over the messages; None if that message has ended."""
        key, message = self._sending.popitem(last=False)
        frame = next(message, None)
        if frame is not None:
            self._sending[key] = message
        return frame
