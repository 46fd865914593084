"""Closes the connections of callers that do not read what was sent to them.

gRPC sends the status of a stream after its last message, for which a caller may leave no window,
and offers servers no other way to end one. So its connection is shut down.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import grpc

from jflow.net.protocol import settings


class HangUps:
    """Shuts down connections of one server, which it finds among the process's open files.

    Attributes:
      port: the port of the server.
    """

    EACH_S = 0.25
    """Scanning all open files may take long, so one scan serves the connections of this time."""

    def __init__(self) -> None:
        self.port = 0
        self._peers: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    async def refuse(self, context: Any, status: grpc.StatusCode, message: str) -> None:
        """Ends a stream with a status, or its connection if the caller does not read that."""
        try:
            async with asyncio.timeout(settings.READ_S):
                await context.abort(status, message)
        except (TimeoutError, grpc.aio.InternalError):
            self._add(context.peer())

    def _add(self, peer: str) -> None:
        self._peers.add(unquote(peer))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self._peers:
            await asyncio.sleep(self.EACH_S)
            peers, self._peers = self._peers, set()
            with suppress(OSError):  # systems without /dev/fd
                await asyncio.to_thread(_shut_down, peers, self.port)


def _shut_down(peers: set[str], port: int) -> None:
    for name in os.listdir("/dev/fd"):
        with suppress(OSError), _duplicate(int(name)) as found:
            if _peer(found) in peers and found.getsockname()[1] == port:
                found.shutdown(socket.SHUT_RDWR)


def _duplicate(fd: int) -> socket.socket:
    """Returns a duplicate of a socket, which stays open when the original is closed.

    Raises:
      OSError: if it is no socket, or was closed.
    """
    # Locks of a file would be lost when a second descriptor of it is closed.
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        raise OSError(errno.ENOTSOCK, os.strerror(errno.ENOTSOCK))
    copy = os.dup(fd)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise


def _peer(connection: socket.socket) -> str:
    """Formats the address of the other end as gRPC does; "" if the socket is not TCP."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return ""
    host, port = connection.getpeername()[:2]
    v4 = host.removeprefix("::ffff:")
    return f"ipv6:[{host}]:{port}" if ":" in v4 else f"ipv4:{v4}:{port}"
