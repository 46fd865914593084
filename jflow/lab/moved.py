"""Schedules with one operation on another device, and strategies that give them."""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from jflow.compiler.schedule import (
    Constraints,
    Costs,
    OperationGraph,
    PlaceFunction,
    Problem,
    Schedule,
)
from jflow.compiler.schedule.problem import classes_of


@dataclass(frozen=True)
class MovedOperation:
    """A schedule in which one operation, and what is colocated with it, is on a device.

    Attributes:
      operation: its index in the graph.
      device: the index of the device.
      schedule: all else is as it was before.
    """

    operation: int
    device: int
    schedule: Schedule


def moved_operations(
    problem: Problem, schedule: Schedule, n: int, seed: int
) -> list[MovedOperation]:
    """Returns some operations on each device that they may go to.

    Args:
      problem: what is scheduled.
      schedule: where the other operations are.
      n: how many operations; fewer if fewer may go to several devices.
      seed: chooses them.
    """
    classes, every = classes_of(problem), tuple(range(len(problem.devices)))
    options: Mapping[int, tuple[int, ...]] = {
        i: allowed
        for i, number in enumerate(classes)
        if len(allowed := problem.constraints.allowed.get(number, every)) > 1
    }
    chosen = random.Random(seed).sample(sorted(options), min(n, len(options)))
    moved = []
    for operation in chosen:
        for device in options[operation]:
            devices = tuple(
                device if number == classes[operation] else at
                for number, at in zip(classes, schedule.devices, strict=True)
            )
            moved.append(MovedOperation(operation, device, Schedule(devices, schedule.order)))
    return moved


def pinned_as(problem: Problem, schedule: Schedule) -> PlaceFunction:
    """The strategy that puts operations where a schedule of operations of these names has them.

    Others go where what they are colocated with is, or to the first device that they may go to.
    """
    known = {
        getattr(operation, "name", operation): device
        for operation, device in zip(problem.graph.operations, schedule.devices, strict=True)
    }

    def pinned(
        graph: OperationGraph, devices: Sequence[Hashable], _: Costs, constraints: Constraints
    ) -> dict[Hashable, Hashable]:
        names = [getattr(operation, "name", operation) for operation in graph.operations]
        classes = constraints.classes or tuple(range(len(names)))
        places = {
            number: known[name]
            for number, name in zip(classes, names, strict=True)
            if name in known
        }
        return {
            operation: devices[places.get(number, constraints.allowed.get(number, (0,))[0])]
            for operation, number in zip(graph.operations, classes, strict=True)
        }

    return pinned
