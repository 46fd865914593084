"""Draws a trace: a lane for each device, a bar for each span, an arrow for each transfer.

What overlaps on a device is in rows of its lane. Where a trace has more than can be distinguished,
bars of a kind that are nearer than a pixel are one bar, and the largest transfers have arrows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor, log10

from jflow.base.text import bytes_text, natural, seconds_text
from jflow.plan.trace import Span, Trace, Transfer
from jflow.plan.trace.spans import CALL, KINDS, OPERATION, PROGRAM, STEP, WAIT
from jflow.plan.trace.tracks import tracks_of
from jflow.view.captions import counted
from jflow.view.drawing.layout import Rect
from jflow.view.drawing.markup import (
    FAINT,
    INK,
    MUTED,
    PAPER,
    SEND,
    Element,
    device_colour,
    document,
    group,
    mixed,
    number,
    path,
    rect,
    serialized,
    text,
    text_width,
)

MAX_ARROWS = 200
"""As many transfers have an arrow, the largest first."""

_WIDTH = 960.0
_MARGIN = 16.0
_HEADER = 26.0
_ROW = 20.0
_BAR = 16.0
_GAP = 10.0
_MAX_ROWS = 12
_MAX_DEVICES = 100
_LEGEND = {
    OPERATION: "operation",
    PROGRAM: "program",
    CALL: "function of the host",
    WAIT: "wait",
    STEP: "step",
}


@dataclass(frozen=True, slots=True)
class _Bar:
    """A span, or several that are too near to each other to be distinguished."""

    kind: str
    start: float
    finish: float
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class _Lane:
    """The lane of a device, with the row of each bar."""

    device: str
    colour: str
    top: float
    bars: Sequence[_Bar]
    rows: Sequence[int]

    @property
    def n_rows(self) -> int:
        return min(max(self.rows, default=0) + 1, _MAX_ROWS)

    @property
    def bottom(self) -> float:
        return self.top + _HEADER + self.n_rows * _ROW


def timeline(trace: Trace) -> str:
    """Returns a trace as an SVG image: time from left to right, a lane for each device.

    Tooltips have names, times and details. Of more than 100 devices the first ones are drawn.

    Args:
      trace: the trace, of a real or a simulated step.

    Returns:
      An SVG document without scripts, fonts or links, the same for the same trace.
    """
    lanes = _lanes(trace)
    axis = lanes[-1].bottom if lanes else _MARGIN + _HEADER
    label = f"{counted(len(trace.spans), 'span')} on {counted(len(trace.devices), 'device')}"
    root = document(_WIDTH, axis + 60, f"{label}, {seconds_text(trace.seconds)}")
    scale = _Scale(trace.seconds)
    _add_axis(root, scale, axis)
    for lane in lanes:
        _add_lane(root, lane, scale)
    _add_transfers(root, trace.transfers, lanes, scale)
    if not lanes:
        text(root, _WIDTH / 2, axis, "nothing ran", kind="name")
    _add_legend(root, trace, axis + 34)
    return serialized(root)


class _Scale:
    """Converts seconds to pixels."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds or 1e-9
        self._per_second = (_WIDTH - 2 * _MARGIN) / self.seconds

    def x(self, seconds: float) -> float:
        return _MARGIN + seconds * self._per_second

    @property
    def pixel(self) -> float:
        """The seconds that a pixel stands for."""
        return 1 / self._per_second

    def ticks(self) -> Iterable[float]:
        """Yields round times, about eight."""
        step = 10 ** floor(log10(self.seconds / 4))
        step *= next(times for times in (1, 2, 5, 10) if self.seconds / (step * times) <= 9)
        return (i * step for i in range(int(self.seconds / step) + 1))


def _lanes(trace: Trace) -> list[_Lane]:
    steps = {span.device for span in trace.spans if span.kind == STEP}
    devices = sorted(trace.devices, key=lambda device: (device not in steps, natural(device)))
    by_device: dict[str, list[Span]] = {device: [] for device in devices}
    for span in trace.spans:
        by_device[span.device].append(span)
    pixel = _Scale(trace.seconds).pixel
    lanes: list[_Lane] = []
    top = _MARGIN
    for i, (device, spans) in enumerate([*by_device.items()][:_MAX_DEVICES], -len(steps)):
        bars = _bars(spans, pixel)
        rows = tracks_of([(bar.start, bar.finish) for bar in bars])
        lanes.append(_Lane(device, MUTED if device in steps else device_colour(i), top, bars, rows))
        top = lanes[-1].bottom + _GAP
    return lanes


def _bars(spans: Sequence[Span], pixel: float) -> list[_Bar]:
    """Joins spans of a kind of which each is shorter than a pixel and nearer than one."""
    bars: list[_Bar] = []
    for kind in KINDS:
        small: list[Span] = []
        for span in sorted((one for one in spans if one.kind == kind), key=lambda one: one.start):
            if span.seconds >= pixel:
                bars.append(_Bar(kind, span.start, span.finish, (span,)))
                continue
            if small and span.start - small[-1].finish > pixel:
                bars.append(_joined(kind, small))
                small = []
            small.append(span)
        if small:
            bars.append(_joined(kind, small))
    return sorted(bars, key=lambda bar: bar.start)


def _joined(kind: str, spans: Sequence[Span]) -> _Bar:
    return _Bar(kind, spans[0].start, max(span.finish for span in spans), tuple(spans))


