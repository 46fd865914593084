"""Strategies that cut a topological order into one contiguous run for each device."""

from __future__ import annotations

import math

from jflow.compiler.schedule.problem import (
    Problem,
    capacity_of,
    class_sums,
    classes_of,
    resident_of,
)
from jflow.compiler.schedule.schedule import Schedule, strategy
from jflow.compiler.schedule.strategies.simple import by_class, preferring


@strategy
def m_topo(problem: Problem) -> Schedule:
    """Fills one device after another in topological order, with equal shares of the work.

    The topological baseline of Baechi (Jeon et al., 2020), with work in place of memory as what is
    balanced; a device whose memory is full ends early.
    """
    seconds = problem.costs.mean_seconds
    even_load = sum(seconds) / len(problem.devices)
    work = class_sums(problem, seconds)
    at, load = 0, 0.0

    def choice(number: int, options: tuple[int, ...]) -> int:
        nonlocal at, load
        if load + work[number] / 2 > even_load and at + 1 < len(problem.devices):
            at, load = at + 1, 0.0
        load += work[number]
        if len(options) == len(problem.devices):
            return at
        return next((device for device in options if device >= at), options[-1])

    classes = classes_of(problem)
    return by_class(problem, choice, [*dict.fromkeys(classes[i] for i in problem.graph.order)])


@strategy
def min_cut_runs(problem: Problem) -> Schedule:
    """Cuts the topological order with the least bytes between devices, under memory limits.

    Dynamic programming over the positions of the cuts, O(operations² devices). What does not fit on
    its device with all of its class goes where it does.
    """
    devices, classes = _min_cut_devices(problem), classes_of(problem)
    wanted: dict[int, int] = {}  # where the first operation of a class is
    for operation in problem.graph.order:
        wanted.setdefault(classes[operation], devices[operation])
    return by_class(problem, preferring(wanted), [*wanted])


def _min_cut_devices(problem: Problem) -> dict[int, int]:
    """Returns the device of each operation for the cheapest cuts, as if all were allowed."""
    order, capacities = problem.graph.order, capacity_of(problem)
    n, crossing = len(order), _crossing(problem)
    resident_before, resident = [0.0], resident_of(problem)
    for operation in order:
        resident_before.append(resident_before[-1] + resident[operation])
    for device, capacity in enumerate(capacities):
        if resident_before[-1] <= capacity:  # nothing has to be cut, and the search is quadratic
            return dict.fromkeys(order, device)
    # best[k][i]: the least bytes if the first k devices run the first i operations.
    best = [[0.0] + [math.inf] * n]
    cuts: list[list[int]] = []
    for capacity in capacities:
        row, cut = [math.inf] * (n + 1), [0] * (n + 1)
        for i in range(n + 1):
            for j in range(i, -1, -1):
                if resident_before[i] - resident_before[j] > capacity:
                    break
                cost = best[-1][j] + (crossing[j] if 0 < j < i else 0.0)
                if cost < row[i]:
                    row[i], cut[i] = cost, j
        best.append(row)
        cuts.append(cut)
    wanted = dict.fromkeys(order, 0)
    end = n
    for device in reversed(range(len(capacities))):
        for position in range(cuts[device][end], end):
            wanted[order[position]] = device
        end = cuts[device][end]
    return wanted


def _crossing(problem: Problem) -> list[float]:
    """Returns for each cut of the order the bytes that cross it."""
    position = {operation: i for i, operation in enumerate(problem.graph.order)}
    changes = [0.0] * (len(position) + 1)
    for edge in problem.graph.edges:
        if edge.consumers:
            changes[position[edge.producer] + 1] += edge.n_bytes
            changes[max(position[consumer] for consumer in edge.consumers) + 1] -= edge.n_bytes
    crossing = [0.0]
    for change in changes[1:]:
        crossing.append(crossing[-1] + change)
    return crossing
