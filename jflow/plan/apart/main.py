"""Main loop of a process apart: does one piece of work after the other."""

from __future__ import annotations

import importlib
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from typing import NoReturn, Protocol, cast

from jflow.plan.apart.messages import LAST, ApartMessage, MessageKind, receive, send

_SOCKET = 3
"""The number of the socket of a process that was forked, the first behind the standard files."""
_STDERR = 2
_LARGE = 1 << 30
"""A process that keeps so much memory behind work, in bytes, ends: the next one has it not."""
_MAX_WORK = 1 << 30


class ApartWork(Protocol):
    """What a module has that does work in a process apart."""

    def prepare(self, through: socket.socket, *arguments: int) -> None:
        """Prepares the process before it takes work.

        Args:
          through: its connection to the process that it works for, to see when that has ended.
          arguments: as that process has given them.
        """

    def answer(self, data: bytes) -> ApartMessage:
        """Does a piece of work and returns its result, DONE or REFUSED."""


def main() -> None:
    """Does work in a new Python process.

    Its arguments are the number of its socket, the name of the module that does the work (see
    `ApartWork`), and numbers for that.
    """
    number, module, *arguments = sys.argv[1:]
    run(int(number), module, *map(int, arguments))


def become(number: int, keeps_stderr: bool, module: str, *arguments: int) -> NoReturn:
    """Does work in a process that has just been forked; other arguments as of `main`.

    Of the other process it keeps the socket only, and standard error if it `keeps_stderr`: no other
    files, terminal, signals or settings of jflow.
    """
    try:
        os.setsid()
        for one in (signal.SIGTERM, signal.SIGINT):
            signal.signal(one, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDWR)
        through = os.dup(number)  # above 2, whatever is closed in this process
        for file in range(_STDERR if keeps_stderr else _SOCKET):
            os.dup2(null, file)
        os.dup2(through, _SOCKET)
        os.closerange(_SOCKET + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        for name in [name for name in os.environ if name.startswith("JFLOW_")]:
            del os.environ[name]
        run(_SOCKET, module, *arguments)
    finally:
        os._exit(1)


def run(number: int, module: str, *arguments: int) -> NoReturn:
    """Does work until the peer closes the socket; arguments as of `main`."""
    work = cast(ApartWork, importlib.import_module(module))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A ConnectionError says that the process that this one works for has ended.
    with socket.socket(fileno=number) as through, suppress(ConnectionError):
        work.prepare(through, *arguments)
        send(through, ApartMessage(MessageKind.READY))
        is_last = False
        while not is_last:
            message = receive(through, _MAX_WORK)
            send(through, ApartMessage(MessageKind.BEGUN))
            reply = work.answer(message.data)
            is_last = used_bytes(1) > _LARGE
            send(through, reply._replace(flags=reply.flags | LAST) if is_last else reply)
    os._exit(0)


def used_bytes(field: int) -> int:
    """Returns the bytes of virtual (`field` 0) or resident (1) memory of this process.

    Not `ru_maxrss`, which a new process has of the one that started it.
    """
    with open("/proc/self/statm") as file:
        return int(file.read().split()[field]) * resource.getpagesize()
