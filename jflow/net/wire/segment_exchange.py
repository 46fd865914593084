"""`SegmentExchange`: the segments of one data stream, in both directions.

Its pending frames are sent by the stream, before the next frame or when it is woken.
The message that a segment carries follows the frame that shared it, so it is never sent too early.

Locks: `_lock` guards the state machines, and nothing blocks with it held. Finalizers give
segments back in the middle of anything, so they never take it: they leave a note.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import numpy as np

from jflow.base.values import Array
from jflow.errors import InvalidArgumentError
from jflow.net.protocol.buffers import view_of
from jflow.net.protocol.frame import (
    MAX_CONTROL_BYTES,
    Buffers,
    ByteBuffer,
    Message,
    aligned,
    encode_parts,
)
from jflow.net.protocol.parser import delimited
from jflow.net.protocol.segments import (
    MAX_SEGMENTS,
    MIN_SHARED_BYTES,
    NUMBER_BYTES,
    Dropped,
    Freed,
    InSegment,
    ReceivedSegments,
    SegmentFrame,
    SentSegments,
    Shared,
    parse_segment_frame,
    segment_frame,
)
from jflow.net.protocol.ticker import ticker
from jflow.net.wire.connections import DataConnection, close_in_thread
from jflow.net.wire.shared_memory import make_shared, n_forks, open_shared

IDLE_S = 5.0
"""A segment that was not used for once to twice this time is dropped, in seconds."""

_COPIED_BYTES = 4 << 20
"""How much is copied before other messages may pass."""

_PendingFrame = tuple[SegmentFrame, int | None]
"""A frame to send, and the file descriptor that goes with it."""


class SegmentExchange:
    """The segments of one end of a data stream; thread-safe.

    Args:
      wake: makes the stream send pending frames soon; may be called on any thread, also by
        finalizers.
      passes_files: whether the connection can pass the files of segments; if not, none are made,
        and those of the other end are refused.
    """

    def __init__(self, wake: Callable[[], object], *, passes_files: bool = True) -> None:
        self._wake = wake
        self._passes_files = passes_files
        self._lock = threading.Lock()
        self._sent: SentSegments[Array] = SentSegments()
        self._received: ReceivedSegments[Array] = ReceivedSegments()
        self._descriptors: deque[int] = deque()
        self._pending_frames: deque[_PendingFrame] = deque()
        self._given_back: deque[int] = deque()
        self._unsent: deque[int] = deque()
        self._is_swept = self._is_over = False

    @property
    def has_more(self) -> bool:
        """Whether there are frames to send."""
        return bool(self._pending_frames or self._given_back) and not self._is_over

    def send_pending(self, connection: DataConnection) -> bool:
        """Sends the pending frames about segments; False if the kernel accepts no more now.

        Only the thread that writes to the socket may call it, between two frames.

        Raises:
          OSError: as `DataConnection.send`.
        """
        while self.has_more and (item := self._next()) is not None:
            frame, descriptor = item
            try:
                # The kernel takes all of so few bytes, or nothing.
                connection.send(delimited(segment_frame(frame)), descriptor)
            except (BlockingIOError, InterruptedError):
                self._put_back(item)
                return False
            except BaseException:
                _close(descriptor)
                raise
            _close(descriptor)
        return True

    def _next(self) -> _PendingFrame | None:
        with self._lock:
            if self._is_over:
                return None
            if self._given_back:
                number = self._given_back.popleft()
                self._received.given_back(number)
                return Freed(number), None
            return self._pending_frames.popleft() if self._pending_frames else None

    def _put_back(self, item: _PendingFrame) -> None:
        with self._lock:
            if not self._is_over:
                self._pending_frames.appendleft(item)
                return
        _close(item[1])

    def encode(
        self,
        message_id: int,
        control: bytes,
        tensors: Sequence[ByteBuffer],
        are_numbers: bool = True,
    ) -> Iterator[Buffers]:
        """Encodes a message like `encode_parts`, but in a segment if one is free.

        A frame without buffers is not sent: it lets other messages pass.
        """
        n_bytes = sum(aligned(len(tensor)) for tensor in tensors)
        if n_bytes < MIN_SHARED_BYTES or not (are_numbers and self._passes_files):
            return encode_parts(message_id, control, tensors)
        if len(control) + NUMBER_BYTES > MAX_CONTROL_BYTES:
            return encode_parts(message_id, control, tensors)
        segment = self._take(n_bytes)
        if segment is None:
            return encode_parts(message_id, control, tensors)
        number, memory = segment
        return self._copy_into(InSegment(message_id, control, number, n_bytes), memory, tensors)

    def receive(self, frame: bytes) -> Message | None:
        """Receives a frame about segments. Raises as `SegmentFrames.receive`."""
        one = parse_segment_frame(frame)
        match one:
            case InSegment():
                with self._lock:
                    memory = self._received.received(one.number, one.n_bytes)
                payload = view_of(memory, one.n_bytes, self._give_back, one.number, n_forks())
                return Message(one.message_id, one.control, payload, is_shared=True)
            case Shared():
                self._open(one)
            case Freed():
                with self._lock:
                    self._sent.freed(one.number)
            case Dropped():
                with self._lock:
                    self._received.dropped(one.number)
        return None

    def add_descriptors(self, descriptors: Sequence[int]) -> None:
        """Receives file descriptors, before the frames that they came with.

        Raises:
          InvalidArgumentError: if more wait for their frames than a stream has segments.
        """
        self._descriptors.extend(descriptors)
        if self._is_over:
            self._close_descriptors()
        if len(self._descriptors) > MAX_SEGMENTS:
            raise InvalidArgumentError(f"{len(self._descriptors)} files wait for their frames")

    def close(self) -> None:
        """Ends the use of all segments; arrays in them keep their memory."""
        with self._lock:
            self._is_over = True
            self._sent, self._received = SentSegments(), ReceivedSegments()
            pending, self._pending_frames = self._pending_frames, deque()
            self._given_back.clear()
            # Finalizers refer to this. What refers to the stream, such as a server that keeps what
            # it was fed, may own the arrays that they wait for, and could never be collected.
            self._wake = _nothing
            self._set_swept(False)
        for _, descriptor in pending:
            _close(descriptor)
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        descriptors = []
        with suppress(IndexError):  # another thread may take them, too
            while True:
                descriptors.append(self._descriptors.popleft())
        close_in_thread(descriptors)

    def _open(self, one: Shared) -> None:
        """Maps a segment that the other end shares."""
        if not self._descriptors:
            raise InvalidArgumentError(f"segment {one.number} is shared without its file")
        descriptor = self._descriptors.popleft()
        try:
            with self._lock:
                self._received.check(one.number, one.capacity)
            memory = open_shared(descriptor, one.capacity)
        except BaseException:
            close_in_thread([descriptor])
            raise
        os.close(descriptor)  # of memory, so it does not block
        with self._lock:
            self._received.shared(one.number, memory, one.capacity)

    def _give_back(self, number: int, n_forks_then: int) -> None:
        """Gives a segment back; a finalizer calls it."""
        # A child that was forked meanwhile may read it as long as it likes.
        if not self._is_over and n_forks() == n_forks_then:
            self._given_back.append(number)
            self._wake()

    def _take(self, n_bytes: int) -> tuple[int, Array] | None:
        """Allocates a segment for a message; if none is free, may start making one for later."""
        with self._lock:
            if self._is_over:
                return None
            while self._unsent:
                self._sent.freed(self._unsent.popleft())
            segment = self._sent.allocate(n_bytes)
            capacity, displaced = self._sent.to_make()
            self._pending_frames.extend((Dropped(number), None) for number in displaced)
        if capacity is not None:
            try:
                threading.Thread(
                    target=self._make, args=(capacity,), name="jflow segment", daemon=True
                ).start()
            except RuntimeError:  # no thread can be started
                self._sent.not_made()
        return segment

    def _make(self, capacity: int) -> None:
        """Makes a segment and shares it; on a thread of its own."""
        try:
            descriptor, memory = make_shared(capacity)
        except OSError:
            with self._lock:
                self._sent.not_made()
            return
        with self._lock:
            is_over = self._is_over
            if not is_over:
                self._pending_frames.append((Shared(self._sent.made(memory), capacity), descriptor))
                self._set_swept(True)
        if is_over:
            os.close(descriptor)
        else:
            self._wake()

    def _copy_into(
        self, frame: InSegment, memory: Array, tensors: Sequence[ByteBuffer]
    ) -> Iterator[Buffers]:
        """Copies tensors into a segment, part by part, then yields the frame of the message."""
        start = n_copied = 0
        is_sent = False
        try:
            for tensor in tensors:
                source = np.frombuffer(tensor, np.uint8)
                for first in range(0, len(source), _COPIED_BYTES):
                    part = source[first : first + _COPIED_BYTES]
                    memory[start + first : start + first + len(part)] = part
                    n_copied += len(part)
                    if n_copied >= _COPIED_BYTES:
                        n_copied = 0
                        yield []
                start += aligned(len(source))
            is_sent = True
            yield segment_frame(frame)
        finally:
            if not is_sent and not self._is_over:
                self._unsent.append(frame.number)

    def _sweep(self) -> None:
        """Drops the segments that are not used; called by the ticker."""
        with self._lock:
            dropped = self._sent.sweep()
            self._pending_frames.extend((Dropped(number), None) for number in dropped)
            if not len(self._sent):
                self._set_swept(False)
        if dropped:
            with suppress(Exception):
                self._wake()

    def _set_swept(self, is_swept: bool) -> None:
        if is_swept != self._is_swept:
            self._is_swept = is_swept
            change = ticker(IDLE_S).add if is_swept else ticker(IDLE_S).remove
            change(self._sweep)


def _nothing() -> None:
    """Replaces `wake` once the stream has ended."""


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)
