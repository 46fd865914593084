"""Draws a diagram as an SVG document."""

from __future__ import annotations

from jflow.cluster import Device
from jflow.inspect.arrow import add_arrow, add_label, free_position, label_of
from jflow.inspect.colour import PAPER, device_colour, mixed
from jflow.inspect.diagram import Diagram
from jflow.inspect.labels import counted, text_width
from jflow.inspect.layout import Item, Layout, Rect, arrange
from jflow.inspect.legend import add_legend, legend
from jflow.inspect.markup import Element, document, group, rect, serialized, text
from jflow.inspect.shape import add_box, box_size

_MARGIN = 16.0
_LEAST_WIDTH = 420.0


def draw(diagram: Diagram) -> str:
    """The SVG document."""
    layout = _arranged(diagram)
    width = max(layout.width, _LEAST_WIDTH)
    entries, legend_height = legend(diagram, width - 2 * _MARGIN)
    root = document(width, layout.height + legend_height + _MARGIN, _summary(diagram))
    for number, (device, lane) in enumerate(zip(diagram.devices, layout.lanes, strict=True)):
        _add_lane(root, device, lane, device_colour(number))
    _add_arrows(root, diagram, layout)
    for box, position in zip(diagram.boxes, layout.boxes, strict=True):
        add_box(root, box, position, _colour(diagram, box.device))
    _add_labels(root, diagram, layout)
    if not diagram.boxes:
        text(root, width / 2, layout.height / 2, "nothing to run", kind="name")
    add_legend(root, entries, _MARGIN, layout.height)
    return serialized(root)


def _summary(diagram: Diagram) -> str:
    n_ops = sum(len(box.ops) for box in diagram.boxes)
    return f"{counted(n_ops, 'operation')} on {counted(len(diagram.devices), 'device')}"


def _colour(diagram: Diagram, device: Device) -> str:
    return device_colour(diagram.devices.index(device))


def _arranged(diagram: Diagram) -> Layout:
    lane_of = {device: number for number, device in enumerate(diagram.devices)}
    index = {box: number for number, box in enumerate(diagram.boxes)}
    return arrange(
        [Item(*box_size(box), lane_of[box.device]) for box in diagram.boxes],
        [(index[arrow.source], index[arrow.target]) for arrow in diagram.arrows],
        [text_width(str(device), 13, bold=True) for device in diagram.devices],
    )


def _add_lane(root: Element, device: Device, position: Rect, colour: str) -> None:
    lane = group(root, "lane")
    look = {"fill": mixed(colour, PAPER, 0.94), "stroke": mixed(colour, PAPER, 0.6)}
    rect(lane, position, rx="12", **look)
    ink = mixed(colour, "#000000", 0.35)
    text(lane, position.x + 16, position.y + 22, str(device), kind="device", style=f"fill: {ink}")


def _add_arrows(root: Element, diagram: Diagram, layout: Layout) -> None:
    for arrow, route in zip(diagram.arrows, layout.routes, strict=True):
        add_arrow(root, arrow, route, _colour(diagram, arrow.source.device))


def _add_labels(root: Element, diagram: Diagram, layout: Layout) -> None:
    taken = list(layout.boxes)
    for arrow, route in zip(diagram.arrows, layout.routes, strict=True):
        label = label_of(arrow)
        if label:
            position = free_position(label, route, taken)
            add_label(root, label, position)
            taken.append(position)
