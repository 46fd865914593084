"""Draws a diagram as an SVG document."""

from __future__ import annotations

from jflow.base.cluster import Device
from jflow.view.captions import arrow_label, arrow_title
from jflow.view.drawing.arrow import add_arrow, add_label, free_position
from jflow.view.drawing.colour import PAPER, device_colour, mixed
from jflow.view.drawing.layout import Layout, Rect, SizedBox, arrange
from jflow.view.drawing.legend import add_legend, legend
from jflow.view.drawing.markup import (
    Element,
    document,
    group,
    rect,
    serialized,
    text,
    text_width,
)
from jflow.view.drawing.shape import add_box, box_size
from jflow.view.labels import counted
from jflow.view.model import Diagram

_MARGIN = 16.0
_LEAST_WIDTH = 420.0


def draw(diagram: Diagram) -> str:
    """The SVG document: a lane for each device, boxes in rows by data flow, and a legend."""
    layout = _arranged(diagram)
    width = max(layout.width, _LEAST_WIDTH)
    entries, legend_height = legend(diagram, width - 2 * _MARGIN)
    root = document(width, layout.height + legend_height + _MARGIN, _summary(diagram))
    colours = {device: device_colour(number) for number, device in enumerate(diagram.devices)}
    for (device, colour), lane in zip(colours.items(), layout.lanes, strict=True):
        _add_lane(root, device, lane, colour)
    for arrow, route in zip(diagram.arrows, layout.routes, strict=True):
        colour = colours[diagram.boxes[arrow.source].device]
        add_arrow(root, arrow, arrow_title(diagram, arrow), route, colour)
    for box, position in zip(diagram.boxes, layout.boxes, strict=True):
        add_box(root, box, position, colours[box.device])
    _add_labels(root, diagram, layout)
    if not diagram.boxes:
        text(root, width / 2, layout.height / 2, "nothing to run", kind="name")
    add_legend(root, entries, _MARGIN, layout.height)
    return serialized(root)


def _summary(diagram: Diagram) -> str:
    n_ops = sum(len(box.ops) for box in diagram.boxes)
    return f"{counted(n_ops, 'operation')} on {counted(len(diagram.devices), 'device')}"


def _arranged(diagram: Diagram) -> Layout:
    lane_of = {device: number for number, device in enumerate(diagram.devices)}
    return arrange(
        [SizedBox(*box_size(box), lane_of[box.device]) for box in diagram.boxes],
        [(arrow.source, arrow.target) for arrow in diagram.arrows],
        [text_width(str(device), 13, bold=True) for device in diagram.devices],
    )


def _add_lane(root: Element, device: Device, position: Rect, colour: str) -> None:
    lane = group(root, "lane")
    look = {"fill": mixed(colour, PAPER, 0.94), "stroke": mixed(colour, PAPER, 0.6)}
    rect(lane, position, rx="12", **look)
    ink = mixed(colour, "#000000", 0.35)
    text(lane, position.x + 16, position.y + 22, str(device), kind="device", style=f"fill: {ink}")


def _add_labels(root: Element, diagram: Diagram, layout: Layout) -> None:
    taken = list(layout.boxes)
    for arrow, route in zip(diagram.arrows, layout.routes, strict=True):
        label = arrow_label(arrow)
        if label:
            position = free_position(label, route, taken)
            add_label(root, label, position)
            taken.append(position)
