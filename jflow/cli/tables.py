"""Tables and numbers as people read them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from jflow.base.printable import printable

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024
_NUMBER = re.compile(r"-|\d+(\.\d+)?( [A-Za-z].*)?")
"""A number, perhaps with a unit, or what stands for one that is not known."""


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows below headers; columns are as wide as their widest cell, numbers to the right."""
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


def bytes_text(n_bytes: float) -> str:
    """A size with its unit, such as "512 B" or "1.5 MiB"."""
    unit = 0
    while n_bytes >= _STEP and unit < len(_UNITS) - 1:
        n_bytes /= _STEP
        unit += 1
    return f"{n_bytes:.4g} {_UNITS[unit]}" if n_bytes < 1000 else f"{n_bytes:.0f} {_UNITS[unit]}"


def age_text(seconds: float) -> str:
    """A time that has passed, such as "0.2 s", "59 s", "3 min" or "2 h 5 min"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, hours = int(seconds // 60), int(seconds // 3600)
    if hours < 1:
        return f"{minutes} min"
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def _is_number(cell: str) -> bool:
    return _NUMBER.fullmatch(cell) is not None
