"""Colocates operations that cost less to run together than to send between."""

from __future__ import annotations

from jflow.compiler.schedule.problem import (
    Constraints,
    Problem,
    capacity_of,
    class_sums,
    classes_of,
    resident_of,
)
from jflow.compiler.schedule.schedule import (
    PlaceFunction,
    Schedule,
    Scheduler,
    mean_transfers,
    variant,
)


def coplaced(place: PlaceFunction) -> Scheduler[[]]:
    """Wraps a strategy to colocate cheap producers and consumers first.

    List schedulers scatter the many cheap operations of real graphs, which then drag tensors after
    them; together with their only consumer or producer they stay where they are needed.
    """

    def of_larger_classes(problem: Problem) -> Schedule:
        answer = place(*with_coplacing(problem))
        assert isinstance(answer, Schedule)
        return answer

    return variant(place, "coplacing", of_larger_classes)


def with_coplacing(problem: Problem) -> Problem:
    """Returns the problem with larger colocation classes.

    An operation joins its only producer, or its only consumer, if to send what is between them
    takes at least as long as the shorter of the two.
    """
    graph, seconds = problem.graph, problem.costs.mean_seconds
    classes = _Classes(problem)
    for edge, sent in zip(graph.edges, mean_transfers(problem), strict=True):
        for consumer in edge.consumers:
            is_chain = (
                len(graph.successors[edge.producer]) == 1 or len(graph.predecessors[consumer]) == 1
            )
            shorter = min(seconds[edge.producer], seconds[consumer])
            if is_chain and sent >= shorter:
                classes.join(edge.producer, consumer)
    return problem._replace(constraints=classes.constraints())


class _Classes:
    """Union-find of colocation classes, which grow as far as the constraints allow."""

    def __init__(self, problem: Problem) -> None:
        classes = classes_of(problem)
        n_devices = len(problem.devices)
        self._problem = problem
        self._parent = {number: number for number in classes}
        self._classes = classes
        self._allowed = {
            number: problem.constraints.allowed.get(number, tuple(range(n_devices)))
            for number in classes
        }
        self._resident = class_sums(problem, resident_of(problem))

    def join(self, one: int, other: int) -> None:
        """Joins the classes of two operations if some device is allowed for both and holds both."""
        a, b = self._root(self._classes[one]), self._root(self._classes[other])
        if a == b:
            return
        allowed = tuple(device for device in self._allowed[a] if device in self._allowed[b])
        needed = self._resident[a] + self._resident[b]
        if not any(capacity_of(self._problem)[device] >= needed for device in allowed):
            return
        self._parent[b] = a
        self._allowed[a], self._resident[a] = allowed, needed

    def constraints(self) -> Constraints:
        """Returns the constraints with the current classes."""
        n_devices = len(self._problem.devices)
        roots = tuple(map(self._root, self._classes))
        allowed = {
            root: self._allowed[root] for root in set(roots) if len(self._allowed[root]) < n_devices
        }
        old = self._problem.constraints
        return Constraints(roots, allowed, old.resident, old.capacity)

    def _root(self, number: int) -> int:
        while self._parent[number] != number:
            self._parent[number] = self._parent[self._parent[number]]
            number = self._parent[number]
        return number
