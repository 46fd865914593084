"""`listens_everywhere`: whether this process has a port on all addresses of its machine."""

from __future__ import annotations

import os
import socket

_FILES = "/proc/self/fd"


def listens_everywhere(port: int) -> bool:
    """Whether a socket of this process listens at a port on IPv4 and IPv6 alike.

    gRPC takes 0.0.0.0 for both kinds of addresses, and is content with one of them if another
    process has the port of the other.

    Returns:
      Whether it does; True where there is no IPv6, or no /proc to find that out.
    """
    try:
        socket.socket(socket.AF_INET6).close()
        numbers = os.listdir(_FILES)
    except OSError:
        return True
    return any(_is_dual(int(number), port) for number in numbers)


def _is_dual(number: int, port: int) -> bool:
    """Whether a file of this process is a socket for both kinds of addresses, at that port."""
    try:
        one = socket.socket(fileno=number)
    except OSError:  # it is not a socket, or is closed by now
        return False
    try:
        is_at_all = one.family is socket.AF_INET6 and one.getsockname()[:2] == ("::", port)
        return is_at_all and not one.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
    except OSError:
        return False
    finally:
        one.detach()  # the file is gRPC's
