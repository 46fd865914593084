"""Draws boxes and arrows: outlines, sizes and texts; curves, heads and labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from jflow.view.captions import box_detail, box_label, box_title
from jflow.view.drawing.layout import Rect, Route, Stop
from jflow.view.drawing.markup import (
    PAPER,
    Element,
    group,
    mixed,
    number,
    path,
    rect,
    text,
    text_width,
)
from jflow.view.model import Arrow, Box, BoxKind, Flow

_LID = 6.0
_SHEET = 4.0
_CLASSES = {BoxKind.STATE: "variable"}


def box_size(box: Box) -> tuple[float, float]:
    """Returns the width and height of a box in pixels."""
    inner = max(text_width(box_label(box), 12, bold=True), text_width(box_detail(box), 10), 60.0)
    # A fold has room for a checkbox beside its label.
    return inner + (46 if box.members else 22), {BoxKind.STATE: 50.0, BoxKind.FEED: 36.0}.get(
        box.kind, 40.0
    )


def add_box(parent: Element, box: Box, bounds: Rect, colour: str) -> Element:
    """Draws a box in the colour of its device; returns its group."""
    element = group(parent, f"op {_CLASSES.get(box.kind, box.kind.value)}", box_title(box))
    look = {"fill": mixed(colour, PAPER, 0.8), "stroke": colour}
    if box.members:
        sheet = Rect(bounds.x + _SHEET, bounds.y + _SHEET, bounds.width, bounds.height)
        add_outline(element, box.kind, sheet, kind="sheet", **look)
    add_outline(element, box.kind, bounds, kind="box", **look)
    drop = _LID if box.kind is BoxKind.STATE else 0.0
    y = bounds.y + (bounds.height + drop) / 2
    text(element, bounds.middle, y - 2, box_label(box), kind="name")
    text(element, bounds.middle, y + 12, box_detail(box), kind="detail")
    return element


def add_outline(parent: Element, shape: BoxKind, bounds: Rect, **look: str) -> None:
    """Draws only an outline: a rounded box, a double one, a cylinder or a pill."""
    if shape is BoxKind.STATE:
        _add_cylinder(parent, bounds, **look)
    elif shape is BoxKind.FEED:
        pill = look | {"fill": PAPER, "stroke_dasharray": "4 2.5"}
        rect(parent, bounds, rx=number(bounds.height / 2), **pill)
    else:
        rect(parent, bounds, rx="7", stroke_width="1.4", **look)
        if shape is BoxKind.ACCESS:
            inside = Rect(bounds.x + 3, bounds.y + 3, bounds.width - 6, bounds.height - 6)
            rect(parent, inside, rx="5", fill="none", stroke=look["stroke"])


def _add_cylinder(parent: Element, bounds: Rect, **look: str) -> None:
    half = number(bounds.width / 2)
    rect(parent, bounds, rx=half, ry=number(_LID), stroke_width="1.4", **look)
    lid = f"M{number(bounds.x)},{number(bounds.y + _LID)}a{half},{number(_LID)} 0 0 0 "
    lid += f"{number(bounds.width)},0"
    path(parent, lid, fill="none", stroke=look["stroke"], stroke_width="1.4")


_LABEL_HEIGHT = 15.0


def add_arrow(parent: Element, arrow: Arrow, title: str, route: Route, colour: str) -> None:
    """Draws an arrow without its label; `colour` is that of the device it comes from."""
    element = group(parent, f"arrow {style_of(arrow)}", title)
    # Wide and invisible, so that the pointer finds the line.
    path(element, line_data(route), kind="reach")
    add_line(element, route, colour if arrow.flow is Flow.STATE else "")


def add_line(parent: Element, route: Route, colour: str = "") -> None:
    """Draws only line and head, in the style of their group unless a colour is given."""
    look = ({"stroke": colour}, {"fill": colour}) if colour else ({}, {})
    path(parent, line_data(route), kind="line", **look[0])
    path(parent, head_data(route), kind="head", **look[1])


def style_of(arrow: Arrow) -> str:
    """Returns the CSS classes of an arrow's group."""
    return arrow.flow.value + (" crossing" if arrow.crosses else "")


def add_label(parent: Element, label: str, bounds: Rect) -> None:
    """Draws a label at its position."""
    rect(parent, bounds, kind="pill", rx=number(bounds.height / 2))
    text(parent, bounds.middle, bounds.y + 11, label, kind="bytes")


HEAD = 7.0
"""Length of an arrow's head in pixels."""

_POSITIONS = (0.5, 0.42, 0.58, 0.34, 0.66, 0.27, 0.73, 0.2, 0.8)
"""Possible positions of a label on a curve, from 0 to 1, the preferred one first."""


def line_data(route: Route) -> str:
    """Returns the `d` of an SVG path: straight in rows, curved between them, up to the head."""
    *stops, last = route
    tip = last.leave - _direction(route) * (HEAD - 2)
    enter = min(last.enter, tip) if _direction(route) > 0 else max(last.enter, tip)
    stops.append(Stop(last.x, enter, tip))
    pieces = [f"M{_point(route[0].x, route[0].enter)}", *_straight(route[0])]
    for stop, following in pairwise(stops):
        middle = (stop.leave + following.enter) / 2
        pieces.append(
            f"C{_point(stop.x, middle)} {_point(following.x, middle)} "
            f"{_point(following.x, following.enter)}"
        )
        pieces.extend(_straight(following))
    return "".join(pieces)


def head_data(route: Route) -> str:
    """Returns the `d` of an SVG path: a triangle whose tip is the end of the route."""
    back = -_direction(route) * HEAD
    return f"M{_point(route[-1].x, route[-1].leave)}l{_point(-HEAD / 2, back)}h{number(HEAD)}z"


def label_position(label: str, route: Route, occupied: Sequence[Rect]) -> Rect:
    """Returns the label position on a route's widest curve that overlaps the fewest rectangles.

    Args:
      label: the text.
      route: the route to label.
      occupied: the rectangles to avoid.
    """
    width = text_width(label, 10, bold=True) + 12
    start, end = max(pairwise(route), key=lambda pair: abs(pair[0].x - pair[1].x))
    positions = [_centred(_at(start, end, t), width, _LABEL_HEIGHT) for t in _POSITIONS]
    return min(positions, key=lambda position: sum(position.overlaps(other) for other in occupied))


def _direction(route: Route) -> int:
    """Returns 1 for down, -1 for up."""
    return 1 if route[0].enter < route[-1].leave else -1


def _at(start: Stop, end: Stop, t: float) -> tuple[float, float]:
    """Returns the point at `t`, from 0 to 1, of the curve between two stops."""
    near = (1 - t) ** 3 + 3 * (1 - t) ** 2 * t
    middle = (start.leave + end.enter) / 2
    y = start.leave * (1 - t) ** 3 + middle * 3 * t * (1 - t) + end.enter * t**3
    return start.x * near + end.x * (1 - near), y


def _centred(point: tuple[float, float], width: float, height: float) -> Rect:
    return Rect(point[0] - width / 2, point[1] - height / 2, width, height)


def _straight(stop: Stop) -> Iterator[str]:
    if stop.enter != stop.leave:
        yield f"L{_point(stop.x, stop.leave)}"


def _point(x: float, y: float) -> str:
    return f"{number(x)},{number(y)}"
