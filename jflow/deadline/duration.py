"""Durations for messages."""

from __future__ import annotations

_UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))


def duration_text(seconds: float) -> str:
    """A duration with its unit and three digits, such as "1.5 s", "50 ms" or "0 s"."""
    if seconds >= 999.5:
        return f"{seconds:.0f} s"
    rounded = float(f"{seconds:.3g}")
    unit, scale = next((one for one in _UNITS if abs(rounded) >= one[1]), _UNITS[-1])
    return f"{rounded / scale:.3g} {unit}" if rounded else "0 s"
