"""Reads and writes of a Unix socket, which may pass file descriptors beside the bytes."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

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


def widen(connected: socket.socket) -> None:
    """Makes the send buffer of a socket large, as far as the system allows it."""
    with suppress(OSError):
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BYTES)


def receive_into(
    connected: socket.socket, buffer: memoryview, take: Callable[[Sequence[int]], object]
) -> int:
    """Receives bytes; returns how many.

    Args:
      connected: the socket.
      buffer: where the bytes go.
      take: takes the file descriptors that have come with them.

    Raises:
      OSError: as `socket.recv_into`.
      InvalidArgumentError: if there are more than the other end ever sends at once.
    """
    n_bytes, ancillary, flags, _ = connected.recvmsg_into([buffer], _ROOM, socket.MSG_CMSG_CLOEXEC)
    if ancillary:
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                take(struct.unpack(f"{len(data) // 4}i", data))
        if flags & socket.MSG_CTRUNC:
            raise InvalidArgumentError(f"more than {MAX_DESCRIPTORS} files come at once")
    return n_bytes


def send(connected: socket.socket, buffers: Buffers, descriptor: int | None = None) -> int:
    """Sends the first of some buffers, as far as the kernel takes them; returns how many bytes.

    Args:
      connected: the socket.
      buffers: what to send.
      descriptor: a file descriptor to go with it.

    Raises:
      OSError: as `socket.sendmsg`.
    """
    if descriptor is None:
        return connected.sendmsg(buffers[:MAX_BUFFERS])
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", descriptor))
    return connected.sendmsg(buffers[:MAX_BUFFERS], [rights])


def close_aside(descriptors: Sequence[int]) -> None:
    """Closes file descriptors of unknown files, in a thread: closing some may block.

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
