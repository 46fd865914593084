"""Memory of a process on Linux."""

from __future__ import annotations

from pathlib import Path


def resident(pid: int) -> int:
    """Bytes that it has now."""
    return _taken(pid, "VmRSS:")


def begin_peak(pid: int) -> None:
    """The peak counts from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak(pid: int) -> int:
    """The most bytes that it had since then."""
    return _taken(pid, "VmHWM:")


def _taken(pid: int, figure: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (one for one in lines if one.startswith(figure))
    return int(line.split()[1]) << 10
