"""A table on the whole terminal that is looked up again and again, and takes keys.

Looks run on a thread of their own, so that keys act at once while a cluster does not answer.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from jflow.base.handles import Closing
from jflow.base.text import printable
from jflow.cli.top import COLUMNS, TaskRow, TopView, cells_of

_TICK_S = 0.05
_LAST_LOOK_S = 1.0
"""How long a look may take once the user has quit, in seconds."""

_KEYS = {
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x1b[C": "right",
    "\x1bOC": "right",
    "\x1b[D": "left",
    "\x1bOD": "left",
}
_KEY = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)
"""A sequence that a key sends, or a character."""

_UNFINISHED = re.compile(rb"(\x1b([\[O][0-9;]*)?|[\xc2-\xf4][\x80-\xbf]{0,2})\Z")
"""The beginning of a sequence or of a character of several bytes, at the end."""

_TEXTS = ("name", "state")


def show_screen(view: TopView, look: Callable[[], Sequence[TaskRow]], seconds: float) -> None:
    """Shows rows until the user quits, by a key or Ctrl-C.

    Args:
      view: what is shown; keys change it.
      look: returns the rows; what it raises is shown.
      seconds: the time between two looks.
    """
    try:
        with _Looker(look, seconds) as looker, _single_keys(), Live(screen=True) as live:
            while not view.is_over:
                live.update(_drawn(view, looker), refresh=True)
                for key in _pressed(_TICK_S):
                    view.press(key)
    except KeyboardInterrupt:
        return


class _Looker(Closing):
    """Looks again and again on a thread.

    Attributes:
      rows: those of the last look that succeeded.
      problem: why the last look failed; "" if it did not.
      at: when the last look ended.
    """

    def __init__(self, look: Callable[[], Sequence[TaskRow]], seconds: float) -> None:
        self.rows: Sequence[TaskRow] = ()
        self.problem = ""
        self.at: datetime | None = None
        self._look = look
        self._seconds = seconds
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="jflow top", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self.rows, self.problem = self._look(), ""
            except Exception as error:  # the screen stays, and says why it is old
                self.problem = str(error) or type(error).__name__
            self.at = datetime.now(UTC)
            self._closed.wait(self._seconds)

    def _leave(self, failed: bool) -> None:
        self._closed.set()
        self._thread.join(_LAST_LOOK_S)


def _drawn(view: TopView, looker: _Looker) -> Group:
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(COLUMNS):
        mark = (" ▲" if view.is_ascending else " ▼") if number == view.column else ""
        justify = "left" if column.key in _TEXTS else "right"
        drawn.add_column(column.heading + mark, justify=justify)  # type: ignore[arg-type]
    for row in view.chosen(looker.rows):
        style = "" if row["state"] == "up" else "red"
        drawn.add_row(*(Text(printable(cell)) for cell in cells_of(row)), style=style)
    at = f"{looker.at:%H:%M:%S} UTC" if looker.at else "looking …"
    problem = Text(printable(looker.problem), style="red")
    # Above the table, because a long one is cut at the end of the screen.
    return Group(Text(f"{at}   {view.help_text}", style="dim"), problem, drawn)


@contextmanager
def _single_keys() -> Iterator[None]:
    """Context manager in which the terminal passes on each key at once, and shows none."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    # The default action of SIGTERM would leave the terminal as it is in here.
    handler = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        tty.setcbreak(terminal)
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTERM, handler)


def _pressed(seconds: float) -> list[str]:
    """Returns the keys that are pressed within a time; at the end of the input a key that quits."""
    terminal = sys.stdin.fileno()
    if not select.select([terminal], [], [], seconds)[0]:
        return []
    data = os.read(terminal, 1024)
    if not data:
        return ["q"]
    # What one key sends may come in two pieces; Escape alone is a key, too.
    while _UNFINISHED.search(data) and select.select([terminal], [], [], _TICK_S)[0]:
        data += os.read(terminal, 1024)
    return keys_of(data.decode(errors="replace"))


def keys_of(data: str) -> list[str]:
    """Returns the keys that a terminal has sent, "" for those that mean nothing here."""
    found = (match[0] for match in _KEY.finditer(data))
    return [_KEYS.get(one, "" if one[0] == "\x1b" else one) for one in found]
