"""How many files and connections this process may have open, and how many of them callers may."""

from __future__ import annotations

import resource

_ENOUGH = 1 << 16
"""The limit that is asked for at most: some programs try all descriptors up to their limit."""


def raise_limit() -> int:
    """Raises the soft limit of open files to the hard one; returns the limit that is in force."""
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
    """How many connections callers may have to each of a server's addresses.

    Together half of what this process may have open. The other half is for data streams, of which
    each has a connection beside it, and for connections to other tasks and files.

    Args:
      n_addresses: how many addresses the server listens at.
    """
    return max(raise_limit() // 2 // n_addresses, 1)
