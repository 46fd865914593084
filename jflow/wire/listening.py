"""Makes sure that at a server's port no other process listens beside it, as far as Linux tells.

For all addresses (`0.0.0.0`, `::`) gRPC is content with those of IPv4 or those of IPv6, so another
user may have the port on the others. A process that can be reached by an address of the server
could pass a caller's handshake on.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from jflow.cluster import join_address
from jflow.errors import UnknownError

_PROC = Path("/proc/self")
_LISTENS = "0A"
_VERSIONS = frozenset({4, 6})

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class _Listener(NamedTuple):
    """A socket that listens.

    Attributes:
      address: where; of IPv4, if only that is reached by it.
      user: the number of the user of its process.
      inode: identifies the socket.
    """

    address: Address
    user: int
    inode: int


def check_alone(hosts: Sequence[str], port: int) -> None:
    """Checks that sockets of this process are all that listen at a server's addresses.

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
    everywhere = [host for host in hosts if _address(host).is_unspecified]
    addresses = {_address(host) for host in hosts}
    for found in listeners:
        if found.inode not in own and (everywhere or found.address in addresses):
            where = join_address(str(found.address), port)
            raise UnknownError(
                f"Could not start gRPC server: a process of the user with the number {found.user} "
                f"listens at {where}, so callers of {join_address(hosts[0], port)} could come to "
                "it; choose another port, or stop that process"
            )
    missing = _usable() - _reached(listeners, own) if everywhere else frozenset[int]()
    for version in missing:
        raise UnknownError(
            f"Could not start gRPC server: {join_address(everywhere[0], port)} cannot be bound for "
            f"IPv{version}; another process may be using the port there, so choose another one, or "
            "an address instead of all of them"
        )


def _listeners(port: int) -> Iterator[_Listener]:
    """The sockets of all processes that listen at a port. Raises OSError if they are not known."""
    for table in ("tcp", "tcp6"):
        for line in (_PROC / "net" / table).read_text().splitlines()[1:]:
            _, local, _, state, _, _, _, user, _, inode, *_ = line.split()
            address, _, its_port = local.partition(":")
            if state == _LISTENS and int(its_port, 16) == port:
                yield _Listener(_decoded(address), int(user), int(inode))


def _decoded(address: str) -> Address:
    """An address of /proc/net: words of the machine's byte order, in hexadecimal."""
    words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
    found = ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def _address(host: str) -> Address:
    return ipaddress.ip_address(host.partition("%")[0])


def _own_sockets() -> dict[int, int]:
    """The descriptors of this process's sockets, by inode."""
    found = {}
    for name in os.listdir(_PROC / "fd"):
        with suppress(OSError):  # it has been closed since
            if match := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(_PROC / "fd" / name)):
                found[int(match[1])] = int(name)
    return found


def _reached(listeners: Sequence[_Listener], own: dict[int, int]) -> frozenset[int]:
    """The versions of IP of which all addresses lead to this process's sockets."""
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
    """The versions of IP that this machine has addresses of."""
    try:
        has_6 = bool((_PROC / "net" / "if_inet6").read_text())
    except OSError:
        has_6 = False
    return _VERSIONS if has_6 else frozenset({4})
