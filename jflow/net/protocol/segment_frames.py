"""The frames about segments, which data streams have beside those of `frame.py`.

Their headers are those of any frame. A message in a segment has the number of the segment, as u32,
in front of its control part, and its payload is not in the frame. The other kinds have no control
part and no payload: their id is the number of a segment, which is shared, given back or dropped.
The frame that shares one comes with its file descriptor, and says how large it is.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Protocol

from jflow.errors import InvalidArgumentError
from jflow.net.protocol.frame import (
    HEADER_BYTES,
    IN_SEGMENT,
    Buffers,
    Message,
    pack_header,
    unpack_header,
)

_SHARED, _FREED, _DROPPED = IN_SEGMENT + 1, IN_SEGMENT + 2, IN_SEGMENT + 3
_NUMBER = struct.Struct("<I")
NUMBER_BYTES = _NUMBER.size


class SegmentFrames(Protocol):
    """What takes the frames about segments."""

    def receive(self, frame: bytes) -> Message | None:
        """Takes a frame; returns the message if there is one in a segment.

        Raises:
          OpError: if the frame is malformed, or says what cannot be.
        """


class InSegment(NamedTuple):
    """A message that lies in a segment."""

    message_id: int
    control: bytes
    number: int
    n_bytes: int


class Shared(NamedTuple):
    """A new segment, whose file descriptor comes with the frame."""

    number: int
    capacity: int


class Freed(NamedTuple):
    """A segment that its receiver gives back."""

    number: int


class Dropped(NamedTuple):
    """A segment that its sender uses no more."""

    number: int


SegmentFrame = InSegment | Shared | Freed | Dropped


def segment_frame(frame: SegmentFrame) -> Buffers:
    """The encoding of a frame."""
    match frame:
        case InSegment():
            length = NUMBER_BYTES + len(frame.control)
            header = pack_header(IN_SEGMENT, frame.message_id, length, frame.n_bytes)
            return [header, _NUMBER.pack(frame.number), frame.control]
        case Shared():
            return [pack_header(_SHARED, frame.number, 0, frame.capacity)]
        case Freed():
            return [pack_header(_FREED, frame.number, 0, 0)]
        case Dropped():
            return [pack_header(_DROPPED, frame.number, 0, 0)]


def parsed(frame: bytes) -> SegmentFrame:
    """The frame that bytes encode. Raises InvalidArgumentError if they are malformed."""
    kind, name, length, n_bytes = unpack_header(frame)
    if kind == IN_SEGMENT and NUMBER_BYTES <= length == len(frame) - HEADER_BYTES:
        (number,) = _NUMBER.unpack_from(frame, HEADER_BYTES)
        return InSegment(name, frame[HEADER_BYTES + NUMBER_BYTES :], number, n_bytes)
    if not length and len(frame) == HEADER_BYTES:
        if kind == _SHARED:
            return Shared(name, n_bytes)
        if kind in (_FREED, _DROPPED) and not n_bytes:
            return Freed(name) if kind == _FREED else Dropped(name)
    raise InvalidArgumentError(f"malformed frame of kind {kind}, which is about segments")
