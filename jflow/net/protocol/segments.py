"""Life cycle of segments: shared memory that passes large tensors between two processes.

Each direction of a data stream has segments of its own. The end that sends makes them, and shares
each with the other end once. From then on a segment is *free*, or *in use* by one message: the
sender copies tensors into it, and the receiver, whose arrays lie in it, gives it back when none of
them is left. So what is in a segment is never overwritten while an array refers to it.

The first touch of fresh memory costs more than to send the bytes over the socket. So a segment is
worth it only if it is used again: a message takes one that is free, or none. How many messages
found none says whether another one is made, beside the messages. One that was not used for a while
is dropped at both ends.

The frames about segments have the headers of any frame. A message in a segment has the number of
the segment, as u32, in front of its control part, and its payload is not in the frame. The other
kinds have no control part and no payload: their id is the number of a segment, which is shared,
given back or dropped. The frame that shares one comes with its file descriptor and its size.

State machines without I/O; M is the memory of a segment.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from jflow.errors import InvalidArgumentError
from jflow.net.protocol.buffers import capacity_for
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
    """Receives the frames about segments."""

    def receive(self, frame: bytes) -> Message | None:
        """Receives a frame; returns the message if one lies in the frame's segment.

        Raises:
          OpError: if the frame is malformed, or contradicts the state of the segments.
        """


class InSegment(NamedTuple):
    """The frame of a message whose payload lies in a segment."""

    message_id: int
    control: bytes
    number: int
    n_bytes: int


class Shared(NamedTuple):
    """The frame that shares a new segment, sent together with its file descriptor."""

    number: int
    capacity: int


class Freed(NamedTuple):
    """The frame with which the receiver gives a segment back."""

    number: int


class Dropped(NamedTuple):
    """The frame which says that the sender has dropped a segment."""

    number: int


SegmentFrame = InSegment | Shared | Freed | Dropped


def segment_frame(frame: SegmentFrame) -> Buffers:
    """Encodes a frame about a segment."""
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


def parse_segment_frame(frame: bytes) -> SegmentFrame:
    """Decodes a frame about a segment. Raises InvalidArgumentError if it is malformed."""
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


M = TypeVar("M")

MIN_SHARED_BYTES = 1 << 20
"""Smaller messages are faster over the socket."""

MAX_SEGMENTS = 4
MAX_SEGMENTS_BYTES = 512 << 20
"""How many segments one direction of a stream has at most, and how large they are together."""

N_MISSED = 2
"""A segment is made when so many messages of about its size have found none."""


@dataclass
class _Sent(Generic[M]):
    """A segment of the sender."""

    memory: M
    capacity: int
    is_free: bool = True
    was_used: bool = True  # since the last sweep


class SentSegments(Generic[M]):
    """The sender's pool of shared-memory segments."""

    def __init__(self) -> None:
        self._segments: dict[int, _Sent[M]] = {}
        self._n_made = 0
        self._missed: Counter[int] = Counter()
        self._making_bytes = 0  # the capacity of the one that is being made

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def n_bytes(self) -> int:
        """The size of all segments, and of the one that is being made, in bytes."""
        return sum(one.capacity for one in self._segments.values()) + self._making_bytes

    def allocate(self, n_bytes: int) -> tuple[int, M] | None:
        """Allocates the smallest free segment that fits; returns its number and memory, or None."""
        candidates = [
            (one.capacity, number)
            for number, one in self._segments.items()
            if one.is_free and one.capacity >= n_bytes
        ]
        if not candidates:
            self._missed[capacity_for(n_bytes)] += 1
            return None
        number = min(candidates)[1]
        segment = self._segments[number]
        segment.is_free, segment.was_used = False, True
        return number, segment.memory

    def freed(self, number: int) -> None:
        """Marks a segment as free: the other end has given it back, or nothing was sent in it.

        Raises:
          InvalidArgumentError: if it is not in use.
        """
        segment = self._segments.get(number)
        if segment is None or segment.is_free:
            raise InvalidArgumentError(f"segment {number} was given back, and is not in use")
        segment.is_free = True

    def to_make(self) -> tuple[int | None, list[int]]:
        """Returns the size of a segment to make now, or None, and the segments that it displaces.

        Call `made` or `not_made` then.
        """
        if self._making_bytes or not self._missed:
            return None, []
        capacity, n_missed = max(self._missed.items(), key=lambda item: (item[1], item[0]))
        if n_missed < N_MISSED:
            return None, []
        self._missed.clear()
        displaced = []
        if len(self._segments) >= MAX_SEGMENTS:
            smallest = min(self._segments, key=lambda number: self._segments[number].capacity)
            # Larger ones serve small messages too, so that two sizes never displace each other.
            if not self._segments[smallest].is_free or (
                self._segments[smallest].capacity >= capacity
            ):
                return None, []
            displaced.append(smallest)
        n_left = self.n_bytes - sum(self._segments[number].capacity for number in displaced)
        if n_left + capacity > MAX_SEGMENTS_BYTES:
            return None, []
        for number in displaced:
            del self._segments[number]
        self._making_bytes = capacity
        return capacity, displaced

    def made(self, memory: M) -> int:
        """Adds the new segment, which can be used once it was shared; returns its number."""
        self._n_made += 1
        self._segments[self._n_made] = _Sent(memory, self._making_bytes)
        self._making_bytes = 0
        return self._n_made

    def not_made(self) -> None:
        """Records that the new segment could not be made."""
        self._making_bytes = 0

    def sweep(self) -> list[int]:
        """Drops the segments that were not used since the last sweep; returns their numbers."""
        dropped = [
            number for number, one in self._segments.items() if one.is_free and not one.was_used
        ]
        for number in dropped:
            del self._segments[number]
        for one in self._segments.values():
            one.was_used = not one.is_free
        self._missed.clear()
        return dropped


