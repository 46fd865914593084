"""List schedulers: place one operation at a time where it starts or finishes first."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from jflow.compiler.schedule.partial import PartialSchedule
from jflow.compiler.schedule.problem import Problem, classes_of
from jflow.compiler.schedule.schedule import (
    Schedule,
    mean_transfers,
    rank_order,
    strategy,
    upward_ranks,
)

Urgency = Callable[[int], float]
"""Of the operations that are ready, the one with the largest value goes first."""


@strategy
def earliest_finish(problem: Problem) -> Schedule:
    """Places operations in topological order, each where it finishes first.

    The greedy heuristic of TensorFlow's white paper (Abadi et al., 2015, section 3.2.1).
    """
    partial = PartialSchedule(problem)
    for operation in problem.graph.order:
        partial.place(operation, partial.fastest(operation))
    return partial.schedule()


@strategy
def heft(problem: Problem, *, books_ports: bool = False) -> Schedule:
    """Places operations by upward rank, each where it finishes first, gaps included (HEFT).

    Heterogeneous Earliest Finish Time (Topcuoglu, Hariri and Wu, 2002).

    Args:
      problem: what to schedule.
      books_ports: whether each candidate books the ports for its transfers (HEFT-C).
    """
    partial = PartialSchedule(problem, books_ports=books_ports, inserts=True)
    for operation in rank_order(problem):
        partial.place(operation, partial.fastest(operation))
    return partial.schedule()


@strategy
def heft_c(problem: Problem) -> Schedule:
    """Like `heft`, with transfers that wait for the ports of their devices."""
    return heft(*problem, books_ports=True)


@strategy
def cpop(problem: Problem) -> Schedule:
    """Places the critical path on its fastest device, the rest where it finishes first.

    Critical Path on a Processor (Topcuoglu, Hariri and Wu, 2002).
    """
    upward, downward = upward_ranks(problem), _downward_ranks(problem)
    priority = [up + down for up, down in zip(upward, downward, strict=True)]
    path = _critical_path(problem, priority)
    totals = problem.costs.seconds[path].sum(axis=0)
    partial = PartialSchedule(problem, inserts=True)
    critical = set(path)
    for operation in _by_urgency(problem, priority.__getitem__):
        if operation in critical:
            device = min(partial.options(operation), key=lambda each: (totals[each], each))
        else:
            device = partial.fastest(operation)
        partial.place(operation, device)
    return partial.schedule()


@strategy
def peft(problem: Problem) -> Schedule:
    """Like `heft`, but looks ahead with a table of optimistic remaining costs.

    Predict Earliest Finish Time (Arabnejad and Barbosa, 2014): the optimistic cost table holds, for
    each operation and device, the time to the end if every later one goes to its best device.
    """
    table = _optimistic_costs(problem)
    means = [sum(row) / len(row) for row in table]
    partial = PartialSchedule(problem, inserts=True)
    for operation in _by_urgency(problem, means.__getitem__):
        row = table[operation]
        device = min(
            partial.options(operation),
            key=lambda each: partial.earliest_finish(operation, each) + row[each],
        )
        partial.place(operation, device)
    return partial.schedule()


@strategy
def etf(problem: Problem, *, books_ports: bool = False) -> Schedule:
    """Places the ready operation and device with the earliest start, again and again.

    Earliest Task First (Hwang, Chow, Anger and Lee, 1989); under a memory limit it is m-ETF (Jeon
    et al., "Baechi", 2020). Ties go to the operation with the longest path to the end.

    Args:
      problem: what to schedule.
      books_ports: whether each candidate books the ports for its transfers (ETF-C).
    """
    partial = PartialSchedule(problem, books_ports=books_ports)
    ranks = upward_ranks(problem)
    queues = [_ReadyQueue(partial, device, ranks) for device in range(len(problem.devices))]
    missing = [len(before) for before in problem.graph.predecessors]
    ready = [operation for operation, count in enumerate(missing) if not count]
    while True:
        for operation in ready:
            for device in partial.options(operation):
                queues[device].enter(operation)
        entries = [entry for queue in queues if (entry := queue.first()) is not None]
        if not entries:
            return partial.schedule()
        _, _, operation, device = min(entries)
        partial.place(operation, device)
        ready = []
        for successor in problem.graph.successors[operation]:
            missing[successor] -= 1
            if not missing[successor]:
                ready.append(successor)


class _ReadyQueue:
    """Operations whose inputs are placed, in order of earliest start on a device and rank.

    `_waiting` has those whose inputs come after the device is free, by the time of arrival;
    `_present` the others, by rank. Both times only become later, so an entry that is not first as
    it was entered is not first now: only the first of each heap is looked at again.
    """

    def __init__(self, partial: PartialSchedule, device: int, ranks: list[float]) -> None:
        self._partial, self._device, self._ranks = partial, device, ranks
        self._waiting: list[tuple[float, float, int]] = []
        self._present: list[tuple[float, int]] = []

    def enter(self, operation: int) -> None:
        ready = self._partial.earliest_start(operation, self._device)
        heapq.heappush(self._waiting, (ready, -self._ranks[operation], operation))

    def first(self) -> tuple[float, float, int, int] | None:
        """Returns the first entry to start: start, negative rank, operation, device."""
        free = self._partial.is_free_at(self._device)
        while True:
            while self._waiting and self._waiting[0][0] <= free:
                _, rank, operation = heapq.heappop(self._waiting)
                heapq.heappush(self._present, (rank, operation))
            if not (self._present or self._waiting):
                return None
            if self._present:
                start, (rank, operation) = free, self._present[0]
            else:
                start, rank, operation = self._waiting[0]
            is_open = self._may_go(operation)
            now = self._partial.earliest_start(operation, self._device) if is_open else 0.0
            if is_open and now <= start:
                return start, rank, operation, self._device
            if self._present:
                heapq.heappop(self._present)
            else:
                heapq.heappop(self._waiting)
            if is_open:
                heapq.heappush(self._waiting, (now, rank, operation))

    def _may_go(self, operation: int) -> bool:
        is_placed = self._partial.devices[operation] >= 0
        return not is_placed and self._device in self._partial.options(operation)


@strategy
def etf_c(problem: Problem) -> Schedule:
    """Like `etf`, with transfers that wait for the ports of their devices."""
    return etf(*problem, books_ports=True)


def _by_urgency(problem: Problem, urgency: Urgency) -> Iterator[int]:
    """Yields the operations in topological order, the most urgent ready one first."""
    graph = problem.graph
    position = {operation: i for i, operation in enumerate(graph.order)}
    missing = [len(before) for before in graph.predecessors]
    ready = [(-urgency(i), position[i], i) for i, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    while ready:
        _, _, operation = heapq.heappop(ready)
        yield operation
        for successor in graph.successors[operation]:
            missing[successor] -= 1
            if not missing[successor]:
                heapq.heappush(ready, (-urgency(successor), position[successor], successor))


def _downward_ranks(problem: Problem) -> list[float]:
    """Returns the seconds from the beginning to each operation's start along the longest path."""
    graph, mean, sent = problem.graph, problem.costs.mean_seconds, mean_transfers(problem)
    ranks = [0.0] * len(graph)
    for operation in graph.order:
        for number in graph.outputs[operation]:
            after = ranks[operation] + mean[operation] + sent[number]
            for consumer in graph.edges[number].consumers:
                ranks[consumer] = max(ranks[consumer], after)
    return ranks


