"""Finds processes, threads and listening ports that a test leaves behind."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from jflow.launch.testing.processes import shared_pids
from jflow.launch.testing.waiting import PATIENCE_S, wait_until
from jflow.plan.compiler import COMPILER
from jflow.plan.validator import VALIDATOR

_FOR_THE_PROCESS = re.compile(
    r"jflow servers|jflow (validator|compiler)|asyncio_|Thread-\d+ \(_poll_wrapper\)"
)
"""Names of threads that stay for the life of the process once started; the last is gRPC's."""


@contextmanager
def no_leaks(patience: float = PATIENCE_S) -> Iterator[None]:
    """A context manager that fails if a process, thread or listening port is left behind.

    Args:
      patience: how long they may take to end after the block, in seconds.

    Raises:
      AssertionError: if one is left; the message names it.
    """
    before = _live_resources()
    yield
    left: set[str] = set()

    def is_clean() -> bool:
        nonlocal left
        left = _live_resources() - before
        return not left

    try:
        wait_until(is_clean, patience=patience)
    except AssertionError:
        raise AssertionError(
            f"{patience:.1f} s after the block it has left {sorted(left)}"
        ) from None


def _live_resources() -> set[str]:
    """Returns the child processes, listening ports and threads of this process, as texts."""
    this = psutil.Process()
    # These live as long as the process once they are needed.
    permanent = {VALIDATOR.pid, *COMPILER.pids, *shared_pids()}
    held = {
        f"process {child.pid}"
        for child in this.children(recursive=True)
        if child.is_running()
        and child.status() != psutil.STATUS_ZOMBIE
        and child.pid not in permanent
    }
    held |= {
        f"port {connection.laddr.port}"
        for connection in this.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    held |= {
        f"thread {thread.name!r} ({thread.ident})"
        for thread in threading.enumerate()
        if not _FOR_THE_PROCESS.match(thread.name)
    }
    return held
