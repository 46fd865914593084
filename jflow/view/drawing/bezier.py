"""Bézier curves for routes, and positions for labels on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from jflow.view.drawing.layout import Rect, Route, Stop
from jflow.view.drawing.markup import number

HEAD = 7.0
"""Length of an arrow's head in pixels."""

_POSITIONS = (0.5, 0.42, 0.58, 0.34, 0.66, 0.27, 0.73, 0.2, 0.8)
"""Possible positions of a label on a curve, from 0 to 1, the preferred one first."""


def line_data(route: Route) -> str:
    """The `d` of an SVG path: straight in rows, curved between them, up to the head."""
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
    """The `d` of an SVG path: a triangle whose tip is the end of the route."""
    back = -_direction(route) * HEAD
    return f"M{_point(route[-1].x, route[-1].leave)}l{_point(-HEAD / 2, back)}h{number(HEAD)}z"


def label_position(route: Route, width: float, height: float, taken: Sequence[Rect]) -> Rect:
    """The position on the widest curve of a route where a label overlaps the fewest rectangles.

    Args:
      route: the route to label.
      width, height: size of the label in pixels.
      taken: the rectangles to avoid.
    """
    start, end = max(pairwise(route), key=lambda pair: abs(pair[0].x - pair[1].x))
    positions = [_centred(_at(start, end, t), width, height) for t in _POSITIONS]
    return min(positions, key=lambda position: sum(position.overlaps(other) for other in taken))


def _direction(route: Route) -> int:
    """1 for down, -1 for up."""
    return 1 if route[0].enter < route[-1].leave else -1


def _at(start: Stop, end: Stop, t: float) -> tuple[float, float]:
    """The point at `t`, from 0 to 1, of the curve between two stops."""
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