class ReceivedSegments(Generic[M]):
    """The receiver's view of the sender's shared-memory segments."""

    def __init__(self) -> None:
        self._segments: dict[int, tuple[M, int]] = {}
        self._in_use: set[int] = set()
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._segments)

    def check(self, number: int, capacity: int) -> None:
        """Checks a segment that the other end shares, before its memory is mapped.

        Raises:
          InvalidArgumentError: if it is one too many, too large, or not a new one.
        """
        n_bytes = sum(size for _, size in self._segments.values()) + capacity
        if not capacity or len(self) >= MAX_SEGMENTS or n_bytes > MAX_SEGMENTS_BYTES:
            raise InvalidArgumentError(
                f"a segment of {capacity} bytes is shared beside {len(self)} of "
                f"{n_bytes - capacity}; the limits are {MAX_SEGMENTS} and {MAX_SEGMENTS_BYTES}"
            )
        if number <= self._last_number:
            raise InvalidArgumentError(
                f"segment {number} is shared after segment {self._last_number}"
            )

    def shared(self, number: int, memory: M, capacity: int) -> None:
        """Adds a segment that was checked."""
        self._segments[number] = memory, capacity
        self._last_number = number

    def received(self, number: int, n_bytes: int) -> M:
        """Marks a segment as in use by a message; returns its memory.

        Raises:
          InvalidArgumentError: if there is no such free segment, or it is too small.
        """
        memory, capacity = self._free(number, "a message lies in")
        if n_bytes > capacity:
            raise InvalidArgumentError(
                f"a message of {n_bytes} bytes lies in segment {number}, which has {capacity}"
            )
        self._in_use.add(number)
        return memory

    def given_back(self, number: int) -> None:
        """Marks a segment as free, after its last array was freed."""
        self._in_use.remove(number)

    def dropped(self, number: int) -> None:
        """Removes a segment that the other end has dropped.

        Raises:
          InvalidArgumentError: if there is no such free segment.
        """
        self._free(number, "the other end drops")
        del self._segments[number]

    def _free(self, number: int, what: str) -> tuple[M, int]:
        segment = self._segments.get(number)
        if segment is None:
            raise InvalidArgumentError(f"{what} segment {number}, which was never shared")
        if number in self._in_use:
            raise InvalidArgumentError(f"{what} segment {number}, which is in use")
        return segment
