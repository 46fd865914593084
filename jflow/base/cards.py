"""Cards: what notebooks show of jflow's objects, as HTML with a light and a dark style.

A card never waits for long: it shows what its process knows, and what is asked elsewhere only if
the reply comes within `MAX_WAIT_S`. Text from users is escaped, and cut where it is long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from typing import Any, TypeVar

from jflow.base.text import printable

T = TypeVar("T")

MAX_WAIT_S = 0.2
"""The longest time, in seconds, that a card waits for what other processes say."""
MAX_TEXT = 160
"""How many characters of a text a card shows; the middle of a longer one is left out."""
MAX_ROWS = 20
"""How many rows of a table a card shows."""

_STYLE = """<style>
.jflow-card{--fg:#1f2328;--dim:#59636e;--line:#d1d9e0;--bg:#ffffff;--head:#f2f5f8;--tint:#0b6bcb;
color:var(--fg);background:var(--bg);border:1px solid var(--line);border-left:4px solid var(--tint);
border-radius:4px;display:inline-block;font:13px/1.45 system-ui,sans-serif;margin:2px 0;
max-width:60em;min-width:18em;overflow-wrap:anywhere;padding:8px 12px}
.jflow-card .jflow-title{font-size:14px;margin-bottom:4px}
.jflow-card .jflow-kind{color:var(--dim)}
.jflow-card table{border-collapse:collapse;margin:2px 0}
.jflow-card th,.jflow-card td{background:none;color:inherit;border:0;padding:1px 14px 1px 0;
text-align:left;vertical-align:top;font-size:13px}
.jflow-card th{color:var(--dim);font-weight:normal}
.jflow-card thead th{background:var(--head);border-bottom:1px solid var(--line)}
.jflow-card details{margin-top:4px}
.jflow-card summary{cursor:pointer}
.jflow-card>svg{display:block;height:auto;max-width:100%;background:#fff;border-radius:4px}
.jflow-card .jflow-note{color:var(--dim);font-size:12px;margin-top:4px}
@media (prefers-color-scheme:dark){.jflow-card{--fg:#e6edf3;--dim:#9aa4af;--line:#3d444d;
--bg:#161b22;--head:#21262d;--tint:#4c9df3}}
[data-jp-theme-light="true"] .jflow-card,.vscode-light .jflow-card{--fg:#1f2328;--dim:#59636e;
--line:#d1d9e0;--bg:#ffffff;--head:#f2f5f8;--tint:#0b6bcb}
[data-jp-theme-light="false"] .jflow-card,.vscode-dark .jflow-card{--fg:#e6edf3;--dim:#9aa4af;
--line:#3d444d;--bg:#161b22;--head:#21262d;--tint:#4c9df3}
</style>"""


@dataclass(frozen=True)
class CardTable:
    """A table of a card, which is unfolded by a click.

    Attributes:
      title: what the rows are, such as "tasks".
      head: the names of the columns.
      rows: texts, as many a row as there are columns.
      n_rows: how many rows there are, if not all of them are in `rows`.
      is_open: whether it is unfolded from the start.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    n_rows: int | None = None
    is_open: bool = False


@dataclass(frozen=True)
class Card:
    """What is shown of an object.

    Attributes:
      kind: its class, as users write it, such as "FIFOQueue".
      name: its own name; "" if it has none.
      facts: pairs of a label and a text. Those without a text are left out.
      tables: what it consists of.
      picture: SVG or HTML, which is shown as it is; "" for none.
      note: a sentence in small type, such as what the facts are as of.
    """

    kind: str
    name: str = ""
    facts: Sequence[tuple[str, object]] = ()
    tables: Sequence[CardTable] = ()
    picture: str = ""
    note: str = ""

    def html(self) -> str:
        """The card as an HTML element with a style of its own."""
        facts = "".join(
            f'<tr><th scope="row">{shown(label)}</th><td>{shown(text)}</td></tr>'
            for label, text in self.facts
            if text is not None and str(text)
        )
        parts = [
            f'<div class="jflow-title"><span class="jflow-kind">jflow.{shown(self.kind)}</span>'
            f"{f' <b>{shown(self.name)}</b>' if self.name else ''}</div>",
            f"<table><tbody>{facts}</tbody></table>" if facts else "",
            self.picture,
            *map(_table, self.tables),
            f'<div class="jflow-note">{shown(self.note)}</div>' if self.note else "",
        ]
        return f'{_STYLE}<div class="jflow-card">{"".join(parts)}</div>'


class Carded:
    """Base of objects that notebooks show as a card."""

    __slots__ = ()

    def _card(self) -> Card:
        """Returns what is shown of the object. It must not wait, but by `ask`."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """Returns the card of the object as HTML, for notebooks."""
        return self._card().html()


_PICTURES: dict[type, Callable[[Any], str]] = {}


def draw_by(kind: type[T], draw: Callable[[T], str]) -> None:
    """Declares what draws objects of a class, for rooms that may not import what draws them.

    Args:
      kind: the class, not its subclasses.
      draw: returns SVG or HTML.
    """
    _PICTURES[kind] = draw


def picture_of(value: object) -> str:
    """Returns the picture of an object, SVG or HTML; "" if nothing draws its class."""
    draw = _PICTURES.get(type(value))
    return "" if draw is None else draw(value)


def shown(text: object) -> str:
    """Returns a text as HTML: cut, escaped, and set apart from the direction of its neighbours.

    Characters that are not printable, such as those which change the direction of what follows,
    are shown as escapes.
    """
    plain = f"{text:.4g}" if isinstance(text, float) else str(text)
    return f"<bdi>{escape(_cut(printable(plain)))}</bdi>"


def ask(question: Callable[[], T], limit_s: float = MAX_WAIT_S) -> T | None:
    """Calls a function that may wait for another process, on a thread of its own.

    Returns:
      What it returns; None if it fails, or has not returned after `limit_s` seconds.
    """
    replies: list[T] = []

    def run() -> None:
        with suppress(Exception):  # what is not known is not shown, whatever the reason
            replies.append(question())

    thread = threading.Thread(target=run, name="jflow card", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no thread can be started
        return None
    thread.join(limit_s)
    return replies[0] if replies else None


def _cut(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]} … {text[-half:]}"


def _table(table: CardTable) -> str:
    n_rows = len(table.rows) if table.n_rows is None else table.n_rows
    if not n_rows:
        return ""
    head = "".join(f'<th scope="col">{shown(cell)}</th>' for cell in table.head)
    rows = "".join(
        f"<tr>{''.join(f'<td>{shown(cell)}</td>' for cell in row)}</tr>"
        for row in table.rows[:MAX_ROWS]
    )
    n_more = n_rows - min(len(table.rows), MAX_ROWS)
    more = f'<div class="jflow-note">and {n_more:,} more</div>' if n_more else ""
    return (
        f"<details{' open' if table.is_open else ''}><summary>{shown(table.title)} ({n_rows:,})"
        f"</summary><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}"
        "</details>"
    )
