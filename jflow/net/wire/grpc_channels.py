"""Creates gRPC channels and servers with their options and credentials; nothing else does.

With other values, or without some of them, a second server silently shares a port that is in use, a
dead peer goes unnoticed for a minute, or a restarted one is found again only after six seconds
(docs/decisions/foundations.md#0001 has the measurements).
"""

from __future__ import annotations

import resource
from collections.abc import Sequence
from urllib.parse import quote

import grpc

from jflow.base.cluster import join_address, numeric_host, split_address
from jflow.errors import UnknownError
from jflow.net.protocol.frame import MAX_FRAME_BYTES
from jflow.net.protocol.heartbeat import LEAST_S, liveness_s
from jflow.net.protocol.settings import HELLO_S
from jflow.net.wire.ports import check_free
from jflow.net.wire.tls import Tls

_ENOUGH = 1 << 16
"""The limit that is asked for at most: some programs try all descriptors up to their limit."""


def raise_limit() -> int:
    """Raises the soft limit of open files as far as possible; returns the resulting limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError):  # the system has another limit, as macOS does
        return soft
    return wanted


def max_connections(n_addresses: int) -> int:
    """Returns how many connections to accept at each of a server's addresses.

    Together half of what this process may have open. The other half is for data streams, of which
    each has a connection beside it, and for connections to other tasks and files.

    Args:
      n_addresses: how many addresses the server listens at.
    """
    return max(raise_limit() // 2 // n_addresses, 1)


_LEAST_PING_INTERVAL_MS = int(LEAST_S * 1000 / 3)

_COMMON_OPTIONS = [
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MAX_FRAME_BYTES),
    ("grpc.max_send_message_length", MAX_FRAME_BYTES),
    # No compression: some versions of gRPC unpack a message before they look at its size.
    ("grpc.compression_enabled_algorithms_bitset", 1),
]

_CHANNEL_OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Despite its name it is also the limit of one connection attempt. Refused attempts are repeated
    # as quickly with it.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_http_proxy", 0),
    # Sessions on one server must not share a connection, which closing one of them could disturb.
    ("grpc.use_local_subchannel_pool", 1),
]

_SERVER_OPTIONS = [
    ("grpc.so_reuseport", 0),
    # Connections that do not even begin HTTP/2 are kept for two minutes without this option.
    ("grpc.server_handshake_timeout_ms", int(HELLO_S * 1000)),
    # Nor need one be kept that has no stream: jflow's callers open theirs at once, one each.
    ("grpc.max_connection_idle_ms", int(HELLO_S * 1000)),
    ("grpc.max_concurrent_streams", 4),
    # A server takes the pings of every client, whose liveness may be another one.
    ("grpc.http2.min_ping_interval_without_data_ms", _LEAST_PING_INTERVAL_MS),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", _LEAST_PING_INTERVAL_MS),
]


def channel_options() -> list[tuple[str, int]]:
    """Returns the gRPC options of a client's end."""
    return [*_keepalive(), *_COMMON_OPTIONS, *_CHANNEL_OPTIONS]


def server_options() -> list[tuple[str, int]]:
    """Returns the gRPC options of a server's end."""
    return [*_keepalive(), *_COMMON_OPTIONS, *_SERVER_OPTIONS]


def _keepalive() -> list[tuple[str, int]]:
    """Returns the keepalive options, by which gRPC notices a stopped process or a lost machine."""
    answer_ms = int(liveness_s() * 1000 / 3)
    return [
        ("grpc.keepalive_time_ms", 2 * answer_ms),
        ("grpc.keepalive_timeout_ms", answer_ms),
        # Without this option a stopped peer is noticed after the kernel's minute, despite the
        # others.
        ("grpc.http2.ping_timeout_ms", answer_ms),
    ]


def client_channel(address: str, tls: Tls | None = None, name: str = "") -> grpc.Channel:
    """Creates a channel for use by threads.

    Args:
      address: "host:port"; localhost is 127.0.0.1.
      tls: this end's certificates; without them, nothing is encrypted.
      name: the name that the server's certificate must have.
    """
    uri = _channel_uri(address)
    if tls is None:
        return grpc.insecure_channel(uri, options=channel_options())
    return grpc.secure_channel(uri, tls.channel_credentials(), options=_options_for_name(name))


def aio_channel(address: str, tls: Tls | None = None, name: str = "") -> grpc.aio.Channel:
    """Creates a channel for use on an event loop. Arguments as of `client_channel`."""
    uri = _channel_uri(address)
    if tls is None:
        return grpc.aio.insecure_channel(uri, options=channel_options())
    return grpc.aio.secure_channel(uri, tls.channel_credentials(), options=_options_for_name(name))


def _channel_uri(address: str) -> str:
    """Returns the `dns:///` URI of an address; gRPC would read the host "unix" as a scheme."""
    host, port = split_address(address)
    return "dns:///" + quote(join_address(numeric_host(host), port), safe="[]:")


def _options_for_name(name: str) -> list[tuple[str, int | str]]:
    return [*channel_options(), ("grpc.ssl_target_name_override", name)]


def aio_server(n_addresses: int = 1) -> grpc.aio.Server:
    """Creates a server for use on an event loop, which does not listen yet.

    Args:
      n_addresses: how many addresses it is to listen at.
    """
    # gRPC counts the connections to each address. It closes those that are too many at once.
    limit = ("grpc.max_allowed_incoming_connections", max_connections(n_addresses))
    return grpc.aio.server(options=[*server_options(), limit])


def bind(server: grpc.aio.Server, hosts: Sequence[str], port: int, tls: Tls | None = None) -> int:
    """Binds a server to a port of all hosts; returns the port, which the system chooses for 0.

    Raises:
      UnknownError: if an address cannot be bound, for example because it is in use.
    """
    for host in hosts:
        address = join_address(host, port)
        check_free(host, port)
        try:
            if tls is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, tls.server_credentials())
        except RuntimeError as error:
            raise UnknownError(
                f"Could not start gRPC server: {address} cannot be bound; "
                "another process may be using the port"
            ) from error
    return port


def method_of(service: str) -> str:
    """Returns the path of the gRPC method that carries the streams of a service."""
    return f"/{service}"
