"""`jflow top`: what the tasks of a cluster use, as text or on a screen that takes keys."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from jflow.base.text import bytes_text, table
from jflow.cli.status import add_interval, connected, repeat
from jflow.cli.targets import add_options

if TYPE_CHECKING:
    from jflow.cli.watcher import Seen

TaskRow = Mapping[str, Any]
"""What one task uses, by the names that `--json` has; None for what is not known."""

_KINDS = ("sessions", "steps")


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to those of `jflow`."""
    top = commands.add_parser("top", help="what the tasks of a cluster use, again and again")
    add_options(top)
    top.add_argument("--json", action="store_true", help="for programs, a line for each time")
    add_interval(top)
    top.add_argument(
        "--count", type=int, metavar="N", help="how many times (default: until Ctrl-C or q)"
    )
    top.set_defaults(run=_top)


def _top(options: argparse.Namespace) -> int:
    if options.count is not None and options.count < 1:
        raise ValueError(f"--count must be at least 1, got {options.count}")
    with connected(options.target, options.timeout) as watcher:
        rates = TaskRates()

        def look() -> list[dict[str, Any]]:
            return rates.rows(watcher.inspect(_KINDS))

        look()
        time.sleep(min(options.interval, 1.0))  # a rate needs two looks
        is_screen = sys.stdin.isatty() and sys.stdout.isatty() and find_spec("rich") is not None
        if is_screen and not options.json and options.count is None:
            from jflow.cli.screen import show_screen  # noqa: PLC0415 - needs `jflow[cli]`

            show_screen(TopView(), look, options.interval)
            return 0

        def text() -> str:
            rows = look()
            return json.dumps({"tasks": rows}) if options.json else rows_text(rows)

        repeat(text, options.interval, options.count, is_json=options.json)
    return 0


@dataclass(frozen=True)
class TopColumn:
    """A column of the table.

    Attributes:
      heading: its heading.
      key: what it shows of a row.
      text: formats it.
    """

    heading: str
    key: str
    text: Callable[[Any], str] = str


def _rate(value: float) -> str:
    return f"{value:.1f}"


COLUMNS = (
    TopColumn("TASK", "name"),
    TopColumn("STATE", "state"),
    TopColumn("CPU %", "cpu_percent", _rate),
    TopColumn("MEMORY", "memory_bytes", bytes_text),
    TopColumn("STEPS/S", "steps_per_s", _rate),
    TopColumn("RUNNING", "n_running"),
    TopColumn("SESSIONS", "n_sessions"),
)


def cells_of(row: TaskRow) -> list[str]:
    """Returns the texts of a row, "-" for what is not known."""
    return ["-" if row[one.key] is None else one.text(row[one.key]) for one in COLUMNS]


def rows_text(rows: Sequence[TaskRow]) -> str:
    """Returns the table as plain text."""
    return table([one.heading for one in COLUMNS], [cells_of(row) for row in rows])


@dataclass
class TopView:
    """What the screen shows, changed by keys; it knows no terminal.

    Attributes:
      column: the number of the column that rows are sorted by.
      is_ascending: whether the smallest is on top.
      pattern: rows that contain this text are shown.
      is_typing: whether keys are added to the pattern.
      is_over: whether the user has quit.
    """

    column: int = 2
    is_ascending: bool = False
    pattern: str = ""
    is_typing: bool = False
    is_over: bool = False

    def press(self, key: str) -> None:
        """Acts on a key: a character, or "left", "right", "escape", "enter" or "backspace"."""
        if self.is_typing:
            self._type(key)
        elif key in ("q", "Q", "escape"):
            self.is_over = True
        elif key in ("left", "right"):
            self.column = (self.column + (1 if key == "right" else -1)) % len(COLUMNS)
        elif key == "r":
            self.is_ascending = not self.is_ascending
        elif key == "/":
            self.pattern, self.is_typing = "", True
        elif key.isdecimal() and 0 < int(key) <= len(COLUMNS):
            self.column = int(key) - 1

    def _type(self, key: str) -> None:
        if key == "enter":
            self.is_typing = False
        elif key == "escape":
            self.pattern, self.is_typing = "", False
        elif key == "backspace":
            self.pattern = self.pattern[:-1]
        elif len(key) == 1 and key.isprintable():
            self.pattern += key

    def chosen(self, rows: Sequence[TaskRow]) -> list[TaskRow]:
        """Returns the rows that are shown, in their order; what is not known is at the end."""
        key = COLUMNS[self.column].key
        shown = [row for row in rows if self.pattern.lower() in " ".join(cells_of(row)).lower()]
        known = sorted((row for row in shown if row[key] is not None), key=lambda row: row[key])
        if not self.is_ascending:
            known.reverse()
        return known + [row for row in shown if row[key] is None]

    @property
    def help_text(self) -> str:
        """What keys do, or what is being typed."""
        if self.is_typing:
            return f"only rows with: {self.pattern}▏  (Enter keeps it, Escape shows all)"
        only = f"   only rows with {self.pattern!r}" if self.pattern else ""
        return f"← → or 1-{len(COLUMNS)} sort   r reverse   / filter   q quit{only}"


class TaskRates:
    """Rates of tasks between two snapshots, the busiest tasks first."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, int], Any] = {}

    def rows(self, seen: Sequence[Seen]) -> list[dict[str, Any]]:
        """Returns what each task uses, for programs; None for what is not known."""
        rows = [self._row(one) for one in seen]
        lives = [one.status for one in seen if one.status is not None]
        self._before = {(status.task, status.incarnation): status for status in lives}
        return sorted(rows, key=lambda row: -(row["cpu_percent"] or 0.0))

    def _row(self, seen: Seen) -> dict[str, Any]:
        status = seen.status
        row: dict[str, Any] = {"name": str(seen.report.task), "state": seen.report.state.value}
        row |= dict.fromkeys(("cpu_percent", "memory_bytes", "steps_per_s"))
        row |= dict.fromkeys(("n_running", "n_sessions"))
        if status is None:
            return row
        row["memory_bytes"] = status.memory_bytes
        row["n_running"], row["n_sessions"] = status.totals["steps"], status.totals["sessions"]
        before = self._before.get((status.task, status.incarnation))
        if before is not None and (passed := status.uptime_s - before.uptime_s) > 0:
            row["cpu_percent"] = 100 * (status.cpu_s - before.cpu_s) / passed
            row["steps_per_s"] = (status.n_begun - before.n_begun) / passed
        return row
