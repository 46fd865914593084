"""The clock of traces, and the boot id, which identifies the processes that share it."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


now = time.perf_counter
"""Returns the present time in seconds, from a start that differs between machines."""


@cache
def boot_id() -> str:
    """Returns the id of the running kernel's boot; "" if unknown, as on systems other than Linux.

    All processes of one boot have one `now`.
    """
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
