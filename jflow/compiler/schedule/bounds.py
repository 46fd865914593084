"""Lower bounds of the time of a step, which no placement can beat."""

from __future__ import annotations

import numpy as np

from jflow.compiler.schedule.problem import Problem, class_seconds, classes_of


def lower_bound(problem: Problem) -> float:
    """Seconds that every valid schedule takes at least, under both network models.

    The largest of three: the longest path without transfers; for every operation what must run
    before it, it, and what must run after it, spread over all processors (the head-tail-work
    bound); and the work of each colocation class, which one device runs one after another.
    """
    least = _least_seconds(problem)
    graph = problem.graph
    heads, tails = _heads(problem, least), _tails(problem, least)
    longest = max((h + s + t for h, s, t in zip(heads, least, tails, strict=True)), default=0.0)
    n_processors = problem.costs.n_processors
    # Of all operations whose heads are at least h and tails at least t, the first cannot start
    # before h, and after the last one t is still to come.
    work = sum(least) / n_processors
    if len(graph) <= 2000:
        h, t, s = (np.array(values) for values in (heads, tails, least))
        for tail in np.unique(t):
            late = t >= tail
            order = np.argsort(-h[late], kind="stable")
            sums = np.cumsum(s[late][order]) / n_processors + h[late][order] + tail
            work = max(work, float(sums.max()))
    return max(longest, work, _class_work(problem))


def _least_seconds(problem: Problem) -> list[float]:
    """The time of each operation on the fastest device that it may go to."""
    allowed, classes = problem.constraints.allowed, classes_of(problem)
    seconds = problem.costs.seconds
    least: list[float] = seconds.min(axis=1).tolist()
    for operation, number in enumerate(classes) if allowed else ():
        if number in allowed:
            least[operation] = float(seconds[operation, list(allowed[number])].min())
    return least


def _heads(problem: Problem, least: list[float]) -> list[float]:
    heads = [0.0] * len(least)
    for operation in problem.graph.order:
        for before in problem.graph.predecessors[operation]:
            heads[operation] = max(heads[operation], heads[before] + least[before])
    return heads


def _tails(problem: Problem, least: list[float]) -> list[float]:
    tails = [0.0] * len(least)
    for operation in reversed(problem.graph.order):
        for after in problem.graph.successors[operation]:
            tails[operation] = max(tails[operation], tails[after] + least[after])
    return tails


def _class_work(problem: Problem) -> float:
    """The work of the largest class on the device that does it fastest."""
    if not problem.constraints.classes:
        return max(_least_seconds(problem), default=0.0)
    largest = 0.0
    for number, seconds in class_seconds(problem).items():
        devices = problem.constraints.allowed.get(number)
        largest = max(
            largest, float((seconds if devices is None else seconds[list(devices)]).min())
        )
    return largest
