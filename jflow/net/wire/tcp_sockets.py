"""Sockets of TCP for data streams: one port, at all addresses of a server and at no others."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Sequence

from jflow.base.cluster import join_address
from jflow.errors import UnavailableError

_BACKLOG = 128
_ATTEMPTS = 16
"""How many ports are tried that are free at the first address, and not at all others."""


def are_loopback(hosts: Sequence[str]) -> bool:
    """Whether only this machine reaches these numeric addresses."""
    return all(ipaddress.ip_address(host.partition("%")[0]).is_loopback for host in hosts)


def listen(hosts: Sequence[str]) -> tuple[list[socket.socket], int]:
    """Sockets that listen at a port of all numeric addresses, which the system chooses; the port.

    Raises:
      UnavailableError: if there can be none.
    """
    for _ in range(_ATTEMPTS):
        listening: list[socket.socket] = []
        port = 0
        try:
            for host in hosts:
                listening.append(_listening(host, port))
                port = listening[-1].getsockname()[1]
        except OSError as error:
            for one in listening:
                one.close()
            if error.errno != errno.EADDRINUSE or not listening:
                where = join_address(hosts[len(listening)], port)
                raise UnavailableError(f"no data streams over TCP at {where}: {error}") from error
        else:
            return listening, port
    raise UnavailableError(
        f"no data streams over TCP: no port was found that is free at all of {', '.join(hosts)}"
    )


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens at an address. Raises OSError."""
    one = bound(host, port)
    try:
        one.listen(_BACKLOG)
    except BaseException:
        one.close()
        raise
    return one


def bound(host: str, port: int, *, reuses: bool = False) -> socket.socket:
    """A socket that is bound to an address and does not listen. Raises OSError.

    Args:
      host: the numeric address.
      port: the port; 0 for one that the system chooses.
      reuses: whether the port may be one whose server has ended less than a minute ago.
    """
    family, *_, where = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )[0]
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setblocking(False)
        if family == socket.AF_INET6:
            # As gRPC does, callers of all addresses (::) may come by IPv4.
            is_all = ipaddress.ip_address(host.partition("%")[0]).is_unspecified
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not is_all)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuses)
        one.bind(where)
    except BaseException:
        one.close()
        raise
    return one
