"""Messages between a process and its validator: a kind, flags and a length before the bytes."""

from __future__ import annotations

import socket
import struct
import time
from enum import IntEnum
from typing import NamedTuple

from jflow.plan.xla.modules import ModuleFacts
from jflow.plan.xla.validation import ValidProgram

_HEADER = struct.Struct("<BBQ")
_PIECE = 1 << 20

LAST = 1 << 7
"""The flag of an answer after which the validator ends, because it has used much memory."""


class MessageKind(IntEnum):
    """The kind of a message."""

    READY = 0
    """The validator takes programs from now on."""
    PROGRAM = 1
    """A program; the answer is one of the next two."""
    VALID = 2
    """The program, serialized again; the flags are what is known about it."""
    REFUSED = 3
    """Why a program is refused."""


class ValidatorMessage(NamedTuple):
    """A message to or from the validator."""

    kind: MessageKind
    data: bytes
    flags: int = 0


def valid(program: ValidProgram) -> ValidatorMessage:
    """Returns the message for a valid program."""
    facts = program.facts
    flags = sum(fact << number for number, fact in enumerate(vars(facts).values()))
    return ValidatorMessage(MessageKind.VALID, program.data, flags)


def program_of(message: ValidatorMessage) -> ValidProgram:
    """Decodes the valid program from a message."""
    names = ModuleFacts.__dataclass_fields__
    facts = {name: bool(message.flags >> number & 1) for number, name in enumerate(names)}
    return ValidProgram(message.data, ModuleFacts(**facts))


def send(through: socket.socket, message: ValidatorMessage, deadline: float | None = None) -> None:
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
    through.sendall(message.data)


def receive(through: socket.socket, limit: int, deadline: float | None = None) -> ValidatorMessage:
    """Receives a message of at most `limit` bytes. Deadline and errors as for `send`."""
    kind, flags, n_bytes = _HEADER.unpack(_exactly(through, _HEADER.size, deadline))
    if n_bytes > limit or kind not in iter(MessageKind):
        raise ConnectionError(f"a message has {n_bytes} bytes, expected at most {limit}")
    return ValidatorMessage(MessageKind(kind), _exactly(through, n_bytes, deadline), flags)


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
