"""The clock that traces are taken by, and the pauses between attempts of a call."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


now = time.perf_counter
"""The present time in seconds, from a start that no other machine shares."""


@cache
def clock_name() -> str:
    """What is equal for processes whose `now` is the same clock; empty if that is not known.

    Linux has one monotonic clock for all processes, from one boot to the next.
    """
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def backoff(first_s: float, longest_s: float) -> Iterator[float]:
    """Endless pauses in seconds: each is twice as long as the one before, up to the longest."""
    pause_s = first_s
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, longest_s)
