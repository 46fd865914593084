"""Decides on which addresses a server may listen, and by which it is reached."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jflow.base.cluster import Task, join_address, names_no_machine, numeric_host, split_address
from jflow.errors import InvalidArgumentError
from jflow.net.protocol import ServerLocation
from jflow.net.wire import machine_id
from jflow.net.wire.ports import are_loopback, numeric_address

_LOG = logging.getLogger(__name__)
_ADVERTISED = "JFLOW_ADVERTISE"


def listening_hosts(host: str, task: Task, *, is_encrypted: bool) -> tuple[str, ...]:
    """Resolves a host name of a cluster to the addresses to bind, which must be of this machine.

    All that the name stands for on this machine are bound. Otherwise another user's process could
    listen at one of them, and callers that use the name would come to it.

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
    try:
        addresses = _resolve_host(numeric_host(host))
    except (OSError, UnicodeError) as error:
        raise InvalidArgumentError(
            f"{task} cannot listen at {host!r}, its host in the cluster: the name does not resolve "
            f"({error}); correct the cluster, or make the name known to this machine"
        ) from None
    own = tuple(address for address in addresses if _is_of_this_machine(address))
    if not own:
        raise InvalidArgumentError(
            f"{task} cannot listen at {host!r}, its host in the cluster: that is the address of "
            "another machine; start the task there, or correct the cluster or the task"
        )
    if is_encrypted or are_loopback(own):
        return own
    if os.environ.get("JFLOW_INSECURE") != "1":
        raise InvalidArgumentError(
            f"{host!r} is not a loopback address, and traffic to it would not be encrypted; make "
            "certificates with `jflow certs init` and set JFLOW_TLS_DIR, or set JFLOW_INSECURE=1 "
            "if all users of that network may read and change it"
        )
    _LOG.warning("listening on %s without encryption, because JFLOW_INSECURE=1", host)
    return own


def location_at(bound: Sequence[str], advertised: Advertised | None = None) -> ServerLocation:
    """Returns where a server that listens at these addresses is reached.

    Args:
      bound: the addresses at which it listens.
      advertised: further addresses that lead to it; None for those of JFLOW_ADVERTISE.

    Raises:
      InvalidArgumentError: if JFLOW_ADVERTISE is malformed.
    """
    further = read_advertised() if advertised is None else advertised
    return ServerLocation(
        own_hosts(bound) | further.hosts,
        further.addresses,
        machine_id(),
        is_local=are_loopback(bound),
    )


class Advertised(NamedTuple):
    """Addresses at which callers reach a server, in addition to those of its listener.

    Attributes:
      hosts: other names of its host, in lower case, with its own port.
      addresses: "host:port" in lower case, such as that of a proxy or of a port that is mapped.
    """

    hosts: frozenset[str] = frozenset()
    addresses: frozenset[str] = frozenset()


def read_advertised(environ: Mapping[str, str] = os.environ) -> Advertised:
    """Parses JFLOW_ADVERTISE: "host" or "host:port", separated by commas.

    Raises:
      InvalidArgumentError: if one is malformed, or each machine has it, such as "localhost".
    """
    hosts, addresses = set(), set()
    for text in filter(None, map(str.strip, environ.get(_ADVERTISED, "").split(","))):
        try:
            host, port = split_address(text)
        except ValueError as error:
            raise InvalidArgumentError(f"{_ADVERTISED}: {error}") from None
        if names_no_machine(host):
            raise InvalidArgumentError(
                f"{_ADVERTISED} has {text!r}, which each machine has, so it does not lead to this "
                "server from everywhere; callers behind a tunnel add '?at=host:port' to the target"
            )
        if _has_port(text):
            addresses.add(join_address(host.lower(), port))
        else:
            hosts.add(host.lower())
    return Advertised(frozenset(hosts), frozenset(addresses))


def _has_port(address: str) -> bool:
    """Whether a well-formed address names its port."""
    host = address.removeprefix("grpc://")
    return ":" in host.rpartition("]")[2]


def own_hosts(bound: Sequence[str]) -> frozenset[str]:
    """Returns the hosts that callers may use, in lower case, in addition to that in the cluster.

    A name is among them only if the server listens at all addresses that it stands for on this
    machine, so that callers that use it cannot have come to another process.

    Args:
      bound: the addresses that it listens at.
    """
    names = ["localhost"]
    if not are_loopback(bound):  # where resolving that name may take seconds, and it is not used
        names.append(socket.gethostname())
    own_names = [name for name in names if _leads_to(name, bound)]
    return frozenset(name.lower() for name in (*bound, *own_names))


def _leads_to(name: str, bound: Sequence[str]) -> bool:
    """Whether the server listens at all addresses of a name."""
    if any(numeric_address(address).is_unspecified for address in bound):
        return True
    try:
        return set(_resolve_host(numeric_host(name))) <= {*bound}
    except (OSError, UnicodeError):
        return False


def _resolve_host(host: str) -> list[str]:
    """Resolves a host to its distinct addresses. Raises OSError or UnicodeError if it has none."""
    infos = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in infos))


def _is_of_this_machine(host: str) -> bool:
    """Whether an address belongs to this machine, so that its ports can be bound."""
    kind, *_, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    try:
        with socket.socket(kind) as one:
            one.bind(address)
    except OSError as error:
        return error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    return True
