"""Simulates a schedule as the runtime runs it: in stages that wait for all of their inputs.

The simulator (`simulate.py`) starts an operation as soon as its own inputs are there, and sends
a tensor as soon as it is made. The runtime cuts a step into stages (`cut.py`), which are programs.
A program begins when all that it receives has arrived, and what it sends leaves when it has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from jflow.compiler.schedule.cut import StageCut, StageKey, cut, n_looked_at
from jflow.compiler.schedule.graph import Dependency, OperationGraph
from jflow.compiler.schedule.messages import ends_of
from jflow.compiler.schedule.problem import Constraints, Problem
from jflow.compiler.schedule.schedule import Schedule


def of_stages(
    problem: Problem, devices: Sequence[int], stages: StageCut
) -> tuple[Problem, Schedule]:
    """Returns the problem with stages as operations, and the schedule of the stages.

    Its simulated makespan is that of the placement as the runtime runs it, for graphs without
    operations that wait for other steps, and up to iterations that have no stages.

    Args:
      problem: what was placed.
      devices: of each operation.
      stages: how the placement is cut.
    """
    seconds = np.zeros((len(stages.stages), len(problem.devices)))
    once = problem.costs.seconds[range(len(devices)), devices] / problem.graph.trips
    for i, device in enumerate(devices):
        # The schedule is given, so other devices need no times.
        seconds[stages.of[i], device] += once[i]
    edges = [
        Dependency(each.source, (each.target,), each.n_bytes)
        for each in messages_of(problem.graph, devices, stages.of)
    ]
    # A device runs its stages in their order, so those on one device need no edges.
    by_stage = Problem(
        OperationGraph(tuple(stages.stages), tuple(edges)),
        problem.devices,
        replace(problem.costs, seconds=seconds),
        Constraints(),
    )
    places = tuple(stage.device for stage in stages.stages)
    return by_stage.checked(), Schedule(places, tuple(range(len(stages.stages))))


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
    graph: OperationGraph, devices: Sequence[int], stages: Sequence[Sequence[int]]
) -> list[StageMessage]:
    """Returns the messages between stages: single tensors, and bundles (`Dependency.bundle`).

    A loop gets what comes from outside of it in its first iteration, and gives what leaves it in
    the last one.

    Args:
      graph: the operations, with the tensors between them.
      devices: of each operation.
      stages: of each operation, one for each iteration; those of one device have larger numbers the
        later they run.
    """
    messages: list[StageMessage] = []
    bundles: dict[tuple[int, int, str], StageMessage] = {}
    loop_of = graph.loop_of
    for edge in graph.edges:
        producer, n_bytes = edge.producer, edge.n_bytes
        here, made, loop = devices[producer], stages[producer], loop_of[producer]
        first: dict[tuple[int, int], int] = {}
        for consumer in edge.consumers:
            target, used = devices[consumer], stages[consumer]
            if target == here:
                continue
            if loop < 0 or loop_of[consumer] != loop:
                key, at = (made[-1], target), used[0]
                first[key] = min(first.get(key, at), at)
                continue
            n_bytes = edge.n_bytes / graph.loops[loop].trips
            for source, at in zip(made, used, strict=True):
                key = source, target
                first[key] = min(first.get(key, at), at)
        for (source, target), at in first.items():
            bundle = source, target, edge.bundle
            whole = bundles.get(bundle) if edge.bundle else None
            if whole is not None:
                whole.target = min(whole.target, at)
                whole.n_bytes += n_bytes
                continue
            messages.append(StageMessage(source, at, n_bytes))
            if edge.bundle:
                bundles[bundle] = messages[-1]
    return messages


def unseen_seconds(
    problem: Problem, stages: Sequence[StageKey], finish: Sequence[float], busy: Sequence[float]
) -> list[float]:
    """Returns the seconds of the iterations of each loop that have no stages.

    Each takes as long as one in the middle of those that have some, and not less than what one
    processor has to do for it.

    Args:
      problem: what was scheduled.
      stages: the stages.
      finish: when each ends.
      busy: how long each computes.
    """
    longer = [0.0] * len(problem.graph.loops)
    for number, loop in enumerate(problem.graph.loops):
        seen = n_looked_at(loop)
        if seen < loop.trips:
            ends, work = [0.0] * seen, [0.0] * problem.costs.n_processors
            for stage, time, seconds in zip(stages, finish, busy, strict=True):
                if stage.loop == number:
                    ends[stage.iteration] = max(ends[stage.iteration], time)
                    work[problem.costs.processor_of[stage.device]] += seconds
            first, last = seen // 4, 3 * seen // 4
            each = max((ends[last] - ends[first]) / (last - first), max(work) / seen)
            longer[number] = each * (loop.trips - seen)
    return longer


def longest_of(graph: OperationGraph, longer: Sequence[float]) -> float:
    """Returns the most seconds that loops add to a path: those that are independent overlap."""
    if not any(longer):
        return 0.0
    added = [0.0] * len(graph)
    for unit in graph.units:
        number = graph.loop_of[unit[0]]
        before = max((added[one] for i in unit for one in graph.predecessors[i]), default=0.0)
        for i in unit:
            added[i] = before + (longer[number] if number >= 0 else 0.0)
    return max(added)


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
        self._once = (costs.seconds / problem.graph.trips[:, None]).tolist()
        self._processors = costs.processor_of
        self._ends = ends_of(costs)

    def seconds(self, devices: Sequence[int]) -> float:
        """Predicts the step time of a placement in seconds, without `Costs.step_seconds`."""
        problem = self._problem
        stages = cut(problem, devices)
        work = [0.0] * len(stages.stages)
        for i, device in enumerate(devices):
            for number in stages.of[i]:
                work[number] += self._once[i][device]
        messages = messages_of(problem.graph, devices, stages.of)
        finish = self._run(stages.stages, work, messages)
        unseen = unseen_seconds(problem, stages.stages, finish, work)
        longer = longest_of(problem.graph, unseen)
        return max(finish, default=0.0) + longer + problem.costs.tasks_seconds(devices)

    def _run(
        self, stages: Sequence[StageKey], work: Sequence[float], messages: Sequence[StageMessage]
    ) -> list[float]:
        """Returns the end of each stage."""
        ends = self._ends
        sent: list[list[int]] = [[] for _ in stages]
        received: list[list[int]] = [[] for _ in stages]
        for number, each in enumerate(messages):
            sent[each.source].append(number)
            received[each.target].append(number)
        free = [0.0] * len(self._processors)
        arrival = [0.0] * len(messages)
        finish: list[float] = []
        for at, stage in enumerate(stages):
            device = stage.device
            processor = self._processors[device]
            now = free[processor]
            for number in received[at]:
                message = messages[number]
                source = stages[message.source].device
                now = max(now, arrival[number])
                taking = ends.receive[source][device] * message.n_bytes
                now += ends.overhead[source][device] + taking
            now += work[at]
            for number in sent[at]:
                message = messages[number]
                target, n_bytes = stages[message.target].device, message.n_bytes
                now += ends.overhead[device][target] + ends.send[device][target] * n_bytes
                way = ends.latency[device][target] + ends.way[device][target] * n_bytes
                arrival[number] = now + way
                now += ends.rest[device][target] * n_bytes
            free[processor] = now
            finish.append(now)
        return finish
