"""`Parser`: decodes messages from a stream of bytes; no I/O.

A byte stream has each frame behind its length, as u32. What is received goes into a scratch buffer,
from which small frames are taken. A frame that is larger than the scratch buffer is received where
it belongs: its head first, then its payload in the memory of its message, without a copy.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import groupby

import numpy as np

from jflow.errors import InvalidArgumentError, ResourceExhaustedError
from jflow.net.protocol.frame import (
    FIRST,
    HEADER_BYTES,
    IN_SEGMENT,
    MAX_FRAME_BYTES,
    NOTHING,
    SMALL_BYTES,
    Assembler,
    Buffers,
    ByteBuffer,
    Message,
    head_bytes,
    message_id_of,
    new_tuple,
)
from jflow.net.protocol.segments import SegmentFrames

SCRATCH_BYTES = 64 << 10
"""The size of the scratch buffer: it holds what the kernel gives at once of small messages."""

_LENGTH = struct.Struct("<I")
_WHOLE = struct.Struct("<IBQIQ")
"""The length of a frame and its header."""


def delimited_message(message_id: int, control: bytes, payload: bytes) -> bytes:
    """Encodes a small message for a byte stream: its length, then its only frame.

    Args:
      message_id: as for `frame.encode_parts`.
      control: its control part.
      payload: its tensors with padding, at most `SMALL_BYTES`.
    """
    size = HEADER_BYTES + len(control) + len(payload)
    return b"".join(
        (_WHOLE.pack(size, FIRST, message_id, len(control), len(payload)), control, payload)
    )


def delimited(frame: Sequence[ByteBuffer]) -> Buffers:
    """Prefixes a frame with its length for a byte stream, and joins small buffers."""
    size = sum(map(len, frame))
    parts = [_LENGTH.pack(size), *frame]
    if size < SCRATCH_BYTES:
        return [b"".join(parts)]
    groups = groupby(parts, lambda part: len(part) <= SMALL_BYTES)
    return [one for is_small, some in groups for one in ([b"".join(some)] if is_small else some)]


class Parser:
    """Parses messages from the bytes of one stream.

    Receive into `buffer()`, then call `received`. After an error the stream cannot be used.

    Args:
      assembler: assembles the messages.
      segments: takes the frames of segments; if None, they are malformed.

    Attributes:
      assembler: the same.
      n_received: how many times something was received.
    """

    def __init__(
        self, assembler: Assembler | None = None, segments: SegmentFrames | None = None
    ) -> None:
        self.n_received = 0
        self.assembler = Assembler() if assembler is None else assembler
        self._segments = segments
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._start = self._end = 0
        # What is missing of the payload of a large frame, and the message that the frame is of.
        self._missing: memoryview | None = None
        self._message_id = 0

    @property
    def is_mid_payload(self) -> bool:
        """Whether `buffer` is the rest of the payload of a large frame."""
        return self._missing is not None

    def buffer(self) -> memoryview:
        """Returns the buffer for the bytes that come next; at least one byte long."""
        return self._scratch[self._end :] if self._missing is None else self._missing

    def received(self, n_bytes: int) -> list[Message]:
        """Parses the bytes that were put into `buffer()`; returns the messages that they complete.

        Raises:
          InvalidArgumentError: if a frame is malformed or out of order.
          ResourceExhaustedError: if a frame or a message would be too large.
        """
        self.n_received += 1
        if self._missing is None:
            self._end += n_bytes
            return self._parse()
        self._missing = self._missing[n_bytes:] if n_bytes < len(self._missing) else None
        message = self.assembler.end_frame(self._message_id) if self._missing is None else None
        return [] if message is None else [message]

    def close(self) -> None:
        """Frees the memory of incomplete messages. Nothing may be received afterwards."""
        self.assembler.close()
        self._missing = None

    def _parse(self) -> list[Message]:
        """Parses the complete frames in the scratch buffer; returns the messages they complete."""
        messages = [] if self.assembler.unfinished else self._take_small()
        if self._start == self._end:
            self._start = self._end = 0
            return messages
        while (n_needed := self._n_needed()) <= self._end - self._start:
            message = self._take(n_needed)
            if message is not None:
                messages.append(message)
        self._make_room(n_needed)
        return messages

    def _take_small(self) -> list[Message]:
        """Parses the leading small messages of one frame each; a fast path of `_take`."""
        messages: list[Message] = []
        scratch, start, end = self._scratch, self._start, self._end
        while end - start >= _WHOLE.size:
            size, kind, message_id, length, total = _WHOLE.unpack_from(scratch, start)
            after, payload_at = start + _LENGTH.size + size, start + _WHOLE.size + length
            if kind != FIRST or total > SMALL_BYTES or payload_at + total != after or after > end:
                break
            control = bytes(scratch[start + _WHOLE.size : payload_at])
            payload = NOTHING
            if total:
                payload = np.frombuffer(bytearray(scratch[payload_at:after]), np.uint8)
            messages.append(new_tuple(Message, (message_id, control, payload, False, None)))
            start = after
        self._start = start
        return messages

    def _n_needed(self) -> int:
        """Returns how many bytes the scratch buffer must hold before the next frame can be read."""
        n_bytes = self._end - self._start
        if n_bytes < _LENGTH.size:
            return _LENGTH.size
        size = self._frame_bytes()
        if _LENGTH.size + size <= SCRATCH_BYTES:
            return _LENGTH.size + size
        if n_bytes < _LENGTH.size + HEADER_BYTES:
            return _LENGTH.size + HEADER_BYTES
        return _LENGTH.size + head_bytes(self._scratch[self._start + _LENGTH.size :], size)

    def _frame_bytes(self) -> int:
        (size,) = _LENGTH.unpack_from(self._scratch, self._start)
        if size < HEADER_BYTES:
            raise InvalidArgumentError(f"malformed frame: {size} bytes are too few")
        if size > MAX_FRAME_BYTES:
            raise ResourceExhaustedError(
                f"a frame of {size} bytes exceeds the limit of {MAX_FRAME_BYTES}"
            )
        return int(size)

    def _take(self, n_bytes: int) -> Message | None:
        """Consumes `n_bytes`, a frame or the head of a large one; returns a completed message."""
        rest_bytes = _LENGTH.size + self._frame_bytes() - n_bytes
        frame = bytes(self._scratch[self._start + _LENGTH.size : self._start + n_bytes])
        self._start += n_bytes
        if not rest_bytes:
            if self._segments is not None and frame[0] >= IN_SEGMENT:
                return self._segments.receive(frame)
            return self.assembler.feed(frame)
        rest = self.assembler.begin_frame(frame, rest_bytes)
        received = self._scratch[self._start : min(self._start + rest_bytes, self._end)]
        rest[: len(received)] = received
        self._start += len(received)
        self._message_id = message_id_of(frame)
        if len(received) == rest_bytes:
            return self.assembler.end_frame(self._message_id)
        self._missing = rest[len(received) :]
        return None

    def _make_room(self, n_needed: int) -> None:
        """Makes the scratch buffer large enough for the bytes that are needed next."""
        if self._start == self._end:
            self._start = self._end = 0
        if self._start + n_needed <= len(self._scratch):
            return
        rest = self._scratch[self._start : self._end]
        if n_needed > len(self._scratch):
            self._scratch = memoryview(bytearray(n_needed))
        self._scratch[: len(rest)] = rest
        self._start, self._end = 0, len(rest)
