"""What the runtime makes of a schedule: stages, which begin when all of their inputs are there.

The simulator (`simulate.py`) starts an operation as soon as its own inputs are there, and sends
a tensor as soon as it is made. The runtime cuts a step into stages (`jflow.partition.stages`): the
operations of a device that have as many crossings between devices before them are one program, it
begins when all that it receives has arrived, and what it sends leaves when it has ended.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jflow.schedule.graph import Dependency, OperationGraph
from jflow.schedule.messages import with_messages
from jflow.schedule.problem import Constraints, Problem
from jflow.schedule.schedule import Schedule
from jflow.schedule.simulate import Timeline, simulate


def simulate_stages(problem: Problem, schedule: Schedule) -> Timeline:
    """What happens when the runtime runs a valid schedule.

    See `staged`, `with_messages` and `simulate`.
    """
    return simulate(*with_messages(*staged(problem, schedule)))


def predicted_seconds(problem: Problem, schedule: Schedule) -> float:
    """Seconds that a valid schedule takes, as its costs say: by operations or in stages.

    With what messages take of processors, and what further tasks add; without
    `Costs.step_seconds`.
    """
    if problem.costs.in_stages:
        timeline = simulate_stages(problem, schedule)
    else:
        timeline = simulate(*with_messages(problem, schedule))
    return timeline.makespan + problem.costs.tasks_seconds(schedule.devices)


def depths(problem: Problem, schedule: Schedule) -> list[int]:
    """For each operation the largest number of crossings between devices on a path to it."""
    graph, devices = problem.graph, schedule.devices
    found = [0] * len(graph)
    for i in graph.order:
        for before in graph.predecessors[i]:
            found[i] = max(found[i], found[before] + (devices[before] != devices[i]))
    return found


def staged(problem: Problem, schedule: Schedule) -> tuple[Problem, Schedule]:
    """The problem whose operations are the stages of a schedule, and the schedule of these.

    Its simulated makespan is that of the schedule as the runtime runs it, for graphs without
    operations that wait for other steps.

    Args:
      problem: what was scheduled.
      schedule: a schedule of it.
    """
    graph, devices = problem.graph, schedule.devices
    depth = depths(problem, schedule)
    keys = sorted({(depth[i], devices[i]) for i in range(len(graph))})
    number = {key: n for n, key in enumerate(keys)}
    stage = [number[depth[i], devices[i]] for i in range(len(graph))]
    seconds = np.zeros((len(keys), len(problem.devices)))
    for i, device in enumerate(devices):
        # The schedule is given, so other devices need no times.
        seconds[stage[i], device] += problem.costs.seconds[i, device]
    edges = []
    for edge in graph.edges:
        first: dict[int, int] = {}
        for consumer in edge.consumers:
            if devices[consumer] != devices[edge.producer]:
                target = devices[consumer]
                first[target] = min(first.get(target, stage[consumer]), stage[consumer])
        if first:
            edges.append(Dependency(stage[edge.producer], tuple(first.values()), edge.n_bytes))
    made = Problem(
        OperationGraph(tuple(keys), tuple(edges)),
        problem.devices,
        replace(problem.costs, seconds=seconds),
        Constraints(),
    )
    return made.checked(), Schedule(tuple(device for _, device in keys), tuple(range(len(keys))))
