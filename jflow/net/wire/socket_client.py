"""`SocketClient`: a client's end of a data stream, without an event loop.

The threads that wait for answers read the stream, one at a time (`protocol.readers`), and a thread
that sends writes to it, as far as the kernel takes it. What is left over is sent by the thread that
reads. A thread of its own reads only while messages are expected that no caller waits for.

Locks: `_writing` is held while frames are written, and never waited for: the holder also
writes what others add meanwhile. `_lock` guards the readers and the end. Neither is held while
something is called that is not of this file. Nothing blocks with a lock held.
"""

from __future__ import annotations

import itertools
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import FileIO
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from jflow.base.values import SentArray
from jflow.errors import OpError
from jflow.net.protocol.codec import frames_of, small_payload
from jflow.net.protocol.frame import CHUNK_BYTES, SMALL_BYTES, Buffers, Message, start_encoding
from jflow.net.protocol.interrupts import Interrupts, deferred_interrupts
from jflow.net.protocol.outbox import Outbox
from jflow.net.protocol.parser import Parser, delimited, delimited_message
from jflow.net.protocol.readers import Readers
from jflow.net.protocol.transport import BrokenStreamError
from jflow.net.wire.connections import DataConnection
from jflow.net.wire.segment_exchange import SegmentExchange
from jflow.net.wire.socket_stream import unsent

T = TypeVar("T")

_LINGER_S = 1.0
"""For how long the thread of the stream stays after it was needed, in seconds."""

_ONE = (1).to_bytes(8, sys.byteorder)
_LEADS: Any = object()
"""Put into the queue of a waiting thread that has become the leader."""


