"""Frames: how one message with its tensors travels over a gRPC stream.

A message is a control part (a serialized protobuf) and the raw bytes of its tensors. A frame is

    kind u8 | message id u64 | control length u32 | payload length u64 | control | payload

The first frame of a message has the control part and as much of the payload as fits; further frames
carry the rest, so that a large tensor neither passes through protobuf nor blocks small messages:
frames of different messages may alternate, those of one keep their order.

The receiver learns the whole size first, checks it, and takes memory once. Each tensor starts at
a multiple of 64 bytes, where JAX can use it without a copy.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jflow.errors import InvalidArgumentError, ResourceExhaustedError

Array = np.ndarray[Any, Any]
_Piece = memoryview | bytes

CHUNK_BYTES = 1 << 20
ALIGNMENT = 64
MAX_CONTROL_BYTES = 4 << 20
MAX_PAYLOAD_BYTES = 16 << 30

_HEADER = struct.Struct("<BQIQ")
_FIRST, _MORE = 1, 2

MAX_FRAME_BYTES = _HEADER.size + MAX_CONTROL_BYTES + CHUNK_BYTES


@dataclass(frozen=True)
class Message:
    """What one or more frames add up to; tensors are read from `payload` by the codec."""

    id: int
    control: bytes
    payload: Array


def aligned(n_bytes: int) -> int:
    """The number of payload bytes that a tensor of `n_bytes` takes up."""
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


def aligned_buffer(n_bytes: int) -> Array:
    """Uninitialized memory, u8[n_bytes], whose address is a multiple of 64."""
    try:
        buffer = np.empty(n_bytes + ALIGNMENT, np.uint8)
    except MemoryError:
        raise ResourceExhaustedError(f"there is no memory for {n_bytes} bytes") from None
    start = -buffer.ctypes.data % ALIGNMENT
    return buffer[start : start + n_bytes]


def encode(message_id: int, control: bytes, tensors: Sequence[Array]) -> Iterator[bytes]:
    """The frames of a message.

    Args:
      message_id: not 0 and not in use by another message that is under way on the stream.
      control: the control part, at most 4 MiB.
      tensors: contiguous arrays, u8[n], whose bytes make up the payload.

    Raises:
      ResourceExhaustedError: if the control part is too large.
    """
    if len(control) > MAX_CONTROL_BYTES:
        raise ResourceExhaustedError(f"a control message of {len(control)} bytes is too large")
    total = sum(aligned(tensor.nbytes) for tensor in tensors)
    chunks = _chunks(tensors)
    first = b"".join(next(chunks, ()))
    yield _HEADER.pack(_FIRST, message_id, len(control), total) + control + first
    for parts in chunks:
        yield b"".join((_HEADER.pack(_MORE, message_id, 0, 0), *parts))


def _chunks(tensors: Sequence[Array]) -> Iterator[list[_Piece]]:
    """The padded payload in pieces of at most CHUNK_BYTES, each as parts to be joined."""
    parts: list[_Piece] = []
    room = CHUNK_BYTES
    for tensor in tensors:
        position = 0
        while position < tensor.nbytes:
            taken = tensor[position : position + room]
            parts.append(taken.data)
            position += taken.nbytes
            room -= taken.nbytes
            if not room:
                yield parts
                parts, room = [], CHUNK_BYTES
        padding = aligned(tensor.nbytes) - tensor.nbytes
        # CHUNK_BYTES is a multiple of the alignment, so padding never crosses a chunk's end.
        if padding:
            parts.append(bytes(padding))
            room -= padding
            if not room:
                yield parts
                parts, room = [], CHUNK_BYTES
    if parts:
        yield parts


class _Partial:
    """A message whose payload is still arriving."""

    def __init__(self, message_id: int, control: bytes, total: int) -> None:
        self.message = Message(message_id, control, aligned_buffer(total))
        self._filled = 0

    def add(self, piece: memoryview) -> bool:
        """Takes the next piece; True when the payload is whole."""
        end = self._filled + len(piece)
        if end > len(self.message.payload):
            raise InvalidArgumentError(
                f"message {self.message.id} has more than the {len(self.message.payload)} "
                "payload bytes it declared"
            )
        self.message.payload[self._filled : end] = np.frombuffer(piece, np.uint8)
        self._filled = end
        return end == len(self.message.payload)


class Assembler:
    """Puts the frames of one stream together again.

    Args:
      max_payload_bytes: largest payload to take memory for, over all unfinished messages.
    """

    def __init__(self, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        self._max_payload_bytes = max_payload_bytes
        self._unfinished: dict[int, _Partial] = {}

    def feed(self, frame: bytes) -> Message | None:
        """Takes a frame; returns the message that it completes, if it does.

        Raises:
          InvalidArgumentError: if the frame is malformed or out of order.
          ResourceExhaustedError: if the message would be too large.
        """
        if len(frame) < _HEADER.size:
            raise InvalidArgumentError(f"a frame of {len(frame)} bytes is too short")
        kind, message_id, control_length, total = _HEADER.unpack_from(frame)
        body = memoryview(frame)[_HEADER.size :]
        if kind == _FIRST:
            partial = self._begin(message_id, control_length, total, body)
            body = body[control_length:]
        elif kind == _MORE and message_id in self._unfinished:
            partial = self._unfinished[message_id]
        else:
            raise InvalidArgumentError(f"a frame of kind {kind} for message {message_id}")
        if not partial.add(body):
            self._unfinished[message_id] = partial
            return None
        self._unfinished.pop(message_id, None)
        return partial.message

    def _begin(self, message_id: int, length: int, total: int, body: memoryview) -> _Partial:
        if message_id in self._unfinished or length > len(body):
            raise InvalidArgumentError(f"the first frame of message {message_id} is malformed")
        waiting = sum(len(p.message.payload) for p in self._unfinished.values())
        if total + waiting > self._max_payload_bytes:
            raise ResourceExhaustedError(
                f"a message declares {total} payload bytes beside {waiting} unfinished ones; "
                f"the limit is {self._max_payload_bytes}"
            )
        return _Partial(message_id, bytes(body[:length]), total)
