"""Both ends of a stream within a process: a client's threads and a server's event loop.

The handshake is that of all streams, frame by frame. From then on each message is handed over as
one: its control part, which is the same bytes as elsewhere, and its tensors as arrays.

- What a client sends is copied, in its own thread: the caller may write to its arrays once the call
  is over, and the server may keep them, in a variable or a queue.
- What a server sends is not, unless it is small. It never changes: a result is a buffer of its own,
  and that of a variable is leased for as long as there are references to the array. The client gets
  it read-only, as from a session without a server, because others may have the same memory.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import numpy as np

from jflow.base.deadline import Deadline
from jflow.base.values import Array, SentArray, is_string_tensor, raw_bytes, read_strings
from jflow.net.protocol.buffers import receive_buffer
from jflow.net.protocol.frame import NOTHING, SMALL_BYTES, Message, check_control
from jflow.net.protocol.framing import Framing
from jflow.net.protocol.inbox import Inbox
from jflow.net.protocol.interrupts import Interrupts, deferred_interrupts
from jflow.net.protocol.offers import DataOffer
from jflow.net.protocol.transport import BrokenStreamError
from jflow.net.wire.machine import machine_id

T = TypeVar("T")

KIND = "inproc"

_LINGER_S = 1.0
"""For how long the thread that completes futures stays after it was needed, in seconds."""


class InprocClient:
    """A client's end of a stream within the process; see `ClientStream` and `ClientData`.

    Args:
      loop: the event loop of the server.
      received: takes each frame of the handshake; on the event loop, so it must not block.
      ended: called once when the server has ended the stream, on a thread of its own.
    """

    kind = KIND

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        received: Callable[[Any], object],
        ended: Callable[[BrokenStreamError | None], object],
    ) -> None:
        self.machine = machine_id()
        self._loop = loop
        self._on_message = received
        self._on_end = ended
        self._inbox: Inbox | None = None  # of the server's end, while there is one
        self._completions = _Completions()
        self._is_closed = False
        self.n_signs = 0

    # On the client's threads ----------------------------------------------------------------------

    def attach(
        self,
        offer: DataOffer | None,
        limit: Deadline,
        received: Callable[[Message], object],
        ended: Callable[[Exception | None], object],
    ) -> InprocClient:
        self._on_message, self._on_end = received, ended
        return self

    def send(self, key: int, control: bytes, tensors: Sequence[SentArray]) -> None:
        with deferred_interrupts():
            self.send_now(control, tensors)

    def send_now(self, control: bytes, tensors: Sequence[SentArray]) -> bool:
        self._call(self._put, _message(control, list(map(_copy_tensor, tensors))))
        return True

    def get(self, answers: SimpleQueue[T], timeout: float | None, interrupts: Interrupts) -> T:
        return interrupts.waiting(answers.get, timeout=timeout)

    def expect(self, n: int) -> None:
        """Does nothing: the event loop delivers what arrives."""

    def complete(self, function: Callable[[], object]) -> None:
        self._completions.add(function)

    def tick(self) -> None:
        """Does nothing: the event loop delivers what arrives."""

    def close(self) -> None:
        self._is_closed = True
        self._call(self._end)

    def _call(self, function: Callable[..., object], *args: Any) -> None:
        """Schedules a function on the event loop; does nothing if the loop is closed."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *args)

    # On the event loop ----------------------------------------------------------------------------

    def begin(self, inbox: Inbox) -> None:
        """Sets the inbox of the server's end, to which messages go."""
        self._inbox = inbox
        if self._is_closed:
            self._end()

    def take(self, frame: Any) -> None:
        """Receives a frame of the handshake or a message from the server."""
        self.n_signs += 1
        self._on_message(frame)

    def end(self, cause: BrokenStreamError | None) -> None:
        """Ends the stream from the server's end, with the error if it broke."""
        self._end()
        if not self._is_closed:
            # What ends with it may call functions of the user's, which may block.
            self._completions.add(partial(self._on_end, cause))

    def _put(self, message: Message) -> None:
        inbox = self._inbox
        if inbox is not None:
            inbox.put(message)

    def _end(self) -> None:
        inbox, self._inbox = self._inbox, None
        if inbox is not None:
            inbox.end(None)


