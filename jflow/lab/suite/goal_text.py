"""What the page says of goals: a table, and why those that are missed are.

The reasons are a section of the notes that people write, with an item for each goal, such as
`- **G5**: the search is interpreted`. The page has that section behind the table, not among the
notes, and names missed goals of which it says nothing. A quick run judges none that it misses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from jflow.lab.suite.goals import Goal
from jflow.lab.suite.markdown import table

REASONS = "## Why goals are missed"
"""The title of the section of the notes that has the reasons."""

_SECTION = re.compile(rf"^{REASONS}\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)


_QUICK = "a quick run, of fewer cases and a short calibration, does not judge it."
_UNSAID = f"no reason is given; NOTES.md of this folder can have one, below `{REASONS}`."


def goals_text(found: Sequence[Goal], notes: str, *, is_quick: bool = False) -> str:
    """The table of goals, in the order of their names, and the reasons from the notes."""
    ordered = sorted(found, key=lambda goal: goal.name)
    no, unsaid = ("not judged", _QUICK) if is_quick else ("**no**", _UNSAID)
    body = [
        [goal.name, goal.about, goal.wanted, goal.found, "yes" if goal.is_reached else no]
        for goal in ordered
    ]
    head = ["", "goal", "wanted", "found", "reached"]
    missed = dict.fromkeys(goal.name for goal in ordered if not goal.is_reached)
    section = _SECTION.search(notes)
    given = section[1].strip() if section else ""
    lines = [given] if given and missed else []
    lines += [f"- **{name}**: {unsaid}" for name in missed if f"**{name}" not in given]
    reasons = "\n".join(["", f"#{REASONS}", "", *lines, ""]) if lines else ""
    return "## Goals of `auto`\n\n" + table(head, body) + reasons


def without_reasons(notes: str) -> str:
    """The notes but for the reasons."""
    return _SECTION.sub("", notes)
