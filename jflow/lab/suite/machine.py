"""The machine that results were taken on."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

_PACKAGES = ("jax", "numpy", "scipy")


def machine() -> str:
    """Processor, usable cores and versions, in one line."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in _PACKAGES)
    return f"{_processor()}, {n_cores()} cores, Python {platform.python_version()}, {versions}"


def n_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def load() -> float:
    """How many processes ran or waited for a core in the last minute, on average."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
