"""Baseline strategies, which look at one cost or none."""

from __future__ import annotations

import random as rng
from collections.abc import Callable, Mapping
from functools import cache

from jflow.compiler.schedule.problem import (
    Problem,
    capacity_of,
    class_seconds,
    class_sums,
    classes_of,
    infeasible,
    resident_of,
)
from jflow.compiler.schedule.schedule import Schedule, by_rank, strategy

DeviceChoice = Callable[[int, tuple[int, ...]], int]
"""Chooses among the devices that have room for a class: `choice(class, devices)`."""


@strategy
def single(problem: Problem) -> Schedule:
    """Places all operations on the device that runs them fastest, within the constraints.

    Where the constraints do not let all of them be on one device, each class that may not or does
    not fit goes to the fastest other device.
    """
    totals: list[float] = problem.costs.seconds.sum(axis=0).tolist()

    @cache
    def fastest(options: tuple[int, ...]) -> int:
        return min(options, key=totals.__getitem__)

    return by_class(problem, lambda _, options: fastest(options))


@strategy
def random(problem: Problem, *, seed: int = 0) -> Schedule:
    """Places each colocation class on a random device, each with equal probability."""
    source = rng.Random(seed)
    return by_class(problem, lambda _, options: source.choice(options))


@strategy
def round_robin(problem: Problem) -> Schedule:
    """Assigns colocation classes to devices in rotation, in the order of the operations."""
    n, last = len(problem.devices), -1

    def choice(_: int, options: tuple[int, ...]) -> int:
        nonlocal last
        last = min(options, key=lambda device: (device - last - 1) % n)
        return last

    return by_class(problem, choice)


@strategy
def greedy_load(problem: Problem) -> Schedule:
    """Places each colocation class on the least loaded device, in the order of the operations.

    It is TensorFlow's `GreedyLoadBalancingStrategy`, with seconds for bytes.
    """
    return _least_loaded(problem)


@strategy
def greedy_lpt(problem: Problem) -> Schedule:
    """Like `greedy_load`, largest work first (Graham's longest processing time rule, 1969)."""
    return _least_loaded(problem, largest_first=True)


def _least_loaded(problem: Problem, *, largest_first: bool = False) -> Schedule:
    totals = class_seconds(problem)
    work: dict[int, list[float]] = {number: row.tolist() for number, row in totals.items()}
    load = [0.0] * len(problem.devices)

    def choice(number: int, options: tuple[int, ...]) -> int:
        device = min(options, key=lambda each: (load[each] + work[number][each], each))
        load[device] += work[number][device]
        return device

    order = [*dict.fromkeys(classes_of(problem))]
    if largest_first:
        order.sort(key=lambda number: -totals[number].mean())
    return by_class(problem, choice, order)


def preferring(wanted: Mapping[int, int]) -> DeviceChoice:
    """Returns the choice of the wanted device of each class, or else of the first one."""
    return lambda number, options: wanted[number] if wanted[number] in options else options[0]


def by_class(problem: Problem, choice: DeviceChoice, numbers: list[int] | None = None) -> Schedule:
    """Chooses a device for each colocation class, among those that have room for it."""
    classes, needed = classes_of(problem), class_sums(problem, resident_of(problem))
    room, chosen = list(capacity_of(problem)), {}
    every = tuple(range(len(room)))
    for number in numbers or needed:
        allowed = problem.constraints.allowed.get(number, every)
        options = allowed
        if needed[number]:
            options = tuple(device for device in allowed if room[device] >= needed[number])
        if not options:
            most = max(room[device] for device in allowed)
            raise infeasible(problem, classes.index(number), needed[number], most)
        chosen[number] = choice(number, options)
        room[chosen[number]] -= needed[number]
    return by_rank(problem, [chosen[number] for number in classes])
