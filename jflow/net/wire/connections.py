"""`DataConnection`: one end of a data stream's connection; its calls never block.

A Unix socket may pass file descriptors beside the bytes.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from jflow.errors import InvalidArgumentError
from jflow.net.protocol.frame import Buffers

MAX_BUFFERS = 64
"""How many buffers one system call sends at most; the kernel takes 1024."""

MAX_DESCRIPTORS = 4
"""How many file descriptors one system call receives at most."""

SEND_BYTES = 448 << 10
"""The send buffer of a socket, of which Linux makes twice as much. A sender that waited for the
receiver in the middle of a message would be woken several times for one; the kernel uses memory
only for what is on its way. A frame of `CHUNK_BYTES` must not fit: that it was taken is a sign of
life of the other end."""

_ROOM = socket.CMSG_SPACE(MAX_DESCRIPTORS * struct.calcsize("i"))


class DataConnection(Protocol):
    """One end of a connection. One thread may send while another one receives.

    Attributes:
      kind: "unix" or "tcp".
      passes_files: whether file descriptors can go with the bytes.
      is_encrypted: whether the bytes are.
      has_buffered: whether it holds received bytes, which no poll shows; never if `receive_into`
        has just returned fewer than it was asked for.
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
        """Returns the file descriptor of the socket, to poll."""

    def shutdown(self, how: int) -> None:
        """Shuts down one or both directions; see `socket.socket.shutdown`. Raises OSError."""

    def close(self) -> None:
        """Closes the socket."""

    def receive_into(self, buffer: memoryview, take: Callable[[Sequence[int]], object]) -> int:
        """Receives bytes; returns their number, 0 at the end of the stream.

        Args:
          buffer: where the bytes go.
          take: takes the file descriptors that have come with them.

        Raises:
          BlockingIOError: if there are none yet.
          OSError: if the connection broke.
          InvalidArgumentError: if more files come than the other end ever sends at once.
        """

    def send(self, buffers: Buffers, descriptor: int | None = None) -> int:
        """Sends the first of some buffers, as far as possible now; returns the number of bytes.

        Args:
          buffers: what to send, perhaps nothing.
          descriptor: a file descriptor to go with it.

        Raises:
          BlockingIOError: if nothing is taken now.
          OSError: if the connection broke.
        """


class SocketConnection:
    """An unencrypted Unix or TCP socket; see `DataConnection`.

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
            with suppress(OSError):  # the system allows less
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)
        else:
            without_delay(connected)
        self.fileno, self.shutdown = connected.fileno, connected.shutdown
        self.close = connected.close

    def receive_into(self, buffer: memoryview, take: Callable[[Sequence[int]], object]) -> int:
        if not self.passes_files:
            return self._socket.recv_into(buffer)
        n_bytes, ancillary, flags, _ = self._socket.recvmsg_into(
            [buffer], _ROOM, socket.MSG_CMSG_CLOEXEC
        )
        if ancillary:
            for level, kind, data in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    take(struct.unpack(f"{len(data) // 4}i", data))
            if flags & socket.MSG_CTRUNC:
                raise InvalidArgumentError(f"more than {MAX_DESCRIPTORS} files come at once")
        return n_bytes

    def send(self, buffers: Buffers, descriptor: int | None = None) -> int:
        if descriptor is not None:
            return socket.send_fds(self._socket, buffers[:MAX_BUFFERS], [descriptor])
        if len(buffers) == 1:  # quicker, which a small step feels
            return self._socket.send(buffers[0])
        return self._socket.sendmsg(buffers[:MAX_BUFFERS])


def without_delay(connected: socket.socket) -> None:
    """Sets TCP_NODELAY, so that TCP sends small messages at once."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def close_in_thread(descriptors: Sequence[int]) -> None:
    """Closes file descriptors from another process, in a thread, because closing may block.

    A socket whose other end does not read, for example, blocks for as long as its SO_LINGER says.
    """
    if descriptors:
        threading.Thread(
            target=_close, args=(descriptors,), name="jflow closes files", daemon=True
        ).start()


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        with suppress(OSError):
            os.close(descriptor)