class SocketClient:
    """A client's end of a data stream; see `protocol.transport.ClientData`.

    Args:
      connection: its connection, which belongs to the stream from now on.
      received: takes each message, on the thread that reads; must not block.
      ended: called once when the stream has ended, with the error if it broke.
    """

    def __init__(
        self,
        connection: DataConnection,
        received: Callable[[Message], object],
        ended: Callable[[Exception | None], object],
    ) -> None:
        self._connection = connection
        self.kind = connection.kind
        self._on_message, self._on_end = received, ended
        # The frames of what a finalizer gives back leave with the next message or tick.
        self._segments = SegmentExchange(_no_op, passes_files=connection.passes_files)
        self._parser = Parser(segments=self._segments)
        self._ids = itertools.count(1)
        self._outbox: Outbox[Buffers] = Outbox()
        self._unsent: Buffers = []
        self._is_mid_frame = False  # whether a part of a frame was sent, and not the rest
        self._n_chunks = 0
        self._writing = threading.Lock()
        self._lock = threading.Lock()
        self._readers: Readers[SimpleQueue[Any]] = Readers()
        self._n_expected = 0
        self._inbox: SimpleQueue[Any] = SimpleQueue()
        self._has_helper = False
        self._is_over = self._is_freed = False
        # Wakes the leader when there is something to send that the kernel did not take.
        self._wake = FileIO(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK), "r+")
        self._poll = select.poll()
        self._poll.register(self._wake, select.POLLIN)

    @property
    def n_signs(self) -> int:
        return self._parser.n_received + self._n_chunks

    def send(self, key: int, control: bytes, tensors: Sequence[SentArray]) -> None:
        frames = frames_of(self._segments.encode, next(self._ids), control, tensors)
        self._outbox.put(key, start_encoding(frames))
        with deferred_interrupts():
            self._flush_soon()

    def send_now(self, control: bytes, tensors: Sequence[SentArray]) -> bool:
        payload = small_payload(tensors) if len(control) <= SMALL_BYTES else None
        if payload is None:
            return False
        message = delimited_message(next(self._ids), control, payload)
        if not self._writing.acquire(blocking=False):
            return False
        try:
            has_more = self._has_more
            if self._is_over or has_more:
                return False
            n_sent = self._connection.send([message])
            if n_sent < len(message):
                self._unsent, self._is_mid_frame = [memoryview(message)[n_sent:]], True
        except OSError:
            return False
        finally:
            self._writing.release()
        if self._has_more:  # what others could not send meanwhile, or the kernel has not taken
            self._flush_soon()
        return True

    def _flush_soon(self) -> None:
        """Sends all pending bytes; wakes the leader for those that the kernel refuses now."""
        if not self._flush():
            with suppress(OSError, ValueError):  # it was closed meanwhile
                self._wake.write(_ONE)

    def get(self, answers: SimpleQueue[T], timeout: float | None, interrupts: Interrupts) -> T:
        until = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            leads = self._readers.enter(answers)
        try:
            while True:
                if leads:
                    self._lead(answers, until, interrupts)
                if answers.empty():
                    item = interrupts.waiting(answers.get, timeout=_remaining_s(until))
                else:
                    item = answers.get_nowait()
                if item is not _LEADS:
                    return item
                leads = self._readers.leader is answers
        finally:
            self._leave(answers)

    def expect(self, n: int) -> None:
        with self._lock:
            self._n_expected += n
            is_needed = self._needs_help and not self._has_helper
            self._has_helper |= is_needed
        if is_needed:
            try:
                threading.Thread(target=self._help, name="jflow reader", daemon=True).start()
            except BaseException:  # no thread can be started
                self._has_helper = False
                raise

    def complete(self, function: Callable[[], object]) -> None:
        self._inbox.put(function)
        self.expect(-1)

    def tick(self) -> None:
        nothing: SimpleQueue[Any] = SimpleQueue()
        with self._lock:
            leads = not self._is_over and self._readers.leader is None
            if leads:
                self._readers.enter(nothing)
        if leads:
            try:
                self._flush()
                self._read()
            finally:
                self._leave(nothing)
            self.expect(0)

    def close(self) -> None:
        self._end(None, notifies=False)

    def _lead(self, answers: SimpleQueue[Any], until: float | None, interrupts: Interrupts) -> None:
        """Reads until a queue has an item or the stream ends. Raises Empty when time is over."""
        while answers.empty() and not self._is_over:
            remaining_s = _remaining_s(until)
            if remaining_s == 0.0:
                raise Empty
            has_more = self._has_more
            events = select.POLLIN | (select.POLLOUT if has_more else 0)
            self._poll.register(self._connection, events)
            if self._connection.has_buffered:
                remaining_s = 0.0
            ready = interrupts.waiting(
                self._poll.poll, None if remaining_s is None else remaining_s * 1000
            )
            if len(ready) > 1 or (ready and ready[0][0] == self._wake.fileno()):
                self._wake.read(8)
                has_more = True
            if has_more:
                self._flush()
            self._read()

    def _leave(self, reader: SimpleQueue[Any]) -> None:
        with self._lock:
            promoted = self._readers.leave(reader)
            is_last = self._readers.leader is None
        if promoted is not None:
            promoted.put(_LEADS)
        elif self._is_over and is_last:
            self._free()

    def _read(self) -> None:
        """Receives what has arrived, as the leader."""
        while not self._is_over:
            buffer = self._parser.buffer()
            try:
                n_bytes = self._connection.receive_into(buffer, self._segments.add_descriptors)
                messages = self._parser.received(n_bytes) if n_bytes else []
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._end(BrokenStreamError(f"the data stream broke: {error}"))
                return
            except OpError as error:  # a message is malformed
                self._end(error)
                return
            if not n_bytes:
                self._end(None)
                return
            for message in messages:
                self._on_message(message)
            if n_bytes < len(buffer):
                return

    def _flush(self) -> bool:
        """Sends all pending bytes; False if the kernel does not accept all of them now."""
        while self._has_more and not self._is_over:
            if not self._writing.acquire(blocking=False):
                return True  # the thread that writes sees that there is more
            try:
                is_blocked = self._write()
            finally:
                self._writing.release()
            if is_blocked:
                return False
        return True

    def _write(self) -> bool:
        """Sends frames; returns whether the kernel accepts no more now."""
        while not self._is_over:
            try:
                if not self._begin():
                    return False
                n_bytes = self._connection.send(self._unsent)
            except (BlockingIOError, InterruptedError):
                return True
            except OSError:
                # The thread that reads finds the reason, behind the answers that have come.
                with suppress(OSError):
                    self._connection.shutdown(socket.SHUT_WR)
                self._unsent, self._is_mid_frame = [], False
                return False
            self._n_chunks += n_bytes >= CHUNK_BYTES // 8
            self._unsent = unsent(self._unsent, n_bytes)
            self._is_mid_frame = bool(self._unsent)
        return False

    def _begin(self) -> bool:
        """Prepares the bytes to send next, from the current or next frame; False if there are none.

        Raises:
          BlockingIOError: if the kernel takes nothing.
          OSError: if nothing can be sent any more.
        """
        while not self._unsent and (frame := self._outbox.next_frame()) is not None:
            if frame:  # otherwise more of a large message was copied
                self._unsent = delimited(frame)
        # A segment that the frame refers to is shared before it.
        if not self._is_mid_frame and not self._segments.send_pending(self._connection):
            raise BlockingIOError
        return bool(self._unsent) or self._connection.has_unsent

    def _help(self) -> None:
        """Reads while messages are expected for which no thread waits, and completes futures."""
        me, is_needed = self._inbox, True
        while True:
            with self._lock:
                was_needed, is_needed = is_needed, self._needs_help
                if not is_needed and (self._is_over or not was_needed):
                    self._has_helper = False
                    return
                leads = self._readers.enter(me)
            item: Any = None
            try:
                with suppress(Empty):
                    if leads:
                        self._lead(me, time.monotonic() + _LINGER_S, deferred_interrupts())
                    item = me.get(timeout=0 if leads else _LINGER_S)
            finally:
                self._leave(me)
            if item is not None and item is not _LEADS:
                item()
                is_needed = True  # it was, so that the thread stays for a while again

    @property
    def _needs_help(self) -> bool:
        """Whether the stream has to be read although no thread waits for a reply."""
        has_work = (self._n_expected > 0 or self._has_more) and not self._is_over
        return has_work or not self._inbox.empty()

    @property
    def _has_more(self) -> bool:
        """Whether there are frames or bytes to send."""
        is_mid_frame = bool(self._unsent) or self._connection.has_unsent
        return is_mid_frame or not self._outbox.is_empty or self._segments.has_more

    def _end(self, error: Exception | None, *, notifies: bool = True) -> None:
        """Ends the stream, and wakes the thread that reads."""
        with self._lock:
            was_over, self._is_over = self._is_over, True
            has_leader = self._readers.leader is not None
        if was_over:
            return
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        if notifies:
            self._on_end(error)
        if not has_leader:
            self._free()

    def _free(self) -> None:
        """Closes the file descriptors, once no thread reads."""
        with self._writing:
            was_freed, self._is_freed = self._is_freed, True
            if not was_freed:
                self._connection.close()
                self._wake.close()
                self._segments.close()
                self._parser.close()
                self._unsent = []


def _no_op() -> None:
    """Does nothing: frames about segments leave with the next message or tick."""


def _remaining_s(until: float | None) -> float | None:
    """Returns how many seconds are left; None for no limit."""
    return None if until is None else max(until - time.monotonic(), 0.0)
