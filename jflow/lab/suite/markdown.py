"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

Row = Sequence[str]


def table(head: Row, body: Sequence[Row]) -> str:
    """A table in Markdown, its first column to the left and the others to the right."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
