"""Assigns horizontal positions in a layered layout, so that edges are nearly straight.

Sweeps down and up move each row towards the medians of the neighbours of its vertices. The order
and the distances in a row are constraints, so the best positions are an isotonic regression, which
the pool-adjacent-violators algorithm finds (Barlow et al., 1972).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from statistics import median

from jflow.view.drawing.layers import Layers

_SWEEPS = 24
_BOX_GAP = 26.0
_BEND_GAP = 14.0
_INERTIA = 0.2
"""The weight of its present position for a vertex without neighbours; a neighbour has 1."""

_Neighbours = dict[int, list[tuple[int, float]]]


def columns(
    layers: Layers, widths: Sequence[float], lane_widths: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Computes horizontal positions in lanes as wide as their fullest row.

    Args:
      layers: rows in their final order.
      widths: widths of the vertices without bends, in pixels.
      lane_widths: minimum width of each lane in pixels.

    Returns:
      The middle of each vertex in pixels from the left of its lane, and the width of each lane.
    """
    size = [*widths, *(0.0 for _ in range(len(layers.lane) - len(widths)))]
    rows = [_Row(group, size) for group in _groups(layers)]
    room = list(lane_widths)
    for row in rows:
        lane = layers.lane[row.vertices[0]]
        room[lane] = max(room[lane], row.width)
    x = [0.0] * len(size)
    for row in rows:
        row.centre(x, room[layers.lane[row.vertices[0]]])
    upper, lower = _neighbours(layers, len(widths))
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            lane_width = room[layers.lane[row.vertices[0]]]
            row.move(x, upper if down else lower, lane_width)
    for _ in range(2):  # the first pass makes room for the second
        _straighten(layers, x, rows, room)
    return x, room


def fitted(
    wanted: Sequence[float],
    weights: Sequence[float],
    gaps: Sequence[float],
    low: float,
    high: float,
) -> list[float]:
    """Returns the feasible positions with the least weighted squared distance from the wanted ones.

    Subtracting the sum of gaps to the left turns the least distances into a monotonic order, for
    which adjacent positions in the wrong order are merged into blocks at their weighted mean.

    Args:
      wanted: positions.
      weights: their positive weights.
      gaps: minimum distances between neighbours, one fewer than positions.
      low, high: bounds of the first and the last position, far enough apart for the gaps.
    """
    offsets = list(accumulate(gaps, initial=0.0))
    blocks: list[tuple[float, float, int]] = []  # mean, weight, number of positions
    for target, weight, offset in zip(wanted, weights, offsets, strict=True):
        mean, total, count = target - offset, weight, 1
        while blocks and blocks[-1][0] >= mean:
            before, before_weight, before_count = blocks.pop()
            mean = (mean * total + before * before_weight) / (total + before_weight)
            total, count = total + before_weight, count + before_count
        blocks.append((mean, total, count))
    means = [mean for mean, _, count in blocks for _ in range(count)]
    top = high - offsets[-1]
    return [min(max(m, low), top) + offset for m, offset in zip(means, offsets, strict=True)]


class _Row:
    """The vertices of one row in one lane, from left to right."""

    def __init__(self, vertices: Sequence[int], size: Sequence[float]) -> None:
        self.vertices = vertices
        self._gaps = [
            (size[a] + size[b]) / 2 + (_BOX_GAP if size[a] and size[b] else _BEND_GAP)
            for a, b in pairwise(vertices)
        ]
        self._low = size[vertices[0]] / 2
        self._high = size[vertices[-1]] / 2
        self.width = self._low + sum(self._gaps) + self._high

    def centre(self, x: list[float], room: float) -> None:
        start = (room - self.width) / 2 + self._low
        for vertex, position in zip(
            self.vertices, accumulate(self._gaps, initial=start), strict=True
        ):
            x[vertex] = position

    def move(self, x: list[float], neighbours: _Neighbours, room: float) -> None:
        pulls = [neighbours.get(v, [(v, _INERTIA)]) for v in self.vertices]
        wanted = [_median([(x[other], weight) for other, weight in pull]) for pull in pulls]
        weights = [sum(weight for _, weight in pull) for pull in pulls]
        positions = fitted(wanted, weights, self._gaps, self._low, room - self._high)
        for vertex, position in zip(self.vertices, positions, strict=True):
            x[vertex] = position

    def freedom(self, vertex: int, x: Sequence[float], room: float) -> tuple[float, float]:
        """Returns the range in which a vertex can move if the others stay."""
        i = self.vertices.index(vertex)
        low = x[self.vertices[i - 1]] + self._gaps[i - 1] if i else self._low
        is_last = i == len(self.vertices) - 1
        high = room - self._high if is_last else x[self.vertices[i + 1]] - self._gaps[i]
        # Rounding may have moved it out slightly.
        return min(low, x[vertex]), max(high, x[vertex])


def _straighten(
    layers: Layers, x: list[float], rows: Sequence[_Row], room: Sequence[float]
) -> None:
    """Aligns the bends of each edge, in runs as long as their rows permit."""
    row_of = {vertex: row for row in rows for vertex in row.vertices}
    for chain in layers.chains:
        straight: list[int] = []
        low, high = -math.inf, math.inf
        for bend in chain[1:-1]:
            least, most = row_of[bend].freedom(bend, x, room[layers.lane[bend]])
            if max(low, least) > min(high, most):
                _align(straight, x, low, high)
                straight, low, high = [], -math.inf, math.inf
            straight.append(bend)
            low, high = max(low, least), min(high, most)
        _align(straight, x, low, high)


def _align(bends: Sequence[int], x: list[float], low: float, high: float) -> None:
    if bends:
        column = min(max(median(x[bend] for bend in bends), low), high)
        for bend in bends:
            x[bend] = column


def _groups(layers: Layers) -> Iterator[list[int]]:
    """Returns the vertices of each row in each lane."""
    for row in layers.rows:
        for _, group in groupby(row, key=lambda vertex: layers.lane[vertex]):
            yield list(group)


def _neighbours(layers: Layers, n_boxes: int) -> tuple[_Neighbours, _Neighbours]:
    """Returns each vertex's weighted upper and lower neighbours in its lane; bends weigh more."""
    upper: _Neighbours = {}
    lower: _Neighbours = {}
    for a, b in layers.links:
        if layers.lane[a] == layers.lane[b]:
            weight = (1.0, 2.0, 8.0)[(a >= n_boxes) + (b >= n_boxes)]
            upper.setdefault(b, []).append((a, weight))
            lower.setdefault(a, []).append((b, weight))
    return upper, lower


def _median(pairs: list[tuple[float, float]]) -> float:
    """Returns the weighted median of (position, weight) pairs; the middle if there are two."""
    pairs.sort()
    half = sum(weight for _, weight in pairs) / 2
    total = 0.0
    for index, (position, weight) in enumerate(pairs):
        total += weight
        if total == half:
            return (position + pairs[index + 1][0]) / 2
        if total > half:
            return position
    raise ValueError("the median of nothing")
