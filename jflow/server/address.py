"""Which addresses a server may listen on."""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import socket
from typing import Any

from jflow.cluster import Task, split_address
from jflow.errors import InvalidArgumentError

_LOG = logging.getLogger(__name__)


def listening_host(host: str, task: Task, *, is_encrypted: bool) -> str:
    """Resolves a host name of a cluster to the host to bind, which must be of this machine.

    Other users of the network can read and change what passes beyond the loopback interface without
    encryption, so listening there requires certificates or JFLOW_INSECURE=1.

    Args:
      host: the name in the cluster.
      task: the task with this address, for messages.
      is_encrypted: whether the task has certificates.

    Raises:
      InvalidArgumentError: if the name does not resolve, belongs to another machine, or is not a
        loopback address, there are no certificates and JFLOW_INSECURE is not set.
    """
    if host == "localhost":
        return "127.0.0.1"
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise InvalidArgumentError(
            f"{task} cannot listen at {host!r}, its host in the cluster: the name does not resolve "
            f"({error}); correct the cluster, or make the name known to this machine"
        ) from None
    if all(_is_loopback(str(address[0])) for *_, address in found):
        return host
    if not any(_is_of_this_machine(kind, address) for kind, *_, address in found):
        raise InvalidArgumentError(
            f"{task} cannot listen at {host!r}, its host in the cluster: that is the address of "
            "another machine; start the task there, or correct the cluster or the task"
        )
    if is_encrypted:
        return host
    if os.environ.get("JFLOW_INSECURE") != "1":
        raise InvalidArgumentError(
            f"{host!r} is not a loopback address, and traffic to it would not be encrypted; make "
            "certificates with `jflow certs init` and set JFLOW_TLS_DIR, or set JFLOW_INSECURE=1 "
            "if all users of that network may read and change it"
        )
    _LOG.warning("listening on %s without encryption, because JFLOW_INSECURE=1", host)
    return host


def own_hosts(address: str, bound: str) -> frozenset[str]:
    """The hosts, in lower case, by which callers may call a server.

    Args:
      address: its address in the cluster.
      bound: the host that it listens at.
    """
    names = {split_address(address)[0], bound}
    if is_loopback(bound):
        names |= {"localhost", "127.0.0.1", "::1"}
    else:
        names |= {socket.gethostname(), *_resolved(bound)}
    return frozenset(name.lower() for name in names)


def _resolved(host: str) -> set[str]:
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return set()
    return {str(address[0]) for *_, address in found}


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host that `listening_host` has returned."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return all(_is_loopback(str(address[0])) for *_, address in found)


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.split("%", maxsplit=1)[0]).is_loopback


def _is_of_this_machine(kind: int, address: tuple[Any, ...]) -> bool:
    """Whether an address belongs to this machine: only then can its ports be bound."""
    try:
        with socket.socket(kind) as one:
            one.bind(address)
    except OSError as error:
        return error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    return True
