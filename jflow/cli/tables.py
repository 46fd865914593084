"""Tables in text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from jflow.base.text import printable

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


def _is_number(cell: str) -> bool:
    return _NUMBER.fullmatch(cell) is not None
