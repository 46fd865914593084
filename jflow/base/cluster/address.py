"""Network addresses of tasks: "host:port", with 2222 as the default port."""

from __future__ import annotations

import ipaddress
import re

DEFAULT_PORT = 2222
_SCHEME = "grpc://"
_OTHER_SCHEMES = frozenset({"unix", "unix-abstract", "vsock", "xds"})
"""The schemes of gRPC addresses that have no host and port."""
_HOST = re.compile(r"[^\s/:\[\]]+")


def split_address(address: str) -> tuple[str, int]:
    """Parses "host:port", "host" (port 2222), "[::1]:port" or "grpc://host:port".

    Raises:
      ValueError: if the host is missing or malformed, the port is not a number up to 65535, or it
        is an address of gRPC's that has neither.
    """
    if not address:
        raise ValueError("the address is empty; expected 'host:port', or 'host' for port 2222")
    text = address.removeprefix(_SCHEME)
    if "://" in text:
        raise ValueError(f"the address {address!r} must begin with 'grpc://' or have no scheme")
    scheme, mark, _ = text.partition(":")
    if mark and scheme.lower() in _OTHER_SCHEMES:
        raise ValueError(
            f"the address {address!r} is of gRPC's scheme {scheme!r}, which is not supported; "
            "expected 'host:port'"
        )
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    host = _checked_host(host, address)
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(
            f"the port of the address {address!r} is {port!r}, which is not a number from 0 to "
            f"65535; expected for example '{host}:{DEFAULT_PORT}'"
        )
    return host, int(port)


def numeric_host(host: str) -> str:
    """Returns the host to listen at, or to connect to, for a host name: 127.0.0.1 for "localhost".

    That name may stand for ::1, too, where another user's process may listen at the port of a
    server that listens at 127.0.0.1. Other hosts are returned as they are.
    """
    return "127.0.0.1" if host.lower() == "localhost" else host


def names_no_machine(host: str) -> bool:
    """Whether a host is a loopback or wildcard address, which does not identify a machine.

    Args:
      host: a numeric address, or a name. Of names, only "localhost" is known to be one.
    """
    try:
        address = ipaddress.ip_address(numeric_host(host).partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any(one.is_loopback or one.is_unspecified for one in (address, mapped) if one)


def join_address(host: str, port: int) -> str:
    """Joins a host and a port; an IPv6 host gets square brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _checked_host(host: str, address: str) -> str:
    """Returns the host without brackets. Raises ValueError if it is malformed."""
    if host.startswith("[") and host.endswith("]"):
        inside = host[1:-1]
        try:
            ipaddress.IPv6Address(inside)
        except ValueError:
            raise ValueError(
                f"the address {address!r} has square brackets around what is not an IPv6 address"
            ) from None
        return inside
    if any(mark in host for mark in ":[]"):
        raise ValueError(
            f"the address {address!r} has a host with colons or unmatched brackets; an IPv6 "
            f"address is written in square brackets, as in '[::1]:{DEFAULT_PORT}'"
        )
    if not _HOST.fullmatch(host):
        raise ValueError(
            f"the address {address!r} has no host, or one with spaces or slashes; "
            "expected 'host:port', or 'host' for port 2222"
        )
    return host
