"""Which address a server may listen on."""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import socket

from jflow.cluster import Task, split_address
from jflow.errors import InvalidArgumentError

_LOG = logging.getLogger(__name__)


def listening_host(task: Task, address: str) -> str:
    """The host to bind for a task's address: what the cluster says, and only on this machine.

    Anybody who can reach a port beyond the loopback can read what passes, the token included, so
    that needs JFLOW_INSECURE=1.

    Raises:
      InvalidArgumentError: if the host's name cannot be resolved, it is another machine, or it is
        not a loopback one and JFLOW_INSECURE is not set.
    """
    host, _ = split_address(address)
    if host == "localhost":
        return "127.0.0.1"
    told = f"{task} is to listen at {address!r}, but"
    try:
        found = {(info[0], info[4]) for info in socket.getaddrinfo(host, 0)}
    except (OSError, UnicodeError) as error:
        raise InvalidArgumentError(f"{told} {host!r} cannot be resolved: {error}") from None
    if not any(_is_of_this_machine(family, where) for family, where in found):
        raise InvalidArgumentError(
            f"{told} {host!r} is not an address of this machine: start this task there, correct "
            "the address, or say which task this process is (--job and --index on the command "
            'line, job_name and task_index, or TF_CONFIG["task"])'
        )
    if all(ipaddress.ip_address(str(where[0]).split("%")[0]).is_loopback for _, where in found):
        return host
    if os.environ.get("JFLOW_INSECURE") != "1":
        raise InvalidArgumentError(
            f"{told} {host!r} is not a loopback address, and traffic to it would not be encrypted; "
            "set JFLOW_INSECURE=1 if everybody on that network may read and change it"
        )
    _LOG.warning("listening on %s without encryption, because JFLOW_INSECURE=1", host)
    return host


def _is_of_this_machine(family: int, where: tuple[object, ...]) -> bool:
    try:
        with socket.socket(family) as probe:
            probe.bind(where)
    except OSError as error:
        return error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    return True