def _add_axis(root: Element, scale: _Scale, bottom: float) -> None:
    for time in scale.ticks():
        x = scale.x(time)
        line = f"M{number(x)},{number(_MARGIN)}V{number(bottom + 4)}"
        path(root, line, fill="none", stroke=mixed(FAINT, PAPER, 0.6), stroke_width="0.8")
        label = seconds_text(time) if time else "0"
        left = min(max(x, _MARGIN + 8), _WIDTH - _MARGIN - 12)
        text(root, left, bottom + 16, label, kind="detail")


def _add_lane(root: Element, lane: _Lane, scale: _Scale) -> None:
    element = group(root, "lane")
    bounds = Rect(_MARGIN - 6, lane.top, _WIDTH - 2 * _MARGIN + 12, lane.bottom - lane.top + 2)
    look = {"fill": mixed(lane.colour, PAPER, 0.94), "stroke": mixed(lane.colour, PAPER, 0.6)}
    rect(element, bounds, rx="8", fill_opacity="0.75", **look)
    ink = mixed(lane.colour, "#000000", 0.35)
    text(element, _MARGIN + 2, lane.top + 17, lane.device, kind="device", style=f"fill: {ink}")
    for bar, row in zip(lane.bars, lane.rows, strict=True):
        _add_bar(element, lane, bar, min(row, _MAX_ROWS - 1), scale)


def _add_bar(parent: Element, lane: _Lane, bar: _Bar, row: int, scale: _Scale) -> None:
    left, right = scale.x(bar.start), scale.x(bar.finish)
    bounds = Rect(left, lane.top + _HEADER + row * _ROW, max(right - left, 1.2), _BAR)
    element = group(parent, f"op span {bar.kind}", _title(bar))
    _add_shape(element, bar.kind, bounds, lane.colour)
    label = bar.spans[0].name.rpartition("/")[2] if len(bar.spans) == 1 else ""
    if label and text_width(label, 10) < bounds.width - 6:
        text(element, bounds.middle, bounds.y + 11.5, label, kind="detail", style=f"fill: {INK}")


def _add_shape(parent: Element, kind: str, bounds: Rect, colour: str) -> None:
    """Draws the rectangle of a span: filled for work, empty for a wait."""
    fills = {WAIT: PAPER, CALL: mixed(colour, PAPER, 0.8)}
    look = {"fill": fills.get(kind, mixed(colour, PAPER, 0.45)), "stroke": colour}
    if kind == WAIT:
        look |= {"stroke": MUTED, "stroke_dasharray": "3 2"}
    rect(parent, bounds, kind="box", rx="2", stroke_width="0.8", **look)


def _title(bar: _Bar) -> str:
    if len(bar.spans) > 1:
        total = sum(span.seconds for span in bar.spans)
        names = dict.fromkeys(span.name for span in bar.spans)
        shown = [*names][:20]
        more = [f"… and {len(names) - len(shown)} more"] if len(names) > len(shown) else []
        return "\n".join(
            (f"{counted(len(bar.spans), bar.kind)}, {seconds_text(total)} in all", *shown, *more)
        )
    (span,) = bar.spans
    facts = [span.name, f"{span.kind} on {span.device}"]
    facts.append(f"from {seconds_text(span.start)} to {seconds_text(span.finish)}")
    facts.append(f"takes {seconds_text(span.seconds)}")
    facts += [f"{name}: {detail}" for name, detail in span.details.items()]
    return "\n".join(facts)


def _add_transfers(
    root: Element, transfers: Sequence[Transfer], lanes: Sequence[_Lane], scale: _Scale
) -> None:
    lane_of = {lane.device: lane for lane in lanes}
    drawn = [one for one in transfers if one.source in lane_of and one.target in lane_of]
    for one in sorted(drawn, key=lambda one: (-one.n_bytes, one.start))[:MAX_ARROWS]:
        source, target = lane_of[one.source], lane_of[one.target]
        down = source.top <= target.top
        begin = source.bottom - 2 if down else source.top + _HEADER
        end = target.top + _HEADER - 2 if down else target.bottom
        left, right = scale.x(one.start), scale.x(one.finish)
        title = (
            f"{one.name}\n{one.source} → {one.target}\n{bytes_text(one.n_bytes)} in "
            f"{seconds_text(one.seconds)}, from {seconds_text(one.start)}"
        )
        element = group(root, "arrow transfer", title)
        middle = (begin + end) / 2
        line = (
            f"M{number(left)},{number(begin)}C{number(left)},{number(middle)} "
            f"{number(right)},{number(middle)} {number(right)},{number(end)}"
        )
        path(element, line, kind="reach")
        path(element, line, kind="line", stroke=SEND)
        tip = -6 if down else 6
        head = f"M{number(right)},{number(end)}l-3,{tip}h6z"
        path(element, head, kind="head", fill=SEND)


def _add_legend(root: Element, trace: Trace, top: float) -> None:
    kinds = {span.kind for span in trace.spans}
    x = _MARGIN
    for kind in (kind for kind in KINDS if kind in kinds):
        _add_shape(group(root, "legend"), kind, Rect(x, top, 22, 12), device_colour(0))
        text(root, x + 28, top + 10, _LEGEND[kind], kind="entry")
        x += 50 + text_width(_LEGEND[kind], 11)
    if trace.transfers:
        n_bytes = sum(one.n_bytes for one in trace.transfers)
        label = f"{counted(len(trace.transfers), 'transfer')}, {bytes_text(n_bytes)}"
        path(root, f"M{number(x)},{number(top + 6)}h22", stroke=SEND, stroke_width="1.3")
        text(root, x + 28, top + 10, label, kind="entry")
