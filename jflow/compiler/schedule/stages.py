"""Simulates a schedule as the runtime runs it: in stages that wait for all of their inputs.

The simulator (`simulate.py`) starts an operation as soon as its own inputs are there, and sends
a tensor as soon as it is made. The runtime cuts a step into stages
(`jflow.compiler.partition.stages`): the operations of a device that have as many crossings between
devices before them are one program, or two where those that other devices do not wait for take
long. A program begins when all that it receives has arrived, and what it sends leaves when it has
ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jflow.compiler.schedule.graph import Dependency, OperationGraph
from jflow.compiler.schedule.messages import ends_of, with_messages
from jflow.compiler.schedule.problem import Constraints, Costs, Problem
from jflow.compiler.schedule.schedule import Schedule
from jflow.compiler.schedule.simulate import Timeline, simulate

SPLIT_S = 1e-3
"""Operations that no other device waits for are a program of their own if they take longer, in
seconds. That costs another dispatch, and what XLA would have fused across the cut."""


def simulate_stages(problem: Problem, schedule: Schedule) -> Timeline:
    """Simulates a valid schedule as the runtime runs it: in stages, with messages.

    See `staged`, `with_messages` and `simulate`.
    """
    return simulate(*with_messages(*staged(problem, schedule)))


def is_makespan(costs: Costs) -> bool:
    """Whether `predicted_seconds` equals the makespan of the operations for every schedule."""
    has_messages = costs.overhead is not None or costs.processor_share is not None
    return not (costs.in_stages or has_messages or (costs.tasks and costs.task_seconds))


def predicted_seconds(problem: Problem, schedule: Schedule) -> float:
    """Predicts the seconds of a valid schedule, by operations or in stages as its costs say.

    With what messages take of processors, and what further tasks add; without
    `Costs.step_seconds`.
    """
    if problem.costs.in_stages:
        timeline = simulate_stages(problem, schedule)
    else:
        timeline = simulate(*with_messages(problem, schedule))
    return timeline.makespan + problem.costs.tasks_seconds(schedule.devices)


def depths_of(problem: Problem, devices: Sequence[int]) -> list[int]:
    """Returns for each operation the most device crossings on a path to it."""
    graph = problem.graph
    depths = [0] * len(graph)
    for i in graph.order:
        for before in graph.predecessors[i]:
            depths[i] = max(depths[i], depths[before] + (devices[before] != devices[i]))
    return depths


def staged(problem: Problem, schedule: Schedule) -> tuple[Problem, Schedule]:
    """Returns the problem with stages as operations, and the schedule of the stages.

    Its simulated makespan is that of the schedule as the runtime runs it, for graphs without
    operations that wait for other steps.

    Args:
      problem: what was scheduled.
      schedule: a schedule of it.
    """
    graph, devices = problem.graph, schedule.devices
    depth = depths_of(problem, devices)
    phase = phases_of(problem, devices, depth)
    key_of = [*zip(depth, phase, devices, strict=True)]
    keys = sorted({*key_of})
    number = {key: n for n, key in enumerate(keys)}
    stage = [number[key] for key in key_of]
    seconds = np.zeros((len(keys), len(problem.devices)))
    for i, device in enumerate(devices):
        # The schedule is given, so other devices need no times.
        seconds[stage[i], device] += problem.costs.seconds[i, device]
    edges = [
        Dependency(each.source, (each.target,), each.n_bytes)
        for each in messages_of(graph.edges, devices, stage)
    ]
    # A device runs its stages in the order of their keys, so those on one device need no edges.
    by_stage = Problem(
        OperationGraph(tuple(keys), tuple(edges)),
        problem.devices,
        replace(problem.costs, seconds=seconds),
        Constraints(),
    )
    places = tuple(device for _, _, device in keys)
    return by_stage.checked(), Schedule(places, tuple(range(len(keys))))


@dataclass
class StageMessage:
    """A message from one stage to another device.

    Attributes:
      source: the stage that makes it.
      target: the first stage that uses it.
      n_bytes: its size.
    """

    source: int
    target: int
    n_bytes: float


def messages_of(
    edges: Iterable[Dependency], devices: Sequence[int], stage: Sequence[int]
) -> list[StageMessage]:
    """Returns the messages between stages: single tensors, and bundles (`Dependency.bundle`).

    Args:
      edges: the tensors between operations.
      devices: of each operation.
      stage: of each operation; those of one device have larger numbers the later they run.
    """
    messages: list[StageMessage] = []
    bundles: dict[tuple[int, int, str], StageMessage] = {}
    for edge in edges:
        here, first = devices[edge.producer], dict[int, int]()
        for consumer in edge.consumers:
            target = devices[consumer]
            if target != here:
                first[target] = min(first.get(target, stage[consumer]), stage[consumer])
        for target, at in first.items():
            key = stage[edge.producer], target, edge.bundle
            whole = bundles.get(key) if edge.bundle else None
            if whole is not None:
                whole.target = min(whole.target, at)
                whole.n_bytes += edge.n_bytes
                continue
            messages.append(StageMessage(stage[edge.producer], at, edge.n_bytes))
            if edge.bundle:
                bundles[key] = messages[-1]
    return messages


def phases_of(problem: Problem, devices: Sequence[int], depth: Sequence[int]) -> list[int]:
    """Returns the phase of each operation: 1 if it runs after its stage's sends, else 0."""
    graph = problem.graph
    awaited = [False] * len(graph)
    for i in reversed(graph.order):
        for before in graph.predecessors[i]:
            is_here = devices[before] == devices[i]
            if not is_here or (awaited[i] and depth[before] == depth[i]):
                awaited[before] = True
    sending = {(depth[i], devices[i]) for i, is_awaited in enumerate(awaited) if is_awaited}
    left: dict[tuple[int, int], float] = {}
    for i, device in enumerate(devices):
        if not awaited[i] and (depth[i], device) in sending:
            key = depth[i], device
            left[key] = left.get(key, 0.0) + float(problem.costs.seconds[i, device])
    return [
        int(not awaited[i] and left.get((depth[i], device), 0.0) > SPLIT_S)
        for i, device in enumerate(devices)
    ]


