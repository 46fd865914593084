"""Ports of servers: binds TCP sockets, and checks that no other process has a server's port.

What has a port is known on Linux only.

For all addresses (`0.0.0.0`, `::`) gRPC is content with those of IPv4 or those of IPv6, so another
user may have the port on the others. A process that can be reached by an address of the server
could pass a caller's handshake on.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from jflow.base.cluster import join_address
from jflow.base.text import printable
from jflow.errors import UnavailableError, UnknownError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_BACKLOG = 128
_ATTEMPTS = 16
"""How many ports are tried that are free at the first address, and not at all others."""


def are_loopback(hosts: Sequence[str]) -> bool:
    """Whether numeric addresses are reached from this machine only."""
    return all(numeric_address(host).is_loopback for host in hosts)


def numeric_address(host: str) -> Address:
    """Returns a numeric address, without the interface that it may name."""
    return ipaddress.ip_address(host.partition("%")[0])


def listen(hosts: Sequence[str]) -> tuple[list[socket.socket], int]:
    """Opens sockets that listen at one free port of all numeric addresses; also returns the port.

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
    """Opens a socket that listens at an address. Raises OSError."""
    one = bound(host, port)
    try:
        one.listen(_BACKLOG)
    except BaseException:
        one.close()
        raise
    return one


def bound(host: str, port: int, *, reuses: bool = False) -> socket.socket:
    """Opens a socket that is bound to an address and does not listen. Raises OSError.

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
            is_all = numeric_address(host).is_unspecified
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not is_all)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuses)
        one.bind(where)
    except BaseException:
        one.close()
        raise
    return one


_PROC = Path("/proc/self")
_LISTENS = "0A"
_VERSIONS = frozenset({4, 6})
_FREE = " (0 for any that is free)"


class _Listener(NamedTuple):
    """A listening socket.

    Attributes:
      address: where it listens; an IPv4 address if it is reached by IPv4 only.
      user: the number of the user of its process.
      inode: identifies the socket.
    """

    address: Address
    user: int
    inode: int


def check_free(host: str, port: int) -> None:
    """Checks that a server can listen at an address; gRPC itself would print why it cannot.

    Args:
      host: the numeric address.
      port: the port; 0 for one that the system chooses.

    Raises:
      UnknownError: if it cannot, with what has the port and what to do.
    """
    try:
        bound(host, port, reuses=True).close()
    except OSError as error:
        raise UnknownError(
            f"Could not start gRPC server: {join_address(host, port)} cannot be bound: "
            f"{_reason(error, host, port)}"
        ) from None


def _reason(error: OSError, host: str, port: int) -> str:
    """Explains why an address cannot be bound, and what to do."""
    if error.errno == errno.EACCES:
        return f"only root may listen at port {port}; choose one from 1024{_FREE}"
    if error.errno != errno.EADDRINUSE:
        return f"{error.strerror}; choose another address"
    process = "another process may be using the port"
    with suppress(OSError):
        mine, own = numeric_address(host), _own_sockets()
        for found in _listeners(port):
            if found.address == mine or found.address.is_unspecified or mine.is_unspecified:
                process = _listening_process(found, port, own)
    return f"{process}; stop it, if it is of an earlier run, or choose another port{_FREE}"


def check_alone(hosts: Sequence[str], port: int) -> None:
    """Checks that only sockets of this process listen at a server's addresses.

    Does nothing on systems that do not show their sockets in /proc.

    Args:
      hosts: the numeric addresses at which this process listens.
      port: the port.

    Raises:
      UnknownError: if another process listens at one of them; for 0.0.0.0 and ::, also if it only
        has the port, on one of IPv4 and IPv6.
    """
    try:
        listeners, own = [*_listeners(port)], _own_sockets()
    except OSError:
        return
    everywhere = [host for host in hosts if numeric_address(host).is_unspecified]
    addresses = {numeric_address(host) for host in hosts}
    for found in listeners:
        if found.inode not in own and (everywhere or found.address in addresses):
            raise UnknownError(
                f"Could not start gRPC server: {_listening_process(found, port, own)}, so "
                f"callers of {join_address(hosts[0], port)} could come to it; choose another port, "
                "or stop that process"
            )
    missing = _usable() - _reached_versions(listeners, own) if everywhere else frozenset[int]()
    for version in missing:
        raise UnknownError(
            f"Could not start gRPC server: {join_address(everywhere[0], port)} cannot be bound for "
            f"IPv{version}; another process may be using the port there, so choose another one, or "
            "an address instead of all of them"
        )


def _listening_process(found: _Listener, port: int, own: Mapping[int, int]) -> str:
    """Describes the process of a listening socket, for an error."""
    where = join_address(str(found.address), port)
    if found.inode in own:
        return f"a server of this process listens at {where}"
    return f"{_process_of(found.inode)} of the user with the number {found.user} listens at {where}"


def _process_of(inode: int) -> str:
    """Returns the number and name of the process that has a socket, unless another user owns it."""
    for process in _PROC.parent.glob("[0-9]*"):
        with suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                if os.readlink(descriptor) == f"socket:[{inode}]":
                    name = printable((process / "comm").read_text().strip())
                    return f"the process {process.name} ({name})"
    return "a process"


def _listeners(port: int) -> Iterator[_Listener]:
    """Yields the sockets of all processes that listen at a port. Raises OSError without /proc."""
    for table in ("tcp", "tcp6"):
        for line in (_PROC / "net" / table).read_text().splitlines()[1:]:
            _, local, _, state, _, _, _, user, _, inode, *_ = line.split()
            address, _, its_port = local.partition(":")
            if state == _LISTENS and int(its_port, 16) == port:
                yield _Listener(_decode_address(address), int(user), int(inode))


def _decode_address(address: str) -> Address:
    """Decodes an address of /proc/net: hexadecimal words in the machine's byte order."""
    words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
    decoded = ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))
    mapped = decoded.ipv4_mapped if isinstance(decoded, ipaddress.IPv6Address) else None
    return mapped or decoded


def _own_sockets() -> dict[int, int]:
    """Returns the file descriptors of this process's sockets, by inode."""
    sockets = {}
    for name in os.listdir(_PROC / "fd"):
        with suppress(OSError):  # it has been closed since
            if match := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(_PROC / "fd" / name)):
                sockets[int(match[1])] = int(name)
    return sockets


def _reached_versions(listeners: Sequence[_Listener], own: dict[int, int]) -> frozenset[int]:
    """Returns the IP versions of which all addresses lead to this process's sockets."""
    versions = set()
    for found in listeners:
        if found.inode in own and found.address.is_unspecified:
            versions.add(found.address.version)
            if found.address.version == 6 and _takes_both(own[found.inode]):
                versions.add(4)
    return frozenset(versions)


def _takes_both(descriptor: int) -> bool:
    with socket.socket(fileno=os.dup(descriptor)) as one:
        return not one.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)


def _usable() -> frozenset[int]:
    """Returns the IP versions of which this machine has addresses."""
    try:
        has_6 = bool((_PROC / "net" / "if_inet6").read_text())
    except OSError:
        has_6 = False
    return _VERSIONS if has_6 else frozenset({4})
