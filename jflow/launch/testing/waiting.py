"""Waits for conditions for as long as there is progress."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import psutil

PATIENCE_S = 120.0
"""How long a wait goes on without progress, in seconds.

Nothing should take that long. It is this long so that only a hang fails a test, not a machine that
is busy with other work; a test that passes never waits for it.
"""
_POLL_S = 0.005


def wait_until(
    condition: Callable[[], object],
    what: str = "the condition",
    *,
    patience: float = PATIENCE_S,
    progress: Callable[[], object] = lambda: None,
) -> None:
    """Blocks this thread until a condition is true.

    Args:
      condition: called again and again.
      what: what is waited for, for the message.
      patience: how long to wait without progress, in seconds.
      progress: a value that differs whenever there was progress, such as `cpu_time(pid)` or a
        number of steps. Without it the patience is for the whole wait.

    Raises:
      AssertionError: if there was no progress for that long.
    """
    for _ in _polling(condition, what, patience, progress):
        time.sleep(_POLL_S)


async def wait_until_async(
    condition: Callable[[], object],
    what: str = "the condition",
    *,
    patience: float = PATIENCE_S,
    progress: Callable[[], object] = lambda: None,
) -> None:
    """Waits on an event loop until a condition is true; see `wait_until`."""
    for _ in _polling(condition, what, patience, progress):
        await asyncio.sleep(_POLL_S)


def cpu_time(pid: int) -> float:
    """Returns the CPU time that a process and its children have used, in seconds.

    As the progress of a wait it tells a process that is slow, because others use the machine, from
    one that hangs. Processes that have ended count as 0.
    """
    total = 0.0
    try:
        parent = psutil.Process(pid)
        family = [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return total
    for process in family:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def _polling(
    condition: Callable[[], object], what: str, patience: float, progress: Callable[[], object]
) -> Iterator[None]:
    start = since = time.monotonic()
    last_progress = progress()
    while not condition():
        if time.monotonic() - since > patience:
            now = progress()
            if now == last_progress:
                elapsed = time.monotonic() - start
                raise AssertionError(
                    f"{what} did not come true in {elapsed:.1f} s, "
                    f"the last {patience:.1f} s of them without progress"
                )
            last_progress, since = now, time.monotonic()
        yield
