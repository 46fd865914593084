"""The line, head and label of an arrow."""

from __future__ import annotations

from collections.abc import Sequence

from jflow.view.drawing.bezier import head_data, label_position, line_data
from jflow.view.drawing.layout import Rect, Route
from jflow.view.drawing.markup import Element, group, number, path, rect, text, text_width
from jflow.view.model import Arrow, Flow

_LABEL_HEIGHT = 15.0


def add_arrow(parent: Element, arrow: Arrow, title: str, route: Route, colour: str) -> None:
    """Draws an arrow without its label; `colour` is that of the device it comes from."""
    element = group(parent, f"arrow {style_of(arrow)}", title)
    # Wide and invisible, so that the pointer finds the line.
    path(element, line_data(route), kind="reach")
    add_line(element, route, colour if arrow.flow is Flow.STATE else "")


def add_line(parent: Element, route: Route, colour: str = "") -> None:
    """Draws line and head alone, in the style of their group unless a colour is given."""
    look = ({"stroke": colour}, {"fill": colour}) if colour else ({}, {})
    path(parent, line_data(route), kind="line", **look[0])
    path(parent, head_data(route), kind="head", **look[1])


def style_of(arrow: Arrow) -> str:
    """The classes of an arrow's group."""
    return arrow.flow.value + (" crossing" if arrow.crosses else "")


def add_label(parent: Element, label: str, bounds: Rect) -> None:
    """Draws a label at its position."""
    rect(parent, bounds, kind="pill", rx=number(bounds.height / 2))
    text(parent, bounds.middle, bounds.y + 11, label, kind="bytes")


def free_position(label: str, route: Route, taken: Sequence[Rect]) -> Rect:
    """The position for a label on a route that overlaps `taken` least."""
    return label_position(route, text_width(label, 10, bold=True) + 12, _LABEL_HEIGHT, taken)
