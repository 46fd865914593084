"""Formats sizes, times, tables and text from other processes for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_TIMES = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
_NUMBER = re.compile(r"-|\d+(\.\d+)?( [A-Za-z].*)?")
"""A number, perhaps with a unit, or "-" for an unknown one."""


def bytes_text(n_bytes: float) -> str:
    """Formats a size with a unit and about three digits, such as "392 KiB" or "1.53 MiB"."""
    unit = 0
    while n_bytes >= 1000 and unit < len(_SIZES) - 1:
        n_bytes /= 1024
        unit += 1
    return f"{_digits(n_bytes)} {_SIZES[unit]}"


def seconds_text(seconds: float) -> str:
    """Formats a time with a unit and about three digits, such as "50 ms", "1.25 µs" or "3600 s"."""
    if not seconds:
        return "0 s"
    unit, size = next((each for each in _TIMES if seconds >= each[1]), _TIMES[-1])
    return f"{_digits(seconds / size)} {unit}"


def age_text(seconds: float) -> str:
    """Formats the time since an event, such as "0.2 s", "59 s", "3 min" or "2 h 5 min"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, hours = int(seconds // 60), int(seconds // 3600)
    if hours < 1:
        return f"{minutes} min"
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def printable(text: str, allowed: str = "") -> str:
    r"""Escapes characters that are not printable, as in `\x1b`, except those in `allowed`.

    Terminals obey control characters, which could hide, replace or forge what else is shown, and
    XML forbids them.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in allowed else _escaped(one) for one in text)


def _digits(number: float) -> str:
    return f"{number:.3g}" if number < 999.5 else f"{number:.0f}"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Formats rows below headers, in columns as wide as their widest cell, numbers to the right."""
    cells = [[*headers], *([printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headers))]
    right = [
        len(cells) > 1 and all(_is_number(row[i]) for row in cells[1:]) for i in range(len(headers))
    ]
    lines = []
    for row in cells:
        padded = zip(row, widths, right, strict=True)
        lines.append("  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in padded).rstrip())
    return "\n".join(lines)


def _is_number(cell: str) -> bool:
    return _NUMBER.fullmatch(cell) is not None


def natural(name: str) -> list[tuple[int, str]]:
    """Returns a sort key by which "task:10" comes after "task:9"."""
    return [(int(x), "") if x.isdecimal() else (0, x) for x in re.split(r"(\d+)", name)]
