"""`ClientChannel`: carries the messages of a client over its stream or its data stream."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TypeVar

from jflow.base.cluster import Target
from jflow.base.deadline import Deadline
from jflow.base.values import SentArray
from jflow.net.protocol.codec import frames_of
from jflow.net.protocol.frame import LARGE_BYTES, Message, encode, start_encoding
from jflow.net.protocol.handshake import INFO_ID
from jflow.net.protocol.interrupts import Interrupts, deferred_interrupts
from jflow.net.protocol.offers import DataOffer
from jflow.net.protocol.outbox import Outbox
from jflow.net.protocol.transport import BrokenStreamError, ClientData, ClientStream, Transport

T = TypeVar("T")


class ClientChannel:
    """Sends the messages of one client, from any thread, and waits for replies."""

    def __init__(self) -> None:
        self._frame_ids = itertools.count(1)
        self._outbox: Outbox[bytes] = Outbox()
        self._stream: ClientStream | None = None
        self._data: ClientData | None = None
        self._n_chunks = 0

    @property
    def name(self) -> str:
        """The kind of the stream that carries the messages; see `FrameStream`."""
        return "grpc" if self._data is None else self._data.kind

    @property
    def machine(self) -> str:
        """See `ClientStream`."""
        return "" if self._stream is None else self._stream.machine

    @property
    def n_signs(self) -> int:
        """A count of the server's signs of life, without the frames of the first stream."""
        return self._n_chunks + (0 if self._data is None else self._data.n_signs)

    def open(
        self,
        transport: Transport,
        service: str,
        target: Target,
        limit: Deadline,
        take: Callable[[bytes], bool],
        ended: Callable[[BrokenStreamError | None], object],
    ) -> None:
        """Opens the stream; see `Transport.open`."""
        self._stream = transport.open(service, target, limit, self._frames(), take, ended)

    def attach(
        self,
        offer: DataOffer | None,
        limit: Deadline,
        received: Callable[[Message], object],
        ended: Callable[[Exception | None], object],
    ) -> None:
        """Attaches the offered data stream, if possible; see `ClientStream.attach`."""
        if self._stream is not None:
            self._data = self._stream.attach(offer, limit, received, ended)

    @property
    def has_data(self) -> bool:
        """Whether a data stream carries the messages, so that no other stream may."""
        return self._data is not None

    def put(self, frame: bytes) -> None:
        """Sends a frame of the handshake."""
        self._outbox.put(INFO_ID, iter([frame]))

    def send_request(self, key: int, control: bytes, tensors: Sequence[SentArray]) -> None:
        """Sends a message at once if possible, else as `send`; call it inside `interrupts()`."""
        if self._data is None or not self._data.send_now(control, tensors):
            self.send(key, control, tensors)

    def send(self, key: int, control: bytes, tensors: Sequence[SentArray]) -> None:
        """Enqueues a message to send; messages of one key are sent in order.

        Args:
          key: the call that it belongs to.
          control: its control part, which describes the tensors.
          tensors: its tensors.

        Raises:
          ResourceExhaustedError: if it is too large.
        """
        if self._data is None:
            message = frames_of(encode, next(self._frame_ids), control, tensors)
            self._outbox.put(key, start_encoding(message))
        else:
            self._data.send(key, control, tensors)

    def get(self, answers: SimpleQueue[T], timeout: float | None, interrupts: Interrupts) -> T:
        """Waits for an item of a queue of replies; call it inside `interrupts()`.

        Raises Empty after `timeout` seconds.
        """
        if self._data is None:
            return answers.get(timeout=timeout)
        return self._data.get(answers, timeout, interrupts)

    def interrupts(self) -> Interrupts:
        """Returns the context manager of a call, in which this thread may use the stream."""
        return Interrupts() if self._data is None else deferred_interrupts()

    @contextmanager
    def expecting(self) -> Iterator[None]:
        """Context manager for sending a request for whose reply no thread waits."""
        with self.interrupts():
            self.expect(1)
            try:
                yield
            except BaseException:
                self.expect(-1)
                raise

    def expect(self, n: int) -> None:
        """Adds `n` to the number of expected replies for which no thread waits."""
        if self._data is not None:
            self._data.expect(n)

    def complete(self, function: Callable[[], object]) -> None:
        """Calls a function that handles a reply for which no thread waits."""
        if self._data is None:
            function()
        else:
            self._data.complete(function)

    def tick(self) -> None:
        """Receives messages for which no thread waits; call it periodically."""
        if self._data is not None:
            self._data.tick()

    def end_data(self) -> None:
        """Ends the data stream, if there is one."""
        if self._data is not None:
            self._data.close()

    def close(self) -> None:
        """Ends all streams; thread-safe."""
        self._outbox.close()
        self.end_data()
        if self._stream is not None:
            self._stream.close()

    def _frames(self) -> Iterator[bytes]:
        for frame in self._outbox.frames():
            yield frame
            self._n_chunks += len(frame) >= LARGE_BYTES
