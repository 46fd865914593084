"""Ports and hosts for programs that must know theirs before they start."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress


def free_ports(n: int) -> list[int]:
    """Returns different ports of the loopback interface that are free now, from the system."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def free_hosts(n: int, port: int = 2222) -> list[str]:
    """Returns different loopback addresses at which a port is free now."""
    found: list[str] = []
    while len(found) < n:
        host = f"127.{random.randint(1, 254)}.{random.randint(0, 254)}.{random.randint(1, 254)}"
        with socket.socket() as probe, suppress(OSError):
            probe.bind((host, port))
            found.append(host)
    return found
