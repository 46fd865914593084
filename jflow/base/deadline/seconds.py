"""Times in messages."""

from __future__ import annotations


def seconds_text(seconds: float) -> str:
    """A time with its unit and up to four digits, such as "50 ms", "1.5 s" or "3600 s"."""
    if seconds == 0 or seconds >= 1:
        return f"{seconds:.0f} s" if seconds >= 1000 else f"{seconds:.4g} s"
    return f"{seconds * 1e3:.4g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.4g} us"
