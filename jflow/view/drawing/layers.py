"""Assigns vertices to rows and orders each row (Sugiyama, Tagawa and Toda, 1981).

An edge that skips rows is cut into links between adjacent rows by *bends*, vertices without size,
so that each row reserves room for the edges that pass through it. Edges of one kind that leave the
same vertex, or that enter the same vertex, share bends: they are one line that branches.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

Row = list[int]

_SWEEPS = 12


class Edge(NamedTuple):
    """An edge between two vertices; only edges of the same kind are drawn as one line."""

    source: int
    target: int
    kind: str = ""


_Segment = tuple[int, int]
"""The upper and the lower vertex of a piece of an edge."""


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
    def links(self) -> Iterable[_Segment]:
        """The pieces of all edges, each once; they connect adjacent rows."""
        return dict.fromkeys(link for chain in self.chains for link in pairwise(chain))


def layered(
    lanes: Sequence[int], edges: Sequence[Edge], phases: Sequence[int] | None = None
) -> Layers:
    """Assigns vertices to rows so that edges point down, and orders the rows.

    Edges that close a cycle point up. A bend is in the lane of the end at which its edge shares
    bends, so that edges change lanes just beside their other end.

    Args:
      lanes: the lane of each vertex, from 0 on the left.
      edges: no loops. On a cycle the vertex with the lowest number is on top.
      phases: a number for each vertex; vertices of a later phase are in lower rows than those of
        an earlier one, unless an edge leads from them to it.
    """
    downward = _downward(len(lanes), edges)
    row_of = _row_of(downward, phases or [0] * len(lanes))
    rows: list[Row] = [[] for _ in range(max(row_of, default=-1) + 1)]
    for vertex, number in enumerate(row_of):
        rows[number].append(vertex)
    lane = list(lanes)
    shared: dict[tuple[int, str, bool, int], int] = {}
    chains = []
    for edge, from_above in zip(downward, _bundled_from_source(downward), strict=True):
        end = edge.source if from_above else edge.target
        chain = [edge.source]
        for number in range(row_of[edge.source] + 1, row_of[edge.target]):
            bend = shared.setdefault((end, edge.kind, from_above, number), len(lane))
            if bend == len(lane):
                rows[number].append(bend)
                lane.append(lanes[end])
            chain.append(bend)
        chains.append([*chain, edge.target])
    layers = Layers([sorted(row, key=lambda v: lane[v]) for row in rows], lane, chains)
    _untangle(layers)
    return layers


def _bundled_from_source(edges: Sequence[Edge]) -> list[bool]:
    """Returns for each edge whether it shares bends with those from its source, else target."""
    from_source = Counter((edge.source, edge.kind) for edge in edges)
    to_target = Counter((edge.target, edge.kind) for edge in edges)
    return [from_source[e.source, e.kind] >= to_target[e.target, e.kind] for e in edges]


def _downward(n_vertices: int, edges: Sequence[Edge]) -> list[Edge]:
    """Returns the edges, with some of them reversed to break cycles."""
    position = {vertex: number for number, vertex in enumerate(_order(n_vertices, edges))}
    return [
        edge
        if position[edge.source] < position[edge.target]
        else Edge(edge.target, edge.source, edge.kind)
        for edge in edges
    ]


def _order(n_vertices: int, edges: Sequence[Edge]) -> list[int]:
    """Returns a topological order of the vertices that ignores edges which close a cycle."""
    after = _adjacent(n_vertices, edges)
    waiting = [0] * n_vertices
    for edge in edges:
        waiting[edge.target] += 1
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
    for edge in edges:
        after[edge.source].append(edge.target)
    return after


def _row_of(downward: Sequence[Edge], phases: Sequence[int]) -> list[int]:
    """Returns the uppermost possible row of each vertex; a source goes just above its targets."""
    n_vertices = len(phases)
    after = _adjacent(n_vertices, downward)
    order = _order(n_vertices, downward)
    phase = list(phases)
    for vertex in order:
        for target in after[vertex]:
            phase[target] = max(phase[target], phase[vertex])
    row_of = [0] * n_vertices
    first = 0
    for current in sorted(set(phase)):
        for vertex in order:
            if phase[vertex] == current:
                row_of[vertex] = max(row_of[vertex], first)
                for target in after[vertex]:
                    row_of[target] = max(row_of[target], row_of[vertex] + 1)
        first = 1 + max(row_of[v] for v in order if phase[v] == current)
    targets = {edge.target for edge in downward}
    for vertex in range(n_vertices):
        if after[vertex] and vertex not in targets:
            row_of[vertex] = min(row_of[target] for target in after[vertex]) - 1
    used = {row: number for number, row in enumerate(sorted(set(row_of)))}
    return [used[row] for row in row_of]


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
