"""How messages become what a stream writes, and what it reads becomes messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from jflow.protocol.frame import (
    CHUNK_BYTES,
    LARGE_BYTES,
    Assembler,
    Buffers,
    Encoder,
    Message,
    encode,
    encode_parts,
)
from jflow.protocol.parser import Parser


class Framing(Protocol):
    """The framing of one end of a stream.

    Attributes:
      encode: makes what the stream writes.
      n_received: a number that grows when something is received.
      has_unfinished: whether a part of a message has come, and not the rest.
      write_now: writes a small frame, which has its length in front, without waiting; returns
        whether all of it has left, and None if nothing was done. What has not left goes with the
        next frame, or with one that is empty. None if the stream cannot.
    """

    @property
    def encode(self) -> Encoder[Any]: ...

    @property
    def n_received(self) -> int: ...

    @property
    def has_unfinished(self) -> bool: ...

    @property
    def write_now(self) -> Callable[[bytes], bool | None] | None: ...

    def feed(self, read: Any) -> Message | None:
        """Takes what the stream has read; returns the message that it completes.

        Raises:
          OpError: if it is malformed, or the message too large.
        """

    def watch_long(self, begun: Callable[[Message], object]) -> None:
        """Sets what is called with messages that have begun and take long to come.

        Their payload is not there yet. It may raise what `feed` raises.
        """

    def is_sign_of_life(self, frame: Any) -> bool:
        """Whether the other end must have read something for the stream to take this frame."""


class ByteFraming:
    """Each frame is one piece of bytes, which the stream delimits."""

    encode: Encoder[Any] = staticmethod(encode)
    write_now = None

    def __init__(self) -> None:
        self._assembler = Assembler()
        self.n_received = 0

    @property
    def has_unfinished(self) -> bool:
        return self._assembler.has_unfinished

    def feed(self, read: bytes) -> Message | None:
        self.n_received += 1
        return self._assembler.feed(read)

    def watch_long(self, begun: Callable[[Message], object]) -> None:
        self._assembler.on_long = begun

    def is_sign_of_life(self, frame: bytes) -> bool:
        return len(frame) >= LARGE_BYTES


class PartsFraming:
    """A frame is written as its buffers; what is read are messages, because the stream parses.

    Args:
      parser: that of the stream.
      encode: makes the frames.
      write_now: see `Framing`.
    """

    def __init__(
        self,
        parser: Parser,
        encode: Encoder[Any] = encode_parts,
        write_now: Callable[[bytes], bool | None] | None = None,
    ) -> None:
        self._parser = parser
        self.encode = encode
        self.write_now = write_now

    @property
    def n_received(self) -> int:
        return self._parser.n_received

    @property
    def has_unfinished(self) -> bool:
        return self._parser.has_unfinished

    def feed(self, read: Message) -> Message:
        return read

    def watch_long(self, begun: Callable[[Message], object]) -> None:
        self._parser.assembler.on_long = begun

    def is_sign_of_life(self, frame: Buffers) -> bool:
        # Socket buffers of the kernel are smaller.
        return sum(map(len, frame)) >= CHUNK_BYTES
