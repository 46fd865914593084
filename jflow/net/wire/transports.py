"""The registry of transports, by the names in targets and servers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from jflow.base.cluster import Target, checked_cluster_name
from jflow.base.deadline import FOREVER, Deadline
from jflow.errors import InvalidArgumentError
from jflow.net.protocol import MasterClient, OtherVersionError, Secret, Transport, Users
from jflow.net.wire.data_streams import chosen_data_streams
from jflow.net.wire.grpc_client import GrpcTransport
from jflow.net.wire.inproc import InprocTransport
from jflow.net.wire.tls import Tls, load_tls
from jflow.net.wire.token import load_token
from jflow.net.wire.users import UsersFile, users_path

_CLUSTER_VARIABLE = "JFLOW_CLUSTER"


def _grpc(tls: Tls | None) -> Transport:
    """Makes the gRPC transport, with the data streams and in-process sessions that are allowed."""
    choice = chosen_data_streams()
    transport = GrpcTransport(tls, choice)
    if not choice.has_inproc:
        return transport
    return InprocTransport(transport, is_encrypted=tls is not None)


TRANSPORTS: Mapping[str, Callable[[Tls | None], Transport]] = {
    "grpc": _grpc,
}
"""Constructors of transports, by the name of the protocol; with the certificates of this end."""


def load_secret() -> Secret:
    """Loads this user's token. Raises as `load_token`."""
    return Secret(load_token())


def load_users() -> Users:
    """Loads the users of this cluster. Raises as `UsersFile`."""
    return UsersFile(users_path())


def cluster_name() -> str:
    """Returns the name of the cluster of this process, JFLOW_CLUSTER; "" if it is not set.

    Raises:
      InvalidArgumentError: if it is not a valid name.
    """
    try:
        return checked_cluster_name(os.environ.get(_CLUSTER_VARIABLE, ""))
    except ValueError as error:
        raise InvalidArgumentError(f"{_CLUSTER_VARIABLE}: {error}") from None


def connect(
    target: str | Target, connect_timeout: float, deadline: Deadline = FOREVER
) -> MasterClient:
    """Opens a client's session on a server.

    Args:
      target: the server that is meant; a text is parsed as `Target.parse` does.
      connect_timeout: the longest time to wait for it, in seconds.
      deadline: of the call that needs the session.

    Raises:
      OpError: as `MasterClient`, `load_token`, `load_tls` and `cluster_name`.
      ValueError: if the target is malformed.
    """
    meant = Target.parse(target) if isinstance(target, str) else target
    if not meant.cluster:
        meant = replace(meant, cluster=cluster_name())
    transport = TRANSPORTS["grpc"](load_tls(None))
    client = partial(MasterClient, transport, load_secret(), meant, connect_timeout, deadline)
    try:
        return client()
    except OtherVersionError as error:
        return client(version=error.version)
