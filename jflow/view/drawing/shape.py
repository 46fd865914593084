"""The outline, size and texts of each kind of box."""

from __future__ import annotations

from jflow.view.captions import box_detail, box_label, box_title
from jflow.view.drawing.colour import PAPER, mixed
from jflow.view.drawing.layout import Rect
from jflow.view.drawing.markup import Element, group, number, path, rect, text, text_width
from jflow.view.model import Box, BoxKind

_LID = 6.0
_SHEET = 4.0
_CLASSES = {BoxKind.STATE: "variable"}


def box_size(box: Box) -> tuple[float, float]:
    """Width and height in pixels."""
    inner = max(text_width(box_label(box), 12, bold=True), text_width(box_detail(box), 10), 60.0)
    return inner + 22, {BoxKind.STATE: 50.0, BoxKind.FEED: 36.0}.get(box.kind, 40.0)


def add_box(parent: Element, box: Box, bounds: Rect, colour: str) -> None:
    """Draws a box in the colour of its device."""
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


def add_outline(parent: Element, shape: BoxKind, bounds: Rect, **look: str) -> None:
    """Draws an outline alone: a rounded box, a double one, a cylinder or a pill."""
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
