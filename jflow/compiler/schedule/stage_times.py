"""The time of a step in stages, for many placements of one problem.

What `predicted_seconds` says of costs that are `in_stages`, without a timeline. A device runs its
stages in the order of their numbers, and every stage has a larger number than those that send to
it, so one pass over the stages is enough. Waiting for ports is left out: of messages that take
processors, little else remains that could wait.
"""

from __future__ import annotations

from collections.abc import Sequence

from jflow.compiler.schedule.messages import ends_of
from jflow.compiler.schedule.problem import Problem
from jflow.compiler.schedule.stages import depths_of, messages_of, phases_of


class StageTimes:
    """The times of steps of one problem.

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
        """Seconds of the step with operations on these devices, without `Costs.step_seconds`."""
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
        """For each stage the messages that it sends, and those that it receives.

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
