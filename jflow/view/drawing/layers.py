"""Assigns vertices to rows and orders each row (Sugiyama, Tagawa and Toda, 1981).

An edge that skips rows is cut into links between adjacent rows by *bends*, vertices without size,
so that each row reserves room for the edges that pass through it.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

Edge = tuple[int, int]
Row = list[int]

_SWEEPS = 12


@dataclass(frozen=True)
class Layers:
    """Vertices of a graph assigned to rows, and ordered in each row.

    Vertices keep their numbers; bends are numbered after them.

    Attributes:
      rows: vertices from top to bottom and from left to right; those of a lane are adjacent.
      lane: the lane of each vertex.
      chains: for each edge the vertices on it from top to bottom, ends included.
    """

    rows: list[Row]
    lane: list[int]
    chains: list[list[int]]

    @property
    def links(self) -> Iterable[Edge]:
        """The segments (upper vertex, lower vertex) of all edges; each connects adjacent rows."""
        return (link for chain in self.chains for link in pairwise(chain))


def layered(lanes: Sequence[int], edges: Sequence[Edge]) -> Layers:
    """Assigns vertices to rows so that edges point down, and orders the rows.

    Edges that close a cycle point up. A bend is in the lane of the upper end of its edge, so that
    edges change lanes just above their lower end.

    Args:
      lanes: the lane of each vertex, from 0 on the left.
      edges: (from, to), no loops. On a cycle the vertex with the lowest number is on top.
    """
    downward = _downward(len(lanes), edges)
    row_of = _row_of(len(lanes), downward)
    rows: list[Row] = [[] for _ in range(max(row_of, default=-1) + 1)]
    for vertex, number in enumerate(row_of):
        rows[number].append(vertex)
    lane = list(lanes)
    chains = []
    for upper, lower in downward:
        chain = [upper]
        for number in range(row_of[upper] + 1, row_of[lower]):
            rows[number].append(len(lane))
            chain.append(len(lane))
            lane.append(lanes[upper])
        chains.append([*chain, lower])
    layers = Layers([sorted(row, key=lambda v: lane[v]) for row in rows], lane, chains)
    _untangle(layers)
    return layers


def _downward(n_vertices: int, edges: Sequence[Edge]) -> list[Edge]:
    """Returns the edges, with some of them reversed to break cycles."""
    position = {vertex: number for number, vertex in enumerate(_order(n_vertices, edges))}
    return [(a, b) if position[a] < position[b] else (b, a) for a, b in edges]


def _order(n_vertices: int, edges: Sequence[Edge]) -> list[int]:
    """Returns a topological order of the vertices that ignores edges which close a cycle."""
    after = _adjacent(n_vertices, edges)
    waiting = [0] * n_vertices
    for _, target in edges:
        waiting[target] += 1
    ready = [vertex for vertex in range(n_vertices) if not waiting[vertex]]
    left = dict.fromkeys(range(n_vertices))
    order = []
    while left:
        if not ready:
            ready.append(next(v for v in left if any(target in left for target in after[v])))
        vertex = heapq.heappop(ready)
        if vertex not in left:
            continue
        del left[vertex]
        order.append(vertex)
        for target in after[vertex]:
            waiting[target] -= 1
            if not waiting[target]:
                heapq.heappush(ready, target)
    return order


def _adjacent(n_vertices: int, edges: Iterable[Edge]) -> list[list[int]]:
    after: list[list[int]] = [[] for _ in range(n_vertices)]
    for source, target in edges:
        after[source].append(target)
    return after


def _row_of(n_vertices: int, downward: Sequence[Edge]) -> list[int]:
    """Returns the uppermost possible row of each vertex; a source goes just above its targets."""
    after = _adjacent(n_vertices, downward)
    row_of = [0] * n_vertices
    for vertex in _order(n_vertices, downward):
        for target in after[vertex]:
            row_of[target] = max(row_of[target], row_of[vertex] + 1)
    targets = {target for _, target in downward}
    for vertex in range(n_vertices):
        if after[vertex] and vertex not in targets:
            row_of[vertex] = min(row_of[target] for target in after[vertex]) - 1
    return row_of


def _untangle(layers: Layers) -> None:
    """Reduces crossings by barycentre sweeps, down and up, and keeps the best order found."""
    upper: dict[int, list[int]] = {}
    lower: dict[int, list[int]] = {}
    for a, b in layers.links:
        lower.setdefault(a, []).append(b)
        upper.setdefault(b, []).append(a)
    best = [list(row) for row in layers.rows]
    fewest = _crossings(best, lower)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        down = sweep % 2 == 0
        _sweep(layers, upper if down else lower, reverse=not down)
        crossings = _crossings(layers.rows, lower)
        if crossings < fewest:
            best, fewest = [list(row) for row in layers.rows], crossings
    layers.rows[:] = best


def _sweep(layers: Layers, neighbours: dict[int, list[int]], *, reverse: bool) -> None:
    position: dict[int, float] = {}
    for row in reversed(layers.rows) if reverse else layers.rows:
        position.update(_positions(row, layers.lane))
        row.sort(key=_sort_key(position, layers.lane, neighbours))
        position.update(_positions(row, layers.lane))


def _sort_key(
    position: dict[int, float], lane: Sequence[int], neighbours: dict[int, list[int]]
) -> Callable[[int], tuple[int, float]]:
    def key(vertex: int) -> tuple[int, float]:
        others = neighbours.get(vertex, [vertex])
        return lane[vertex], sum(position[other] for other in others) / len(others)

    return key


def _positions(row: Row, lane: Sequence[int]) -> dict[int, float]:
    """Returns each vertex's position: its lane number plus the fraction of its lane left of it."""
    members: dict[int, list[int]] = {}
    for vertex in row:
        members.setdefault(lane[vertex], []).append(vertex)
    return {
        vertex: number + (index + 0.5) / len(group)
        for number, group in members.items()
        for index, vertex in enumerate(group)
    }


def _crossings(rows: Sequence[Row], lower: dict[int, list[int]]) -> int:
    total = 0
    for row, below in pairwise(rows):
        index = {vertex: number for number, vertex in enumerate(below)}
        seen: list[int] = []
        for vertex in row:
            ends = [index[target] for target in lower.get(vertex, ())]
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total
