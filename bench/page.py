"""`bench/README.md`: the figures of each group as a table, and the notes below."""

from __future__ import annotations

from bench.record import Record
from bench.rows import GROUPS, Alone, Row

HEAD = """\
# What it costs

`make bench`, medians of 3 rounds. Read the ratios, whose parts are of one run: the times drift by
a factor of two with the machine's other work. An item is 84 by 84 `float32`; its time is that
between two of many.
"""

TABLE = """\
| figure | jflow | beside | its time | ratio | wanted |
|---|---:|---|---:|---:|---|
"""


def page(records: dict[str, Record], notes: str) -> str:
    """The whole page, in Markdown.

    Args:
      records: what was measured, by the name of its group.
      notes: what is written below the tables.
    """
    tables = [_table(name, records[name]) for name in GROUPS if name in records]
    return "\n".join([HEAD, *tables, notes])


def _table(name: str, record: Record) -> str:
    lines = [
        _line(row, record.figures) for row in GROUPS[name].rows if row.figure in record.figures
    ]
    title = name.replace("-", " ").capitalize()
    return f"## {title}\n\nOn {record.date}, {record.machine}.\n\n{TABLE}" + "".join(lines)


def _line(row: Row | Alone, figures: dict[str, float]) -> str:
    own = figures[row.figure]
    if isinstance(row, Alone):
        wanted = _wanted(own, row.most, quantity(row.most or 0, row.unit))
        return f"| {row.figure} | {quantity(own, row.unit)} | | | | {wanted} |\n"
    if row.peer not in figures:
        return f"| {row.figure} | {quantity(own)} | {row.peer} | not installed | | |\n"
    peer = figures[row.peer]
    wanted = _wanted(own / peer, row.target, f"{row.target or 0:.2f}")
    return (
        f"| {row.figure} | {quantity(own)} | {row.peer} | {quantity(peer)} "
        f"| {own / peer:.2f} | {wanted} |\n"
    )


def _wanted(value: float, most: float | None, shown: str) -> str:
    if most is None:
        return ""
    return f"≤ {shown}: " + ("reached" if value <= most else "**not reached**")


def quantity(value: float, unit: str = "s") -> str:
    """A figure with its unit, in the size that is easiest to read."""
    if unit == "B":
        return f"{value / 1e3:.1f} kB" if value < 1e6 else f"{value / 1e6:.1f} MB"
    if unit == "%":
        return f"{value * 100:.2f} %"
    if value < 1e-3:
        return f"{value * 1e6:.1f} µs"
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"
