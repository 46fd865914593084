"""`Outbox`: the messages that a client sends, as one sequence of frames."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator
from queue import SimpleQueue

from jflow.protocol.frame import LARGE_BYTES


class Outbox:
    """Takes messages from any thread; one thread reads their frames.

    Attributes:
      n_chunks: how many large frames have been sent.
    """

    def __init__(self) -> None:
        self.n_chunks = 0
        self._messages: SimpleQueue[tuple[int, Iterator[bytes]] | None] = SimpleQueue()

    def put(self, key: int, message: Iterator[bytes]) -> None:
        """Adds the frames of a message; messages of one key are sent in order."""
        self._messages.put((key, message))

    def close(self) -> None:
        """Ends the sequence."""
        self._messages.put(None)

    def frames(self) -> Iterator[bytes]:
        """The frames to send. Messages alternate, so that small ones overtake large ones."""
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
                self.n_chunks += len(frame) >= LARGE_BYTES
