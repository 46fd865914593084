"""Draws a diagram as an SVG document, with a legend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from jflow.base.cluster import Device
from jflow.base.text import bytes_text
from jflow.view.captions import arrow_label, arrow_title, box_title, counted, prediction_text
from jflow.view.drawing.layers import Edge
from jflow.view.drawing.layout import Layout, Rect, SizedBox, Stop, arrange
from jflow.view.drawing.markup import (
    FAINT,
    PAPER,
    Element,
    add_checkbox,
    device_colour,
    document,
    group,
    mixed,
    number,
    rect,
    serialized,
    text,
    text_width,
)
from jflow.view.drawing.shapes import (
    add_arrow,
    add_box,
    add_label,
    add_line,
    add_outline,
    box_size,
    label_position,
    style_of,
)
from jflow.view.model import BoxKind, Diagram, Flow, total_bytes

_MARGIN = 16.0
_LEAST_WIDTH = 420.0


def draw(
    diagram: Diagram, opens: Collection[int] = (), devices: Sequence[Device] | None = None
) -> str:
    """Returns the SVG document: lanes for devices, boxes in rows by data flow, and a legend.

    Args:
      diagram: what to draw.
      opens: numbers of boxes that get a checkbox of class "jflow-fold-NUMBER", for HTML.
      devices: all devices of the pictures that this is one of, which decide on colours.
    """
    diagram = _without_parallel_order(diagram)
    layout = _arranged(diagram)
    width = max(layout.width, _LEAST_WIDTH)
    colours = {
        device: device_colour(number) for number, device in enumerate(devices or diagram.devices)
    }
    entries, legend_height = legend(diagram, colours, width - 2 * _MARGIN)
    role = "group" if opens else "img"
    root = document(width, layout.height + legend_height + _MARGIN, _summary(diagram), role)
    for device, lane in zip(diagram.devices, layout.lanes, strict=True):
        _add_lane(root, device, lane, colours[device])
    for arrow, route in zip(diagram.arrows, layout.routes, strict=True):
        colour = colours[diagram.boxes[arrow.source].device]
        add_arrow(root, arrow, arrow_title(diagram, arrow), route, colour)
    for i, (box, position) in enumerate(zip(diagram.boxes, layout.boxes, strict=True)):
        element = add_box(root, box, position, colours[box.device])
        if i in opens:
            add_checkbox(element, position, f"jflow-fold-{i}", box_title(box))
    _add_labels(root, diagram, layout)
    if not diagram.boxes:
        text(root, width / 2, layout.height / 2, "nothing to run", kind="name")
    add_legend(root, entries, _MARGIN, layout.height)
    return serialized(root)


def _without_parallel_order(diagram: Diagram) -> Diagram:
    """Returns the diagram without arrows of order between boxes that other arrows order, too."""
    ordered = {(a.source, a.target) for a in diagram.arrows if a.flow is not Flow.CONTROL}
    ordered |= {(b, a) for a, b in ordered}
    arrows = (
        arrow
        for arrow in diagram.arrows
        if arrow.flow is not Flow.CONTROL or (arrow.source, arrow.target) not in ordered
    )
    return replace(diagram, arrows=tuple(arrows))


def _summary(diagram: Diagram) -> str:
    n_ops = sum(len(box.all_ops) for box in diagram.boxes)
    return f"{counted(n_ops, 'operation')} on {counted(len(diagram.devices), 'device')}"


def _arranged(diagram: Diagram) -> Layout:
    lane_of = {device: number for number, device in enumerate(diagram.devices)}
    return arrange(
        [
            SizedBox(*box_size(box), lane_of[box.device], int(box.is_gradient))
            for box in diagram.boxes
        ],
        [Edge(arrow.source, arrow.target, style_of(arrow)) for arrow in diagram.arrows],
        [text_width(str(device), 13, bold=True) for device in diagram.devices],
    )


def _add_lane(root: Element, device: Device, position: Rect, colour: str) -> None:
    lane = group(root, "lane")
    look = {"fill": mixed(colour, PAPER, 0.94), "stroke": mixed(colour, PAPER, 0.6)}
    rect(lane, position, rx="12", **look)
    ink = mixed(colour, "#000000", 0.35)
    text(lane, position.x + 16, position.y + 22, str(device), kind="device", style=f"fill: {ink}")


def _add_labels(root: Element, diagram: Diagram, layout: Layout) -> None:
    occupied = list(layout.boxes)
    for arrow, route in zip(diagram.arrows, layout.routes, strict=True):
        label = arrow_label(arrow)
        if label:
            position = label_position(label, route, occupied)
            add_label(root, label, position)
            occupied.append(position)


_FONT_SIZE = 11
_ROW = 25.0
_GAP = 22.0
_SYMBOL_GAP = 7.0
_SYMBOL = Rect(0, 0, 24, 15)
_SHAPES = {
    BoxKind.STATE: "variable and its reads, queue, reader",
    BoxKind.ACCESS: "operation on one of these",
    BoxKind.FEED: "fed with each step",
}


@dataclass(frozen=True)
class Entry:
    """A symbol and its meaning.

    Attributes:
      kind: class of its group.
      label: the meaning.
      draw: adds the symbol to an element, in a rectangle of `_SYMBOL`'s size.
    """

    kind: str
    label: str
    draw: Callable[[Element, Rect], None]

    @property
    def width(self) -> float:
        """The width in pixels."""
        return _SYMBOL.width + _SYMBOL_GAP + text_width(self.label, _FONT_SIZE)


Legend = list[tuple[Entry, float, float]]
"""Entries with their x and y."""


def legend(diagram: Diagram, colours: Mapping[Device, str], width: float) -> tuple[Legend, float]:
    """Returns the entries of the legend in lines of about `width` pixels, and its height."""
    placed: Legend = []
    y = 0.0
    sections = (
        _devices(diagram, colours),
        [*_shapes(diagram), *_lines(diagram)],
        [*_prediction(diagram)],
    )
    for section in sections:
        x = 0.0
        for entry in section:
            if x and x + entry.width > width:
                x, y = 0.0, y + _ROW
            placed.append((entry, x, y))
            x += entry.width + _GAP
        y += _ROW if section else 0.0
    return placed, y


def add_legend(parent: Element, entries: Legend, left: float, top: float) -> None:
    """Draws the legend with its upper left corner at (left, top)."""
    for entry, x, y in entries:
        element = group(parent, f"legend {entry.kind}")
        symbol = Rect(left + x, top + y, _SYMBOL.width, _SYMBOL.height)
        entry.draw(element, symbol)
        text(element, symbol.right + _SYMBOL_GAP, symbol.y + 12, entry.label, kind="entry")


def _devices(diagram: Diagram, colours: Mapping[Device, str]) -> list[Entry]:
    counts: Counter[Device] = Counter()
    for part in (part for box in diagram.boxes for part in box.parts):
        counts[part.device] += len(part.ops)
    entries = []
    for device in diagram.devices:
        label = f"{device} ({counted(counts[device], 'op')})"
        entries.append(Entry("swatch", label, partial(_swatch, colours[device])))
    return entries


def _swatch(colour: str, parent: Element, bounds: Rect) -> None:
    rect(parent, bounds, rx="4", fill=mixed(colour, PAPER, 0.35), stroke=colour)


def _shapes(diagram: Diagram) -> Iterator[Entry]:
    kinds = {box.kind for box in diagram.boxes}
    for kind, label in _SHAPES.items():
        if kind in kinds:
            yield Entry("shape", label, partial(_shape, kind))


def _shape(kind: BoxKind, parent: Element, bounds: Rect) -> None:
    add_outline(parent, kind, bounds, fill=PAPER, stroke=FAINT)


def _lines(diagram: Diagram) -> Iterator[Entry]:
    sends = [value for arrow in diagram.arrows for value in arrow.sent]
    sent = f": {counted(len(sends), 'send')}, {bytes_text(total_bytes(sends))} a step"
    labels = {
        "data": "data",
        "data crossing": f"data that crosses devices{sent if sends else ''}",
        "control": "order only",
        "control crossing": "order only, crosses devices",
        "state": "the same variable",
    }
    used = {style_of(arrow) for arrow in diagram.arrows}
    for kind, label in labels.items():
        if kind in used:
            yield Entry("arrow", label, partial(_line, kind))


def _prediction(diagram: Diagram) -> Iterator[Entry]:
    prediction = diagram.prediction
    if prediction is not None:
        filled = prediction.lower_bound / prediction.seconds if prediction.seconds else 1.0
        yield Entry("prediction", prediction_text(prediction), partial(_bar, filled))


def _bar(filled: float, parent: Element, bounds: Rect) -> None:
    """Draws a bar for the predicted time, of which the fraction `filled` is the lower bound."""
    top, height = bounds.y + 3, bounds.bottom - bounds.y - 6
    rect(parent, Rect(bounds.x, top, bounds.width * min(filled, 1.0), height), fill=FAINT)
    rect(parent, Rect(bounds.x, top, bounds.width, height), fill="none", stroke=FAINT)


def _line(style: str, parent: Element, bounds: Rect) -> None:
    x, y, half = bounds.middle, (bounds.y + bounds.bottom) / 2, bounds.width / 2 + 2
    element = group(parent, style)
    element.set("transform", f"rotate(-90 {number(x)} {number(y)})")
    route = (Stop(x, y - half, y - half), Stop(x, y + half, y + half))
    add_line(element, route, FAINT if style == Flow.STATE.value else "")
