"""`DataConnection`: one end of what carries the bytes of a data stream, and never blocks."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Protocol

from jflow.net.protocol.frame import Buffers
from jflow.net.wire.descriptors import receive_into, send, widen


class DataConnection(Protocol):
    """One end of a connection. One thread may send while another one receives.

    Attributes:
      kind: "unix" or "tcp".
      passes_files: whether file descriptors can go with the bytes.
      is_encrypted: whether the bytes are.
      has_buffered: whether bytes have come of which no poll tells; never if `receive_into` has just
        returned fewer than it was asked for.
      has_unsent: whether `send` has taken bytes that the kernel has not; then call it again.
    """

    @property
    def kind(self) -> str: ...

    @property
    def passes_files(self) -> bool: ...

    @property
    def is_encrypted(self) -> bool: ...

    @property
    def has_buffered(self) -> bool: ...

    @property
    def has_unsent(self) -> bool: ...

    def fileno(self) -> int:
        """The descriptor of the socket, to poll."""

    def shutdown(self, how: int) -> None:
        """Ends one direction or both; see `socket.socket.shutdown`. Raises OSError."""

    def close(self) -> None:
        """Closes the socket."""

    def receive_into(self, buffer: memoryview, take: Callable[[Sequence[int]], object]) -> int:
        """Receives bytes; returns how many, 0 at the end.

        Args:
          buffer: where the bytes go.
          take: takes the file descriptors that have come with them.

        Raises:
          BlockingIOError: if there are none yet.
          OSError: if the connection broke.
        """

    def send(self, buffers: Buffers, descriptor: int | None = None) -> int:
        """Sends the first of some buffers, as far as they are taken; returns how many bytes.

        Args:
          buffers: what to send, perhaps nothing.
          descriptor: a file descriptor to go with it.

        Raises:
          BlockingIOError: if nothing is taken now.
          OSError: if the connection broke.
        """


class SocketConnection:
    """A socket of one machine (`AF_UNIX`) or of TCP, without encryption; see `DataConnection`.

    Args:
      connected: the socket; it belongs to the connection from now on.
    """

    is_encrypted = has_buffered = has_unsent = False

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self.passes_files = connected.family == socket.AF_UNIX
        self.kind = "unix" if self.passes_files else "tcp"
        if self.passes_files:
            widen(connected)
        else:
            without_delay(connected)
        self.fileno, self.shutdown = connected.fileno, connected.shutdown
        self.close = connected.close

    def receive_into(self, buffer: memoryview, take: Callable[[Sequence[int]], object]) -> int:
        if self.passes_files:
            return receive_into(self._socket, buffer, take)
        return self._socket.recv_into(buffer)

    def send(self, buffers: Buffers, descriptor: int | None = None) -> int:
        if len(buffers) == 1 and descriptor is None:  # quicker, which a small step feels
            return self._socket.send(buffers[0])
        return send(self._socket, buffers, descriptor)


def without_delay(connected: socket.socket) -> None:
    """Makes TCP send small messages at once."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
