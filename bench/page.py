"""`bench/README.md`: the figures of each group as a table, and the notes below."""

from __future__ import annotations

import re

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


_CELL = re.compile(r"(?P<figure>.+): (?P<own>\S+ \S+), (?P<peer>\S+) (?P<time>\S+ \S+)")


def page(records: dict[str, Record], notes: str) -> str:
    """The whole page, in Markdown.

    Args:
      records: what was measured, by the name of its group.
      notes: what is written below the tables.
    """
    tables = [_table(name, records[name]) for name in GROUPS if name in records]
    return "\n".join([HEAD, *tables, notes])


def with_figures(readme: str, records: dict[str, Record]) -> str:
    """README with the figures of its table as they were measured last.

    A cell of it is "figure: own, peer time", several with semicolons; the row of `rows.py` is that
    whose peer begins with the cell's, such as "Ray actor call" or "jax.jit call".

    Raises:
      LookupError: if a cell has no row that was measured.
    """

    def measured(found: re.Match[str]) -> str:
        figure, peer = found["figure"], found["peer"]
        for name, record in records.items():
            for row in GROUPS[name].rows if name in GROUPS else ():
                if (
                    isinstance(row, Row)
                    and row.figure == figure
                    and row.peer.startswith(f"{peer} ")
                ):
                    own, other = record.figures.get(figure), record.figures.get(row.peer)
                    if own is not None and other is not None:
                        return f"{figure}: {quantity(own)}, {peer} {quantity(other)}"
        raise LookupError(f"{figure!r} beside {peer!r} was not measured: make bench ONLY=peers")

    def row(line: str) -> str:
        start, _, cell = line.rstrip(" |").rpartition("| ")
        return f"{start}| {'; '.join(_CELL.sub(measured, one) for one in cell.split('; '))} |"

    return "\n".join(row(line) if line.startswith("| **") else line for line in readme.split("\n"))


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
