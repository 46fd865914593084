"""`Framing`: encodes messages for a stream, and decodes what is read from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from jflow.base.values import SentArray
from jflow.net.protocol.codec import frames_of
from jflow.net.protocol.frame import LARGE_BYTES, Assembler, Message, encode


class Framing(Protocol):
    """The framing of one end of a stream.

    Attributes:
      n_received: a number that grows when something is received.
      write_now: writes a message as `frames` would, without waiting; returns whether all of it has
        left, and None if nothing was done. What has not left goes with the next frame, or with one
        that is empty. None if the stream cannot.
    """

    @property
    def n_received(self) -> int: ...

    @property
    def write_now(self) -> Callable[[int, bytes, Sequence[SentArray]], bool | None] | None: ...

    def frames(
        self, message_id: int, control: bytes, tensors: Sequence[SentArray]
    ) -> Iterator[Any]:
        """Encodes a message as the frames that the stream writes.

        Raises:
          ResourceExhaustedError: if it is too large.
        """

    def feed(self, read: Any) -> Message | None:
        """Adds what the stream has read; returns the message that it completes, or None.

        Raises:
          OpError: if it is malformed, or the message too large.
        """

    def offer_first(self, first: Callable[[Message], object | None]) -> None:
        """Sets the function that is offered each arriving message while a task waits to read.

        It is called on the event loop outside of tasks. What it returns is read in place of the
        message; None if it has taken it. A transport need not offer anything.
        """

    def watch_long(self, on_long: Callable[[Message], object]) -> None:
        """Sets the function that is called with long messages as they begin to arrive.

        Their payload is not there yet. It may raise what `feed` raises.
        """

    def close(self) -> None:
        """Stops reading the stream, and frees the messages that were not read."""

    def is_sign_of_life(self, frame: Any) -> bool:
        """Whether a written frame is so large that the other end must be reading."""


class ByteFraming:
    """Framing of a stream that delimits frames itself: each frame is one bytes object."""

    write_now = None

    def __init__(self) -> None:
        self._assembler = Assembler()
        self.n_received = 0

    def frames(
        self, message_id: int, control: bytes, tensors: Sequence[SentArray]
    ) -> Iterator[Any]:
        return frames_of(encode, message_id, control, tensors)

    def feed(self, read: bytes) -> Message | None:
        self.n_received += 1
        return self._assembler.feed(read)

    def watch_long(self, on_long: Callable[[Message], object]) -> None:
        self._assembler.on_long = on_long

    def close(self) -> None:
        self._assembler.close()

    def offer_first(self, first: Callable[[Message], object | None]) -> None:
        """Does nothing: the stream has tasks of its own."""

    def is_sign_of_life(self, frame: bytes) -> bool:
        return len(frame) >= LARGE_BYTES
