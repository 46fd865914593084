"""The registry of transports, by the names in targets and servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from jflow.deadline import FOREVER, Deadline
from jflow.protocol import MasterClient, Transport
from jflow.wire.grpc_transport import GrpcTransport
from jflow.wire.token import load_token

TRANSPORTS: Mapping[str, Callable[[str], Transport]] = {
    "grpc": GrpcTransport,
}
"""Constructors of transports, which take the token, by the name of the protocol."""


def transport_of(protocol: str) -> Transport:
    """The transport of that name, with this user's token.

    Raises:
      KeyError: if the name is unknown.
      OpError: as `load_token`.
    """
    return TRANSPORTS[protocol](load_token())


def connect(
    address: str, connect_timeout: float, deadline: Deadline = FOREVER, protocol: str = "grpc"
) -> MasterClient:
    """Opens a client's session on the server at an address. Raises as `MasterClient`."""
    return MasterClient(transport_of(protocol), address, connect_timeout, deadline)
