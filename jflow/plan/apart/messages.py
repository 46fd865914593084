"""Messages to and from a process apart: a kind, flags and a length before the bytes."""

from __future__ import annotations

import socket
import struct
import time
from enum import IntEnum
from typing import NamedTuple

_HEADER = struct.Struct("<BBQ")
_PIECE = 1 << 20

LAST = 1 << 7
"""The flag of an answer after which the process ends, because it has used much memory."""


class MessageKind(IntEnum):
    """The kind of a message."""

    READY = 0
    """The process takes work from now on."""
    WORK = 1
    """A piece of work; it is answered with BEGUN, and then with one of the other two."""
    BEGUN = 2
    """The work has arrived, so that from now on an end of the process is due to it."""
    DONE = 3
    """The result; what the flags say depends on the work."""
    REFUSED = 4
    """Why there is no result; flags as of DONE."""


class ApartMessage(NamedTuple):
    """A message to or from a process apart."""

    kind: MessageKind
    data: bytes = b""
    flags: int = 0


def send(through: socket.socket, message: ApartMessage, deadline: float | None = None) -> None:
    """Sends a message.

    Args:
      through: the connection.
      message: the message.
      deadline: when to give up, by `time.monotonic()`; None for never.

    Raises:
      TimeoutError: if the deadline has passed.
      ConnectionError: if the other end is closed.
    """
    through.settimeout(_left(deadline))
    through.sendall(_HEADER.pack(message.kind, message.flags, len(message.data)))
    if message.data:  # sending nothing fails, too, if the other end has taken the rest and closed
        through.sendall(message.data)


def receive(through: socket.socket, limit: int, deadline: float | None = None) -> ApartMessage:
    """Receives a message of at most `limit` bytes. Deadline and errors as for `send`."""
    kind, flags, n_bytes = _HEADER.unpack(_exactly(through, _HEADER.size, deadline))
    if n_bytes > limit or kind not in iter(MessageKind):
        raise ConnectionError(f"a message has {n_bytes} bytes, expected at most {limit}")
    return ApartMessage(MessageKind(kind), _exactly(through, n_bytes, deadline), flags)


def _exactly(through: socket.socket, n_bytes: int, deadline: float | None) -> bytes:
    received = bytearray()
    while len(received) < n_bytes:
        through.settimeout(_left(deadline))
        piece = through.recv(min(n_bytes - len(received), _PIECE))
        if not piece:
            raise ConnectionError("the other end is closed")
        received += piece
    return bytes(received)


def _left(deadline: float | None) -> float | None:
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
