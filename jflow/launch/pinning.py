"""Processes that are pinned to one core."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from jflow.errors import UnimplementedError


def check_cores(cores: Sequence[int]) -> None:
    """Checks that processes can be pinned to cores.

    Raises:
      UnimplementedError: if the system cannot pin processes.
      ValueError: if this process may not use one of the cores.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise UnimplementedError(f"processes cannot be pinned to cores on {sys.platform}")
    if missing := {*cores} - os.sched_getaffinity(0):
        available = sorted(os.sched_getaffinity(0))
        raise ValueError(f"this process may use the cores {available}, but not {sorted(missing)}")


@contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """A block in which this thread, and so each process that it starts, has one core.

    A process is pinned before its libraries look how many threads they should have. With None the
    block changes nothing.
    """
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
