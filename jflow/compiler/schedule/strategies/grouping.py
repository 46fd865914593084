"""Groups the operations of a large graph, so that strategies place fewer units.

A group is a colocation class: its operations go to one device, and each still runs as soon as its
own inputs are there. To contract them to one node each would make all of a group wait for all of
its inputs: with graphs of 300 operations as 24 to 40 nodes, even optimal schedules of the nodes
took 3.2 to 3.6 times as long as the best of the operations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jflow.compiler.schedule.problem import (
    Constraints,
    Problem,
    capacity_of,
    classes_of,
    resident_of,
    tails,
)
from jflow.compiler.schedule.schedule import (
    PlaceFunction,
    Schedule,
    Scheduler,
    mean_transfers,
    variant,
)

_Array = np.ndarray[Any, Any]

_ROUNDS = 40
_LARGEST = 4.0
"""Work of the largest group that joining makes, as a multiple of the mean."""


def with_groups(problem: Problem, n_groups: int) -> Problem:
    """Returns the problem with at most about `n_groups` colocation classes.

    Heavy-edge matching (Karypis and Kumar, "A fast and high quality multilevel scheme for
    partitioning irregular graphs", 1998), round by round: two groups that send each other the most
    join. At first only groups of which one ends before the other begins do, which makes chains and
    loses no parallelism; then others; groups that have no neighbour left join in topological order.
    """
    groups = _Groups(problem)
    limit = _LARGEST * sum(problem.costs.mean_seconds) / n_groups
    for only_chains in (True, False):
        for _ in range(_ROUNDS):
            if groups.count <= n_groups or not groups.match(limit, n_groups, only_chains):
                break
    while groups.count > n_groups and groups.pair_up(n_groups):
        pass
    return problem._replace(constraints=groups.constraints())


def grouped(place: PlaceFunction, n_groups: int) -> Scheduler[[]]:
    """Wraps a strategy to see the problem with at most about `n_groups` colocation classes."""

    def of_groups(problem: Problem) -> Schedule:
        answer = place(*with_groups(problem, n_groups))
        assert isinstance(answer, Schedule)
        return answer

    return variant(place, f"{n_groups} groups", of_groups)


class _Groups:
    """Groups as arrays; groups with different allowed devices are never joined.

    Attributes:
      of: i64[operations], the group of each operation, numbered in topological order.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        graph, costs = problem.graph, problem.costs
        n = len(graph)
        depth = np.zeros(n, np.int64)
        depth[list(graph.order)] = np.arange(n)
        ones = [1.0] * n
        self._level = -np.array(tails(graph, ones))
        self._uses = graph.uses
        self._sent = np.array(mean_transfers(problem))[self._uses.edge]
        self._seconds = np.array(costs.mean_seconds)
        self._resident = np.array(resident_of(problem), float)
        self._room = max(capacity_of(problem))
        self._depth = depth
        classes = np.array(classes_of(problem))
        numbers, self.of = np.unique(classes, return_inverse=True)
        kinds: dict[tuple[int, ...] | None, int] = {}
        allowed = problem.constraints.allowed
        self._kind = np.array(
            [kinds.setdefault(allowed.get(int(number)), len(kinds)) for number in numbers], np.int64
        )
        self._allowed = [*kinds]
        self._renumber(np.arange(len(numbers)))

    @property
    def count(self) -> int:
        """The number of groups."""
        return len(self._kind)

    def match(self, limit: float, n_groups: int, only_chains: bool) -> bool:
        """Joins pairs that are each other's heaviest edge. Returns whether enough pairs joined."""
        a, b = self.of[self._uses.producer], self.of[self._uses.consumer]
        may = (a != b) & (self._kind[a] == self._kind[b])
        may &= self._work[a] + self._work[b] <= limit
        may &= self._group_bytes[a] + self._group_bytes[b] <= self._room / 2
        if only_chains:
            may &= (self._last[a] < self._first[b]) | (self._last[b] < self._first[a])
        a, b, sent = a[may], b[may], self._sent[may]
        low, high = np.minimum(a, b), np.maximum(a, b)
        pairs, rows = np.unique(low * self.count + high, return_inverse=True)
        weight = np.bincount(rows, weights=sent, minlength=len(pairs))
        low, high = pairs // self.count, pairs % self.count
        # Of the heaviest edges of each group, those that both ends prefer.
        strongest = np.full(self.count, -1)
        order = np.lexsort((-pairs, weight))
        strongest[low[order]] = order
        other = np.full(self.count, -1)
        other[high[order]] = order
        best = np.where(_rank(order, strongest) >= _rank(order, other), strongest, other)
        chosen = np.flatnonzero((best[low] == best[high]) & (best[low] == np.arange(len(pairs))))
        chosen = chosen[: max(self.count - n_groups, 0)]
        target = np.arange(self.count)
        target[high[chosen]] = low[chosen]
        before = self.count
        self._renumber(target)
        return before - self.count > before // 50

    def pair_up(self, n_groups: int) -> bool:
        """Joins neighbours in topological order, with or without an edge between them."""
        target = np.arange(self.count)
        room = self.count - n_groups
        open_of: dict[int, int] = {}
        joined = 0
        for group, kind in enumerate(self._kind.tolist()):
            other = open_of.pop(kind, -1)
            if other < 0 or joined >= room:
                open_of[kind] = group
            elif self._group_bytes[group] + self._group_bytes[other] <= self._room / 2:
                target[group] = other
                joined += 1
        self._renumber(target)
        return joined > 0

    def constraints(self) -> Constraints:
        """Returns the constraints with the groups as colocation classes."""
        old = self._problem.constraints
        allowed = {
            group: devices
            for group, kind in enumerate(self._kind.tolist())
            if (devices := self._allowed[kind]) is not None
        }
        return Constraints(tuple(self.of.tolist()), allowed, old.resident, old.capacity)

    def _renumber(self, target: _Array) -> None:
        """Joins each group with its target and renumbers the groups in topological order."""
        joined = target[self.of]
        count = len(target)
        first = np.full(count, len(self.of))
        np.minimum.at(first, joined, self._depth)
        used = np.unique(joined)
        order = used[np.argsort(first[used], kind="stable")]
        number = np.full(count, -1)
        number[order] = np.arange(len(order))
        self.of = number[joined]
        self._kind = self._kind[order]
        self._work = np.bincount(self.of, weights=self._seconds)
        self._group_bytes = np.bincount(self.of, weights=self._resident)
        self._first, self._last = np.full(len(order), np.inf), np.full(len(order), -np.inf)
        np.minimum.at(self._first, self.of, self._level)
        np.maximum.at(self._last, self.of, self._level)


def _rank(order: _Array, edge: _Array) -> _Array:
    """Returns the positions of edges in an order of all edges; -1 for no edge."""
    position = np.empty(len(order) + 1, np.int64)
    position[order] = np.arange(len(order))
    position[-1] = -1
    return position[edge]