def _critical_path(problem: Problem, priority: list[float]) -> list[int]:
    """Returns the operations of the longest path, from a source to a sink."""
    graph = problem.graph
    starts = [i for i, before in enumerate(graph.predecessors) if not before]
    at = max(starts, key=priority.__getitem__)
    path = [at]
    while graph.successors[at]:
        at = max(graph.successors[at], key=priority.__getitem__)
        path.append(at)
    return path


def _optimistic_costs(problem: Problem) -> list[list[float]]:
    """Returns PEFT's optimistic cost table, operations by devices."""
    graph, costs = problem.graph, problem.costs
    seconds: list[list[float]] = costs.seconds.tolist()
    devices = range(len(problem.devices))
    classes, allowed = classes_of(problem), problem.constraints.allowed
    table = [[0.0] * len(devices) for _ in range(len(graph))]
    sent = mean_transfers(problem)
    for operation in reversed(graph.order):
        for number in graph.outputs[operation]:
            for consumer in graph.edges[number].consumers:
                later = {
                    device: table[consumer][device] + seconds[consumer][device]
                    for device in allowed.get(classes[consumer], devices)
                }
                away = min(later.values()) + sent[number]
                row = table[operation]
                for device in devices:
                    row[device] = max(row[device], min(later.get(device, away), away))
    return table
