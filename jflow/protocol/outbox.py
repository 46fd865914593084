"""The messages that a client has to send, as one sequence of frames."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator
from queue import SimpleQueue


class Outbox:
    """Takes messages on any thread; one thread reads their frames."""

    def __init__(self) -> None:
        self._messages: SimpleQueue[tuple[int, Iterator[bytes]] | None] = SimpleQueue()

    def put(self, key: int, message: Iterator[bytes]) -> None:
        """Adds the frames of a message; those of one key are sent in their order."""
        self._messages.put((key, message))

    def close(self) -> None:
        """Ends the sequence."""
        self._messages.put(None)

    def frames(self) -> Iterator[bytes]:
        """The frames to send; messages take turns, so that small ones pass large ones."""
        sending: OrderedDict[int, Iterator[bytes]] = OrderedDict()
        while True:
            if not sending or not self._messages.empty():
                item = self._messages.get()
                if item is None:
                    return
                key, message = item
                sending[key] = itertools.chain(sending.get(key, ()), message)
            key, message = sending.popitem(last=False)
            frame = next(message, None)
            if frame is not None:
                sending[key] = message
                yield frame
