"""A performance report as one HTML file, without scripts and links to elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from jflow.base.cards import shown
from jflow.base.text import bytes_text, printable, seconds_text
from jflow.compiler.placement import Explanation
from jflow.view.captions import counted
from jflow.view.measurements import Measurements, SpanFigures, StepFigures
from jflow.view.picture import html_picture
from jflow.view.timeline import timeline

MAX_ROWS = 100
"""How many rows of a table a report shows."""
MAX_STEPS = 3
"""Of how many steps, those with the most time first, single runs and the placement are drawn."""
_LEAST_PART = 0.05
"""A step that takes less of the time of all steps is not drawn."""

_STYLE = """
:root{color-scheme:light dark;--fg:#1f2328;--dim:#59636e;--line:#d1d9e0;--bg:#ffffff;--head:#f2f5f8;
--tint:#0b6bcb;--bar:#b6d4f2}
@media (prefers-color-scheme:dark){:root{--fg:#e6edf3;--dim:#9aa4af;--line:#3d444d;--bg:#161b22;
--head:#21262d;--tint:#4c9df3;--bar:#1f4b7a}}
body{background:var(--bg);color:var(--fg);font:14px/1.5 system-ui,sans-serif;margin:0 auto;
max-width:84em;overflow-wrap:anywhere;padding:16px 24px 48px}
h1{font-size:24px;margin:8px 0}
h2{border-bottom:1px solid var(--line);font-size:18px;margin:32px 0 8px;padding-bottom:4px}
h3{font-size:15px;margin:20px 0 4px}
p{color:var(--dim);margin:4px 0 8px;max-width:50em}
nav a{color:var(--tint);margin-right:14px}
table{border-collapse:collapse;margin:6px 0}
th,td{padding:2px 16px 2px 0;text-align:left;vertical-align:top}
th{color:var(--dim);font-weight:normal}
thead th{background:var(--head);border-bottom:1px solid var(--line)}
.number{font-variant-numeric:tabular-nums;text-align:right;white-space:nowrap}
.bar{background:linear-gradient(var(--bar),var(--bar)) no-repeat left top/var(--part) 1.6em}
.scroll{overflow-x:auto}
svg{background:#fff;border-radius:4px;height:auto;max-width:100%}
summary{cursor:pointer}
"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"/><meta name="viewport" content="width=device-width"/>
<title>{title}</title><style>{style}</style></head>
<body><main><h1>{title}</h1>{body}</main></body></html>
"""


@dataclass(frozen=True)
class _Column:
    """A column of a table; one of numbers is aligned to the right."""

    head: str
    is_number: bool = False


@dataclass(frozen=True)
class _Cell:
    """A cell with a bar behind its text, whose length is a part from 0 to 1 of its width."""

    text: str
    part: float


def summary(measured: Measurements) -> list[tuple[str, str]]:
    """Returns what a report says first: pairs of a label and a text."""
    n_kept = len(measured.runs)
    n_steps = counted(measured.n_steps, "step")
    if n_kept < measured.n_steps:
        n_steps += f", of which the first {n_kept:,} are shown"
    n_bytes = sum(one.n_bytes for one in measured.edges)
    busiest = max(measured.busy.items(), key=lambda pair: pair[1], default=None)
    facts = [
        ("took", seconds_text(measured.seconds)),
        ("ran", n_steps),
        ("in steps", _with_part(measured.seconds_in_steps, measured.seconds)),
        ("devices", f"{len(measured.busy):,}"),
        ("transferred", f"{bytes_text(n_bytes)} between devices"),
    ]
    if busiest is not None:
        facts.append(("busiest", f"{busiest[0]}, {_with_part(busiest[1], measured.seconds)}"))
    facts.append(("waited", seconds_text(sum(one.total for one in measured.waiting))))
    if measured.updates:
        worst = measured.updates[0]
        missed = f"{worst.mean_missed:.3g} on average, {worst.most_missed:,} at most"
        facts.append(("updates missed", f"{missed} by those of {worst.variable!r}"))
    facts.append(("clocks agree within", seconds_text(measured.clock_error)))
    return facts


def _with_part(seconds: float, whole: float) -> str:
    part = f" ({seconds / whole:.0%} of the time)" if whole else ""
    return f"{seconds_text(seconds)}{part}"


def report_page(measured: Measurements, title: str) -> str:
    """Returns the report as an HTML document that needs nothing else.

    Args:
      measured: what it tells of.
      title: its title.
    """
    sections = [
        (name, heading, body)
        for name, heading, make in _SECTIONS
        if (body := make(measured) if measured.runs else "")
    ]
    facts = "".join(
        f'<tr><th scope="row">{shown(label)}</th><td>{shown(text)}</td></tr>'
        for label, text in summary(measured)
    )
    links = "".join(f'<a href="#{name}">{heading}</a>' for name, heading, _ in sections)
    body = "".join(
        f'<section id="{name}"><h2>{heading}</h2>{text}</section>'
        for name, heading, text in sections
    )
    empty = "" if measured.runs else _paragraph("No step ran in the block.")
    page = f"<table><tbody>{facts}</tbody></table>{empty}<nav>{links}</nav>{body}"
    return _PAGE.format(title=shown(title), style=_STYLE, body=page)


# Sections ---------------------------------------------------------------------------------------


def _steps(measured: Measurements) -> str:
    text = (
        "Each traced step waits for the results of its programs, so that it knows when they were "
        "computed. Predicted is what its placement was expected to take."
    )
    columns = _columns(
        "step", "*runs", "*total", "*median", "*slowest", "*predicted", "*bytes each"
    )
    rows = [_step_row(one, measured.seconds) for one in measured.steps]
    return _paragraph(text) + _table(columns, rows) + _without_prediction(measured)


def _step_row(one: StepFigures, whole: float) -> Sequence[str | _Cell]:
    return (
        one.title,
        f"{one.n_runs:,}",
        _bar(one.total, whole),
        seconds_text(one.median),
        seconds_text(one.slowest),
        "" if one.predicted is None else seconds_text(one.predicted),
        bytes_text(one.n_bytes),
    )


def _without_prediction(measured: Measurements) -> str:
    reasons = {text for text in measured.explanations.values() if isinstance(text, str)}
    return "".join(_paragraph(f"No prediction for some steps: {one}.") for one in sorted(reasons))


def _devices(measured: Measurements) -> str:
    columns = _columns("device", "*busy", "*of the time")
    rows = [
        (device, _bar(busy, measured.seconds), f"{busy / measured.seconds:.0%}")
        for device, busy in measured.busy.items()
    ]
    return _table(columns, rows)


def _timeline(measured: Measurements) -> str:
    text = (
        "Time from left to right; a bar shows its name, times and the user's line when pointed at."
    )
    return _paragraph(text) + _scrolled(timeline(measured.trace))


def _runs(measured: Measurements) -> str:
    parts = []
    for figures in _main_steps(measured):
        median, slowest = measured.extremes(figures.title)
        both = (("slowest", slowest), ("median", median))
        drawn = both if median is not slowest else (("only", median),)
        parts.append(f"<h3>{shown(figures.title)}</h3>")
        for what, run in drawn:
            took, start = seconds_text(run.seconds), seconds_text(run.start)
            label = f"The {what} run took {took}, from {start} on."
            parts.append(_paragraph(label) + _scrolled(timeline(run.trace)))
    return "".join(parts)


def _operations(measured: Measurements) -> str:
    text = (
        "A program is called by one of its operations, and has all that a device runs between two "
        "crossings. Predicted is the sum of its operations."
    )
    columns = _columns(
        *("program or call", "device", "made at", "*runs", "*total", "*median", "*longest"),
        "*predicted",
    )
    whole = sum(one.total for one in measured.operations)
    rows = [
        (
            *_span_cells(one, whole),
            "" if one.predicted is None else seconds_text(one.predicted),
        )
        for one in measured.operations
    ]
    return _paragraph(text) + _table(columns, rows)


def _transfers(measured: Measurements) -> str:
    columns = _columns("tensor", "from", "to", "*transfers", "*bytes", "*total", "*longest")
    whole = sum(one.n_bytes for one in measured.edges)
    rows = [
        (
            one.name,
            one.source,
            one.target,
            f"{one.n:,}",
            _bar(one.n_bytes, whole, bytes_text),
            seconds_text(one.total),
            seconds_text(one.longest),
        )
        for one in measured.edges
    ]
    return _table(columns, rows)


def _waiting(measured: Measurements) -> str:
    text = (
        "A device waits for a value of another device, which is called by its tensor, or in an "
        "operation on a queue or a variable."
    )
    columns = _columns("waits for", "device", "made at", "*waits", "*total", "*median", "*longest")
    whole = sum(one.total for one in measured.waiting)
    rows = [_span_cells(one, whole) for one in measured.waiting]
    return _paragraph(text) + _table(columns, rows) if rows else ""


def _updates(measured: Measurements) -> str:
    text = (
        "What a step writes to a variable was computed from a value that it had read earlier. "
        "Missed are the updates of other steps in between: the staleness of asynchronous training."
    )
    columns = _columns("variable", "device", "*updates", "*missed on average", "*at most")
    rows = [
        (
            one.variable,
            one.device,
            f"{one.n:,}",
            f"{one.mean_missed:.3g}",
            f"{one.most_missed:,}",
        )
        for one in measured.updates
    ]
    return _paragraph(text) + _table(columns, rows) if rows else ""


def _memory(measured: Measurements) -> str:
    text = "The most that each container was seen to hold, about once a second."
    columns = _columns("task", "container", "*variables", "*queues and others", "*memory")
    whole = sum(one.n_bytes for one in measured.memory)
    rows = [
        (
            one.task,
            one.container or "the default container",
            f"{one.n_variables:,}",
            f"{one.n_resources:,}",
            _bar(one.n_bytes, whole, bytes_text),
        )
        for one in measured.memory
    ]
    return _paragraph(text) + _table(columns, rows) if rows else ""


def _placements(measured: Measurements) -> str:
    parts = []
    for figures in _main_steps(measured):
        explained = measured.explanations.get(figures.title)
        if isinstance(explained, Explanation):
            text = f"Measured {seconds_text(figures.median)} as a median; {explained.summary}."
            parts.append(f"<h3>{shown(figures.title)}</h3>{_paragraph(text)}")
            parts.append(_scrolled(html_picture(explained)))
    return "".join(parts)


_SECTIONS: Sequence[tuple[str, str, Callable[[Measurements], str]]] = (
    ("steps", "Steps", _steps),
    ("devices", "Devices", _devices),
    ("timeline", "Timeline", _timeline),
    ("runs", "Single runs", _runs),
    ("operations", "Time by operation", _operations),
    ("transfers", "Bytes by edge", _transfers),
    ("waits", "Waits", _waiting),
    ("updates", "Updates missed", _updates),
    ("memory", "Memory by container", _memory),
    ("placements", "Placements", _placements),
)


def _main_steps(measured: Measurements) -> Sequence[StepFigures]:
    least = _LEAST_PART * sum(one.total for one in measured.steps)
    return [one for one in measured.steps[:MAX_STEPS] if one.total >= least]


# Parts ------------------------------------------------------------------------------------------


def _columns(*heads: str) -> Sequence[_Column]:
    """Returns columns; the heads of those of numbers begin with an asterisk."""
    return [_Column(head.removeprefix("*"), head.startswith("*")) for head in heads]


def _span_cells(one: SpanFigures, whole: float) -> Sequence[str | _Cell]:
    """Returns the cells of a row, with its part of the seconds of all rows as a bar."""
    return (
        one.name,
        one.device,
        one.line,
        f"{one.n:,}",
        _bar(one.total, whole),
        seconds_text(one.median),
        seconds_text(one.longest),
    )


def _bar(value: float, whole: float, text: Callable[[float], str] = seconds_text) -> _Cell:
    return _Cell(text(value), value / whole if whole else 0.0)


def _paragraph(text: str) -> str:
    return f"<p>{escape(printable(text))}</p>"


def _scrolled(picture: str) -> str:
    """Returns a picture that is scrolled if it is wider than the page, by keys too."""
    return f'<div class="scroll" tabindex="0" role="group" aria-label="picture">{picture}</div>'


def _table(columns: Sequence[_Column], rows: Sequence[Iterable[str | _Cell]]) -> str:
    if not rows:
        return ""
    head = "".join(
        f'<th scope="col"{_class(column.is_number)}>{shown(column.head)}</th>' for column in columns
    )
    body = "".join(f"<tr>{''.join(map(_cell, columns, row))}</tr>" for row in rows[:MAX_ROWS])
    more = f"<p>and {len(rows) - MAX_ROWS:,} more</p>" if len(rows) > MAX_ROWS else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="group" aria-label="table">{table}</div>{more}'


def _cell(column: _Column, cell: str | _Cell) -> str:
    if isinstance(cell, _Cell):
        part = f"{min(max(cell.part, 0.0), 1.0):.1%}"
        return f'<td class="number bar" style="--part:{part}">{shown(cell.text)}</td>'
    return f"<td{_class(column.is_number)}>{shown(cell)}</td>"


def _class(is_number: bool) -> str:
    return ' class="number"' if is_number else ""