class InprocStream:
    """A server's end of a stream within the process; see `protocol.transport.FrameStream`.

    Args:
      client: the other end.
      outgoing: the client's frames of the handshake.
    """

    kind = KIND
    caller_names = None
    machine = ""
    eof: object = None
    errors: tuple[type[Exception], ...] = (BrokenStreamError,)

    def __init__(self, client: InprocClient, outgoing: Iterator[bytes]) -> None:
        loop = asyncio.get_running_loop()
        self.inbox = Inbox()
        self.client = client
        # In a thread, because the next frame may not have been made yet.
        self.read: Callable[[], Awaitable[Any]] = partial(
            loop.run_in_executor, None, next, outgoing, self.eof
        )
        client.begin(self.inbox)

    async def write(self, frame: Any) -> None:
        self.client.take(frame)

    def broken(self, error: Exception) -> BrokenStreamError:
        return error if isinstance(error, BrokenStreamError) else BrokenStreamError(str(error))

    def offer(self) -> _Upgrade:
        return _Upgrade(self)

    async def attach(self, offer: DataOffer | None) -> None:
        """Does nothing: a server's end never attaches a data stream."""

    async def close(self) -> None:
        self.inbox.end(None)


class _Upgrade:
    """Switches a stream from the frames of the handshake to whole messages."""

    offer = None

    def __init__(self, stream: InprocStream) -> None:
        self._stream = stream

    async def chosen(self) -> tuple[InprocStream, Framing]:
        self._stream.read = self._stream.inbox.get
        return self._stream, _ObjectFraming(self._stream)


class _ObjectFraming:
    """The framing of messages that are passed as objects: each is one frame; see `Framing`."""

    def __init__(self, stream: InprocStream) -> None:
        self._client = stream.client
        self.offer_first, self.close = stream.inbox.offer_first, stream.inbox.close
        self.n_received = 0

    def frames(
        self, message_id: int, control: bytes, tensors: Sequence[SentArray]
    ) -> Iterator[Message]:
        yield _message(control, list(map(_share_tensor, tensors)))

    def write_now(self, message_id: int, control: bytes, tensors: Sequence[SentArray]) -> bool:
        self._client.take(_message(control, list(map(_share_tensor, tensors))))
        return True

    def feed(self, read: Message) -> Message:
        return read

    def watch_long(self, on_long: Callable[[Message], object]) -> None:
        """Does nothing: no message arrives in parts."""

    def is_sign_of_life(self, frame: Message) -> bool:
        return False


def _message(control: bytes, tensors: Sequence[Array]) -> Message:
    check_control(control)
    return Message(0, control, NOTHING, tensors=tensors)


def _copy_tensor(tensor: SentArray) -> Array:
    """Copies a tensor for a message; large ones into a pooled buffer."""
    whole = np.asarray(tensor)
    if is_string_tensor(whole):
        strings, _ = read_strings(raw_bytes(whole), whole.size)
        return strings.reshape(whole.shape)
    if whole.nbytes <= SMALL_BYTES:
        return np.array(whole)
    copy = receive_buffer(whole.nbytes)
    copy[:] = raw_bytes(whole)
    return copy.view(whole.dtype).reshape(whole.shape)


def _share_tensor(tensor: SentArray) -> Array:
    """Returns a read-only view of a tensor, or a copy if it is small, which is faster."""
    if tensor.nbytes <= SMALL_BYTES:
        return np.array(tensor)
    view = np.asarray(tensor).view()
    view.flags.writeable = False
    return view


class _Completions:
    """Calls functions one after the other, on a thread that exists while it is needed."""

    def __init__(self) -> None:
        self._functions: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._lock = threading.Lock()
        self._is_running = False

    def add(self, function: Callable[[], object]) -> None:
        self._functions.put(function)
        with self._lock:
            starts, self._is_running = not self._is_running, True
        if starts:
            try:
                threading.Thread(target=self._run, name="jflow completions", daemon=True).start()
            except BaseException:  # no thread can be started
                self._is_running = False
                raise

    def _run(self) -> None:
        while True:
            try:
                function = self._functions.get(timeout=_LINGER_S)
            except Empty:
                with self._lock:
                    if self._functions.empty():
                        self._is_running = False
                        return
            else:
                function()
