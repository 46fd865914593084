"""Layered layout: boxes in rows by data flow and lanes by device, and routes between them.

A route changes its column only between rows, where there are no boxes, so no route passes under a
box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from jflow.view.drawing.columns import columns, fitted
from jflow.view.drawing.layers import Edge, Layers, layered

LANE_HEADER = 34.0
_LANE_PADDING = 18.0
_LANE_GAP = 26.0
_MARGIN = 16.0
_ROW_GAP = 30.0
_PORT_GAP = 12.0
_PORT_INSET = 14.0


@dataclass(frozen=True)
class Rect:
    """A rectangle by its upper left corner and size, in pixels."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """The right edge."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """The lower edge."""
        return self.y + self.height

    @property
    def middle(self) -> float:
        """The horizontal center."""
        return self.x + self.width / 2

    def overlaps(self, other: Rect) -> bool:
        """Whether the interiors intersect."""
        return (
            self.x < other.right
            and other.x < self.right
            and self.y < other.bottom
            and other.y < self.bottom
        )


@dataclass(frozen=True)
class SizedBox:
    """The size of a box to lay out, in pixels, its lane from 0 on the left, and its phase.

    Boxes of a later phase are below those of an earlier one.
    """

    width: float
    height: float
    lane: int
    phase: int = 0


@dataclass(frozen=True)
class Stop:
    """A vertical piece of a route through a row: its column and ends, in pixels."""

    x: float
    enter: float
    leave: float


Route = tuple[Stop, ...]
"""From the stop at the source to the stop at the target."""


@dataclass(frozen=True)
class Layout:
    """Positions in a picture of `width` times `height` pixels, in the order of the input."""

    boxes: tuple[Rect, ...]
    routes: tuple[Route, ...]
    lanes: tuple[Rect, ...]
    width: float
    height: float


def arrange(
    items: Sequence[SizedBox], edges: Sequence[Edge], lane_widths: Sequence[float]
) -> Layout:
    """Lays out boxes so that edges point down, are short and rarely cross.

    Args:
      items: the boxes. On a cycle of edges the first of them is on top.
      edges: between indices of boxes; no loops.
      lane_widths: minimum inner width of each lane in pixels.
    """
    layers = layered([item.lane for item in items], edges, [item.phase for item in items])
    widths = [item.width for item in items]
    x, inner_widths = columns(layers, widths, lane_widths)
    lanes = _lanes(inner_widths)
    for vertex, lane in enumerate(layers.lane):
        x[vertex] += lanes[lane][0]
    bands = _bands(layers, x, items)
    boxes: list[Rect] = [Rect(0, 0, 0, 0)] * len(items)
    for row, (top, bottom) in zip(layers.rows, bands, strict=True):
        for vertex in row:
            if vertex < len(items):
                item = items[vertex]
                y = (top + bottom - item.height) / 2
                boxes[vertex] = Rect(x[vertex] - item.width / 2, y, item.width, item.height)
    height = (bands[-1][1] if bands else _MARGIN + LANE_HEADER) + _LANE_PADDING
    return Layout(
        tuple(boxes),
        tuple(_routes(layers, x, bands, boxes, edges)),
        tuple(
            Rect(left - _LANE_PADDING, _MARGIN, width + 2 * _LANE_PADDING, height - _MARGIN)
            for left, width in lanes
        ),
        (lanes[-1][0] + lanes[-1][1] + _LANE_PADDING if lanes else 0.0) + _MARGIN,
        height + _MARGIN,
    )


def _lanes(inner_widths: Sequence[float]) -> list[tuple[float, float]]:
    """Returns (left, width) of the interior of each lane."""
    steps = (width + 2 * _LANE_PADDING + _LANE_GAP for width in inner_widths)
    starts = accumulate(steps, initial=_MARGIN + _LANE_PADDING)
    return list(zip(starts, inner_widths, strict=False))


def _bands(
    layers: Layers, x: Sequence[float], items: Sequence[SizedBox]
) -> list[tuple[float, float]]:
    """Returns (top, bottom) of each row; gaps are larger where routes go far or change lanes."""
    row_of = {vertex: number for number, row in enumerate(layers.rows) for vertex in row}
    reach = [0.0] * len(layers.rows)
    changes: list[set[int]] = [set() for _ in layers.rows]
    for a, b in layers.links:
        reach[row_of[b]] = max(reach[row_of[b]], abs(x[a] - x[b]))
        if layers.lane[a] != layers.lane[b]:
            changes[row_of[b]].add(a)
    bands = []
    top = _MARGIN + LANE_HEADER
    for number, row in enumerate(layers.rows):
        gap = _ROW_GAP + min(0.06 * reach[number], 30.0) + 10.0 * len(changes[number])
        top += gap if number else 10.0
        bottom = top + max(items[v].height for v in row if v < len(items))
        bands.append((top, bottom))
        top = bottom
    return bands


def _routes(
    layers: Layers,
    x: Sequence[float],
    bands: Sequence[tuple[float, float]],
    boxes: Sequence[Rect],
    edges: Sequence[Edge],
) -> list[Route]:
    row_of = {vertex: number for number, row in enumerate(layers.rows) for vertex in row}
    leave = _ports(layers, x, boxes, upper=True)
    enter = _ports(layers, x, boxes, upper=False)
    routes = []
    for number, (chain, edge) in enumerate(zip(layers.chains, edges, strict=True)):
        first, last = chain[0], chain[-1]
        stops = [
            Stop(leave[number], boxes[first].bottom, bands[row_of[first]][1]),
            *(Stop(x[bend], *bands[row_of[bend]]) for bend in chain[1:-1]),
            Stop(enter[number], bands[row_of[last]][0], boxes[last].y),
        ]
        if first != edge.source:
            stops = [Stop(stop.x, stop.leave, stop.enter) for stop in reversed(stops)]
        routes.append(tuple(stops))
    return routes


def _ports(
    layers: Layers, x: Sequence[float], boxes: Sequence[Rect], *, upper: bool
) -> list[float]:
    """Returns where each chain touches its upper or lower box; those that share a bend meet there.

    Other chains touch the box apart from each other.
    """
    at: dict[int, dict[int, list[int]]] = {}
    for number, chain in enumerate(layers.chains):
        end, following = (chain[0], chain[1]) if upper else (chain[-1], chain[-2])
        key = following if following >= len(boxes) else -1 - number
        at.setdefault(end, {}).setdefault(key, []).append(number)
    ports = [0.0] * len(layers.chains)
    for vertex, chains_by_bend in at.items():
        low, high = _port_range(boxes[vertex])
        ends = []
        for numbers in chains_by_bend.values():
            chain = layers.chains[numbers[0]]
            following = chain[1] if upper else chain[-2]
            ends.append((_end_column(vertex, following, x, boxes), numbers))
        ends.sort()
        gap = min(_PORT_GAP, (high - low) / len(ends))
        wanted = [min(max(position, low), high) for position, _ in ends]
        positions = fitted(wanted, [1.0] * len(ends), [gap] * (len(ends) - 1), low, high)
        for (_, numbers), position in zip(ends, positions, strict=True):
            for number in numbers:
                ports[number] = position
    return ports


def _end_column(end: int, following: int, x: Sequence[float], boxes: Sequence[Rect]) -> float:
    """Returns the preferred column of a chain's end; straight if the link joins two boxes."""
    if following >= len(boxes):
        return x[following]
    (low, high), (least, most) = _port_range(boxes[end]), _port_range(boxes[following])
    if max(low, least) > min(high, most):
        return x[following]
    return min(max((x[end] + x[following]) / 2, low, least), high, most)


def _port_range(box: Rect) -> tuple[float, float]:
    inset = min(_PORT_INSET, box.width / 2)
    return box.x + inset, box.right - inset
