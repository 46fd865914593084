"""The clock that traces are taken by, and the boot of the machine, which says whose clock it is."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


now = time.perf_counter
"""The present time in seconds, from a start that no other machine shares."""


@cache
def boot_id() -> str:
    """Identifies the running kernel; "" where that is unknown, as on other systems than Linux.

    All processes of one boot have one `now`.
    """
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
