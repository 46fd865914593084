"""Main loop of the validator process: validates one program after another."""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
from typing import NoReturn

from jflow.base.text import printable
from jflow.errors import InvalidArgumentError
from jflow.plan.validator.messages import LAST, MessageKind, ValidatorMessage, receive, send, valid
from jflow.plan.xla.validation import MAX_PROGRAM_BYTES, validated

_MAX_REASON = 2000
_SOCKET = 3
"""The number of the socket of a validator that was forked, the first behind the standard files."""
_LARGE = 1 << 30
"""A process that keeps so much memory behind a program, in bytes, ends: the next one has it not."""


def main() -> None:
    """Runs the validator in a new Python process.

    Its arguments are the number of its socket, the seconds that a program may take, and the bytes
    that it may allocate for one.
    """
    run(*map(int, sys.argv[1:]))


def become(number: int, seconds: int, n_bytes: int) -> NoReturn:
    """Runs the validator in a process that has just been forked; arguments as of `main`.

    Of the other process it keeps the socket only: no files, terminal, signals or settings of jflow.
    """
    try:
        os.setsid()
        for one in (signal.SIGTERM, signal.SIGINT):
            signal.signal(one, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        through = os.dup(number)  # above 2, whatever is closed in this process
        for file in range(_SOCKET):
            os.dup2(null, file)
        os.dup2(through, _SOCKET)
        os.closerange(_SOCKET + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        for name in [name for name in os.environ if name.startswith("JFLOW_")]:
            del os.environ[name]
        run(_SOCKET, seconds, n_bytes)
    finally:
        os._exit(1)


def run(number: int, seconds: int, n_bytes: int) -> NoReturn:
    """Validates programs until the peer closes the socket; arguments as of `main`."""
    _limit(n_bytes)
    with socket.socket(fileno=number) as through:
        send(through, ValidatorMessage(MessageKind.READY, b""))
        is_last = False
        while not is_last:
            try:
                message = receive(through, MAX_PROGRAM_BYTES)
            except ConnectionError:  # the process that this one validates for has ended
                break
            # The default action of this signal ends the process, also within MLIR.
            signal.alarm(seconds)
            reply = _answer(message.data)
            signal.alarm(0)
            is_last = _is_large()
            send(through, reply._replace(flags=reply.flags | LAST) if is_last else reply)
    os._exit(0)


def _answer(data: bytes) -> ValidatorMessage:
    try:
        return valid(validated(data))
    except InvalidArgumentError as error:
        return ValidatorMessage(
            MessageKind.REFUSED, printable(error.message[:_MAX_REASON]).encode()
        )


def _limit(n_bytes: int) -> None:
    """Limits the memory of this process; forbids it to write files and core dumps."""
    limits = {
        resource.RLIMIT_AS: _used_bytes(0) + n_bytes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
    }
    for kind, most in limits.items():
        _, hard = resource.getrlimit(kind)
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (allowed, allowed))


def _is_large() -> bool:
    # Not `ru_maxrss`, which a new process has of the one that started it.
    return _used_bytes(1) > _LARGE


def _used_bytes(field: int) -> int:
    """Returns the bytes of virtual (`field` 0) or resident (1) memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[field]) * resource.getpagesize()
