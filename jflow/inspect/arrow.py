"""How arrows look and what they say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jflow.graph import Tensor
from jflow.inspect.bezier import head_data, label_position, line_data
from jflow.inspect.diagram import Arrow, Flow
from jflow.inspect.labels import byte_text, counted, shape_text, size_bytes, text_width
from jflow.inspect.layout import Rect, Route
from jflow.inspect.markup import Element, group, number, path, rect, text

_LABEL_HEIGHT = 15.0
_TITLE_LIMIT = 20


def add_arrow(parent: Element, arrow: Arrow, route: Route, colour: str) -> None:
    """Draws an arrow without its label; `colour` is that of the device it comes from."""
    element = group(parent, f"arrow {style_of(arrow)}", title(arrow))
    # Wide and invisible, so that the pointer finds the line.
    path(element, line_data(route), kind="reach")
    add_line(element, route, colour if arrow.flow is Flow.STATE else "")


def add_line(parent: Element, route: Route, colour: str = "") -> None:
    """Draws line and head alone, in the style of the group they are in unless colour is given."""
    look = ({"stroke": colour}, {"fill": colour}) if colour else ({}, {})
    path(parent, line_data(route), kind="line", **look[0])
    path(parent, head_data(route), kind="head", **look[1])


def style_of(arrow: Arrow) -> str:
    """The classes of an arrow's group."""
    return arrow.flow.value + (" crossing" if arrow.crosses else "")


def label_of(arrow: Arrow) -> str:
    """What is written on an arrow: the size of what it sends, if it does."""
    return byte_text(size_bytes(arrow.sent)) if arrow.sent else ""


def add_label(parent: Element, label: str, bounds: Rect) -> None:
    """Draws a label at its position."""
    rect(parent, bounds, kind="pill", rx=number(bounds.height / 2))
    text(parent, bounds.middle, bounds.y + 11, label, kind="bytes")


def free_position(label: str, route: Route, taken: Sequence[Rect]) -> Rect:
    """Where on a route to put a label."""
    return label_position(route, text_width(label, 10, bold=True) + 12, _LABEL_HEIGHT, taken)


def title(arrow: Arrow) -> str:
    """Everything that is known of an arrow, a fact a line."""
    return "\n".join(_facts(arrow))


def _facts(arrow: Arrow) -> Iterator[str]:
    yield f"{arrow.source.name} → {arrow.target.name}"
    tensors = list(arrow.tensors)
    for tensor in tensors[:_TITLE_LIMIT]:
        yield _value(tensor, arrow)
    if len(tensors) > _TITLE_LIMIT:
        yield f"… and {len(tensors) - _TITLE_LIMIT} more"
    if arrow.flow is Flow.CONTROL:
        yield "runs after it, without data"
    elif arrow.flow is Flow.STATE:
        yield "the same variable"
    if arrow.crosses:
        yield f"from {arrow.source.device}"
        yield f"to {arrow.target.device}"
    if arrow.sent:
        size = byte_text(size_bytes(arrow.sent))
        yield f"{counted(len(arrow.sent), 'send')}, {size} a step"


def _value(tensor: Tensor, arrow: Arrow) -> str:
    words = f"{shape_text(tensor)}  {tensor.name}"
    if arrow.crosses:
        words += f"  {byte_text(size_bytes([tensor]))}"
        if tensor not in arrow.sent:
            words += ", sent with another arrow"
    return words
