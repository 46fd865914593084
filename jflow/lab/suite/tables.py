"""Tables of a comparison in Markdown, and what is in their cells."""

from __future__ import annotations

import math
from collections.abc import Sequence

from jflow.base.text import seconds_text
from jflow.lab.suite.contenders import AUTO


def duration(seconds: float) -> str:
    """Returns a time with its unit, "-" for NaN."""
    return "-" if math.isnan(seconds) else seconds_text(seconds)


def strategy_name(strategy: str) -> str:
    """Returns the name of a strategy; that of the default one is bold."""
    return f"**{strategy}**" if strategy == AUTO else strategy


def ratio(value: float, digits: int = 3) -> str:
    """Returns a ratio, "-" if it is not finite."""
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"


def percent(fraction: float) -> str:
    """Returns a fraction in percent, "-" if it is not finite."""
    return f"{fraction:.0%}".replace("%", " %") if math.isfinite(fraction) else "-"


def escaped(text: str) -> str:
    """Returns a text in which "|" does not end the cell."""
    return text.replace("|", "\\|")


Row = Sequence[str]


def table(head: Row, body: Sequence[Row]) -> str:
    """Returns a table, its first column to the left and the others to the right."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