class StageTimes:
    """Computes step times in stages for many placements of one problem, without timelines.

    A device runs its stages in the order of their numbers, and every stage has a larger number than
    those that send to it, so one pass over the stages is enough. Waiting for ports is left out: of
    messages that take processors, little else remains that could wait.

    Args:
      problem: what is placed.
    """

    def __init__(self, problem: Problem) -> None:
        costs = problem.costs
        self._problem = problem
        self._seconds = costs.seconds.tolist()
        self._processors = costs.processor_of
        self._ends = ends_of(costs)

    def seconds(self, devices: Sequence[int]) -> float:
        """Predicts the step time of a placement in seconds, without `Costs.step_seconds`."""
        problem = self._problem
        depth = depths_of(problem, devices)
        phase = phases_of(problem, devices, depth)
        keys = [*zip(depth, phase, devices, strict=True)]
        number = {key: n for n, key in enumerate(sorted({*keys}))}
        stage = [number[key] for key in keys]
        work = [0.0] * len(number)
        for i, device in enumerate(devices):
            work[stage[i]] += self._seconds[i][device]
        stages = [*number]
        sent, received = self._messages(devices, stage, stages)
        return self._run(stages, work, sent, received) + problem.costs.tasks_seconds(devices)

    def _messages(
        self, devices: Sequence[int], stage: Sequence[int], keys: Sequence[tuple[int, int, int]]
    ) -> tuple[list[list[int]], list[list[tuple[int, int, float]]]]:
        """Returns the messages that each stage sends, and those that it receives.

        Messages are numbers, where they are sent; where received also the source and the bytes.
        """
        sent: list[list[int]] = [[] for _ in keys]
        received: list[list[tuple[int, int, float]]] = [[] for _ in keys]
        edges = self._problem.graph.edges
        for number, each in enumerate(messages_of(edges, devices, stage)):
            sent[each.source].append(number)
            received[each.target].append((number, keys[each.source][2], each.n_bytes))
        return sent, received

    def _run(
        self,
        keys: Sequence[tuple[int, int, int]],
        work: Sequence[float],
        sent: Sequence[Sequence[int]],
        received: Sequence[Sequence[tuple[int, int, float]]],
    ) -> float:
        ends = self._ends
        where = {
            message: (source, keys[at][2], n_bytes)
            for at, messages in enumerate(received)
            for message, source, n_bytes in messages
        }
        free = [0.0] * len(self._processors)
        arrival = [0.0] * len(where)
        for at, (_, _, device) in enumerate(keys):
            processor = self._processors[device]
            now = free[processor]
            for message, source, n_bytes in received[at]:
                now = max(now, arrival[message])
                now += ends.overhead[source][device] + ends.receive[source][device] * n_bytes
            now += work[at]
            for message in sent[at]:
                source, target, n_bytes = where[message]
                now += ends.overhead[source][target] + ends.send[source][target] * n_bytes
                way = ends.latency[source][target] + ends.way[source][target] * n_bytes
                arrival[message] = now + way
                now += ends.rest[source][target] * n_bytes
            free[processor] = now
        return max(free, default=0.0)
