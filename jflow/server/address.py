"""Which address a server may listen on."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket

from jflow.errors import InvalidArgumentError

_LOG = logging.getLogger(__name__)


def listening_host(host: str) -> str:
    """The host to bind for a name in a cluster: what the cluster says, and only on this machine.

    Anybody who can reach a port beyond the loopback can read what passes, the token included, so
    that needs JFLOW_INSECURE=1.

    Raises:
      InvalidArgumentError: if the name is unknown, or is not a loopback one and JFLOW_INSECURE is
        not set.
    """
    if host == "localhost":
        return "127.0.0.1"
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise InvalidArgumentError(f"the host {host!r} cannot be resolved: {error}") from None
    if all(ipaddress.ip_address(address.split("%")[0]).is_loopback for address in found):
        return host
    if os.environ.get("JFLOW_INSECURE") != "1":
        raise InvalidArgumentError(
            f"{host!r} is not a loopback address, and traffic to it would not be encrypted; "
            "set JFLOW_INSECURE=1 if everybody on that network may read and change it"
        )
    _LOG.warning("listening on %s without encryption, because JFLOW_INSECURE=1", host)
    return host
