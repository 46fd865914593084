"""Frames: the encoding of a message and its tensors on a stream.

A message is a control part (a serialized protobuf) and the raw bytes of its tensors. A frame is

    kind u8 | message id u64 | control length u32 | payload length u64 | control | payload

The first frame of a message has the control part and as much of the payload as fits; further frames
carry the rest. So a large tensor neither passes through protobuf nor blocks small messages: frames
of different messages may alternate, while those of one message keep their order.

The receiver learns the total size first, checks it against its limit, and allocates once. Each
tensor starts at a multiple of 64 bytes, where JAX can use it without a copy; the memory of small
payloads, which are copied anyway, is not aligned.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np

from jflow.base.values import ALIGNMENT, Array
from jflow.errors import InvalidArgumentError, ResourceExhaustedError
from jflow.net.protocol.buffers import receive_buffer

ByteBuffer = bytes | memoryview
Buffers = list[ByteBuffer]
"""A frame as the buffers that make it up, one behind the other."""

F = TypeVar("F")
Encoder = Callable[[int, bytes, Sequence[ByteBuffer], bool], Iterator[F]]
"""Makes the frames of a message, in the form that a stream takes; as `encode`."""

CHUNK_BYTES = 1 << 20
LARGE_BYTES = 1 << 16
"""A frame of this size exceeds the buffers on its way, so that it was sent is a sign of life."""
LONG_BYTES = 16 << 20
"""A payload of this size may take long to come."""
SMALL_BYTES = 4096
"""Up to this size, in bytes, copying is cheaper than avoiding it."""
MAX_CONTROL_BYTES = 4 << 20
MAX_PAYLOAD_BYTES = 16 << 30
MAX_UNFINISHED = MAX_PAYLOAD_BYTES // CHUNK_BYTES
"""Maximum number of incomplete messages of a stream. Each one that jflow sends has a full chunk."""

_HEADER = struct.Struct("<BQIQ")
FIRST, _MORE = 1, 2
IN_SEGMENT = 3
"""A message whose payload lies in a segment. This kind and greater ones are of data streams only;
see `segments.py`."""
NOTHING: Array = np.empty(0, np.uint8)

HEADER_BYTES = _HEADER.size
pack_header = _HEADER.pack
unpack_header = _HEADER.unpack_from
MAX_FRAME_BYTES = _HEADER.size + MAX_CONTROL_BYTES + CHUNK_BYTES


new_tuple = tuple.__new__
"""Makes a named tuple from all its fields, without the Python call of its constructor."""


class Message(NamedTuple):
    """A complete message; its tensors are encoded in `payload`, unless `tensors` has them."""

    id: int
    control: bytes
    payload: Array
    is_shared: bool = False
    """Whether the other end can still write to the payload, which lies in a segment."""
    tensors: Sequence[Array] | None = None
    """The tensors themselves, which an end in the same process hands over; without a payload."""


def aligned(n_bytes: int) -> int:
    """Rounds the size of a tensor, in bytes, up to the alignment of payloads."""
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


def encode(
    message_id: int, control: bytes, tensors: Sequence[ByteBuffer], are_numbers: bool = True
) -> Iterator[bytes]:
    """Encodes a message as frames of bytes. Arguments and errors as of `encode_parts`."""
    return map(b"".join, encode_parts(message_id, control, tensors))


def encode_parts(
    message_id: int, control: bytes, tensors: Sequence[ByteBuffer], are_numbers: bool = True
) -> Iterator[Buffers]:
    """Encodes a message as frames, each a list of buffers.

    Args:
      message_id: not 0, and not in use by another message in flight on the stream.
      control: the control part, at most 4 MiB.
      tensors: contiguous buffers, the payload.
      are_numbers: whether none of them has strings; it makes no difference here.

    Raises:
      ResourceExhaustedError: if the control part is too large.
    """
    check_control(control)
    total = sum(aligned(len(tensor)) for tensor in tensors)
    header = _HEADER.pack(FIRST, message_id, len(control), total)
    if not total:
        yield [header, control]
        return
    chunks = _chunks(tensors)
    yield [header, control, *next(chunks)]
    header = _HEADER.pack(_MORE, message_id, 0, 0)
    for parts in chunks:
        yield [header, *parts]


def start_encoding(frames: Iterator[F]) -> Iterator[F]:
    """Encodes the first frame now, so that errors are raised here; returns all frames."""
    return chain([next(frames)], frames)


def check_control(control: bytes) -> None:
    """Raises ResourceExhaustedError if the control part of a message is too large."""
    if len(control) > MAX_CONTROL_BYTES:
        raise ResourceExhaustedError(
            f"a control message of {len(control)} bytes exceeds the limit of {MAX_CONTROL_BYTES}"
        )


def _chunks(tensors: Sequence[ByteBuffer]) -> Iterator[Buffers]:
    """Yields the padded payload in chunks of at most CHUNK_BYTES, each as buffers to be joined."""
    parts: Buffers = []
    room = CHUNK_BYTES
    for tensor in tensors:
        position, size = 0, len(tensor)
        while position < size:
            chunk = tensor[position : position + room]
            parts.append(chunk)
            position += len(chunk)
            room -= len(chunk)
            if not room:
                yield parts
                parts, room = [], CHUNK_BYTES
        # CHUNK_BYTES is a multiple of the alignment, so padding never crosses the end of a chunk.
        if padding := -size % ALIGNMENT:
            parts.append(bytes(padding))
            room -= padding
            if not room:
                yield parts
                parts, room = [], CHUNK_BYTES
    if parts:
        yield parts


def head_bytes(frame: ByteBuffer | bytearray, size: int) -> int:
    """Returns the size of the header and the control part of a frame.

    Args:
      frame: it begins the frame, with the whole header if the frame has one.
      size: the size of the whole frame.

    Raises:
      InvalidArgumentError: if the frame is too short for them.
    """
    if size < _HEADER.size:
        raise InvalidArgumentError(f"malformed frame: {size} bytes are too few")
    kind, message_id, length, _ = _HEADER.unpack_from(frame)
    if kind not in (FIRST, IN_SEGMENT):
        return HEADER_BYTES
    if HEADER_BYTES + length > size:
        raise InvalidArgumentError(f"malformed first frame of message {message_id}")
    return HEADER_BYTES + int(length)


def message_id_of(frame: ByteBuffer | bytearray) -> int:
    """Returns the message id of a frame, of which at least the header is given."""
    return int(_HEADER.unpack_from(frame)[1])


class _Partial:
    """A message whose payload is still arriving."""

    def __init__(self, message_id: int, control: bytes, total: int) -> None:
        self.message = Message(message_id, control, receive_buffer(total))
        self.n_bytes = len(control) + total
        self._filled = 0

    def next(self, n_bytes: int) -> memoryview:
        """Returns the memory of the next chunk, for the caller to fill."""
        start, end = self._filled, self._filled + n_bytes
        if end > len(self.message.payload):
            raise InvalidArgumentError(
                f"message {self.message.id} has more than the {len(self.message.payload)} "
                "payload bytes it declared"
            )
        self._filled = end
        return self.message.payload.data[start:end]

    @property
    def is_complete(self) -> bool:
        """Whether `next` has returned the memory of the whole payload."""
        return self._filled == len(self.message.payload)


class Assembler:
    """Assembles messages from the frames of one stream.

    Args:
      max_bytes: limit on the memory of all incomplete messages together.
      max_unfinished: limit on their number.

    Attributes:
      unfinished: the messages of which a part was fed, and not the rest, by their ids.
      on_long: called with each message that has begun and takes long to come; its payload is not
        there yet.
    """

    def __init__(
        self, max_bytes: int = MAX_PAYLOAD_BYTES, max_unfinished: int = MAX_UNFINISHED
    ) -> None:
        self._max_bytes = max_bytes
        self._max_unfinished = max_unfinished
        self.unfinished: dict[int, _Partial] = {}
        self._n_bytes = 0  # of all of them
        self.on_long: Callable[[Message], object] = lambda _: None

    def feed(self, frame: bytes) -> Message | None:
        """Adds a frame; returns the message that it completes, or None.

        Raises:
          InvalidArgumentError: if the frame is malformed or out of order.
          ResourceExhaustedError: if the message would be too large.
        """
        start = head_bytes(frame, len(frame))
        kind, message_id, _, total = _HEADER.unpack_from(frame)
        is_whole = kind == FIRST and total <= SMALL_BYTES and start + total == len(frame)
        if is_whole and message_id not in self.unfinished:
            payload = np.frombuffer(bytearray(frame[start:]), np.uint8) if total else NOTHING
            return Message(message_id, frame[_HEADER.size : start], payload)
        self.begin_frame(frame[:start], len(frame) - start)[:] = memoryview(frame)[start:]
        return self.end_frame(message_id)

    def begin_frame(self, head: bytes, n_bytes: int) -> memoryview:
        """Adds the header and control part of a frame; see `head_bytes`.

        Args:
          head: its header and control part.
          n_bytes: the size of the rest.

        Returns:
          The memory that the caller fills with the rest before it calls `end_frame`.

        Raises: as `feed`.
        """
        kind, message_id, length, total = _HEADER.unpack_from(head)
        partial = self.unfinished.get(message_id)
        if kind == FIRST and partial is None:
            self._check_room(length + total)
            if len(self.unfinished) == self._max_unfinished:
                raise ResourceExhaustedError(
                    f"a message begins beside {self._max_unfinished} unfinished ones; that is the "
                    "limit"
                )
            partial = _Partial(message_id, head[_HEADER.size :], total)
            self.unfinished[message_id] = partial
            self._n_bytes += partial.n_bytes
            if total >= LONG_BYTES:
                self.on_long(partial.message)
        elif kind != _MORE or partial is None:
            raise InvalidArgumentError(
                f"malformed frame: unexpected kind {kind} for message {message_id}"
            )
        return partial.next(n_bytes)

    def end_frame(self, message_id: int) -> Message | None:
        """Ends the frame that was begun last; returns the message that it completes, or None."""
        partial = self.unfinished[message_id]
        if not partial.is_complete:
            return None
        del self.unfinished[message_id]
        self._n_bytes -= partial.n_bytes
        return partial.message

    def close(self) -> None:
        """Drops the incomplete messages. Nothing may be fed afterwards."""
        self.unfinished.clear()

    def _check_room(self, n_bytes: int) -> None:
        if n_bytes + self._n_bytes > self._max_bytes:
            raise ResourceExhaustedError(
                f"a message declares {n_bytes} bytes beside {self._n_bytes} unfinished ones; "
                f"the limit is {self._max_bytes}"
            )
