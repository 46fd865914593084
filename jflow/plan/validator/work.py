"""The validator's part of its process: limits, and the validation of one program."""

from __future__ import annotations

import resource
import signal
import socket

from jflow.base.text import printable
from jflow.errors import InvalidArgumentError
from jflow.plan.apart.main import used_bytes
from jflow.plan.apart.messages import ApartMessage, MessageKind
from jflow.plan.xla.modules import ModuleFacts
from jflow.plan.xla.validation import ValidProgram, validated

_MAX_REASON = 2000

_seconds = 0


def prepare(through: socket.socket, seconds: int, n_bytes: int) -> None:
    """Limits the time and memory for a program; forbids the process to write files."""
    global _seconds  # noqa: PLW0603 - the process has one limit
    _seconds = seconds
    limits = {resource.RLIMIT_AS: used_bytes(0) + n_bytes, resource.RLIMIT_FSIZE: 0}
    for kind, most in limits.items():
        _, hard = resource.getrlimit(kind)
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (allowed, allowed))


def answer(data: bytes) -> ApartMessage:
    """Validates a program. Returns it, serialized again; the flags are what is known about it."""
    # The default action of this signal ends the process, also within MLIR.
    signal.alarm(_seconds)
    try:
        return _valid(validated(data))
    except InvalidArgumentError as error:
        return ApartMessage(MessageKind.REFUSED, printable(error.message[:_MAX_REASON]).encode())
    finally:
        signal.alarm(0)


def _valid(program: ValidProgram) -> ApartMessage:
    flags = sum(fact << number for number, fact in enumerate(vars(program.facts).values()))
    return ApartMessage(MessageKind.DONE, program.data, flags)


def program_of(message: ApartMessage) -> ValidProgram:
    """Decodes the valid program from an answer."""
    names = ModuleFacts.__dataclass_fields__
    facts = {name: bool(message.flags >> number & 1) for number, name in enumerate(names)}
    return ValidProgram(message.data, ModuleFacts(**facts))
