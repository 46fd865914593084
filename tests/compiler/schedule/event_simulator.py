"""A simulator that delivers every tensor in an event of its own, as an oracle for the fast one.

Its rules are those of `jflow.compiler.schedule.simulate`.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from jflow.compiler.schedule.problem import BUFFERED, ONE_PORT, Problem
from jflow.compiler.schedule.schedule import Schedule
from jflow.compiler.schedule.simulate import SimulatedTransfer


@dataclass(frozen=True)
class Timeline:
    """When everything happens, in seconds from the start of the step.

    Attributes:
      start, finish: of each operation.
      transfers: in the order in which they were requested.
      devices: index of the device of each operation.
    """

    start: tuple[float, ...]
    finish: tuple[float, ...]
    transfers: tuple[SimulatedTransfer, ...]
    devices: tuple[int, ...]

    @property
    def makespan(self) -> float:
        """When the last operation is done."""
        return max(self.finish, default=0.0)


def simulate(problem: Problem, schedule: Schedule) -> Timeline:
    """What happens when a valid schedule is run.

    The order of the schedule is topological, so there is always a next operation: the first one of
    it that has not run has all of its inputs, and all that its device runs before it.
    """
    return _Simulation(problem, schedule).run()


class _Simulation:
    def __init__(self, problem: Problem, schedule: Schedule) -> None:
        graph, costs = problem.graph, problem.costs
        n, n_devices = len(graph), len(problem.devices)
        self.devices = devices = schedule.devices
        self.seconds = costs.seconds[range(n), devices].tolist() if n else []
        self.latency, self.byte_seconds = costs.latency.tolist(), costs.byte_seconds.tolist()
        self.network = costs.network
        self.port_share = costs.port_share
        self.graph = graph
        self.start, self.finish = [0.0] * n, [0.0] * n
        self.ready = [0.0] * n  # when the last input known so far is there
        self.missing = [len(inputs) for inputs in graph.inputs]
        self.processors = [costs.processor_of[device] for device in devices]
        self.queues: list[list[int]] = [[] for _ in range(costs.n_processors)]
        for operation in reversed(schedule.order):
            self.queues[self.processors[operation]].append(operation)
        self.position = {operation: i for i, operation in enumerate(schedule.order)}
        self.free = [0.0] * costs.n_processors
        self.outgoing = [0.0] * n_devices
        self.incoming = self.outgoing if costs.half_duplex else [0.0] * n_devices
        self.transfers: list[SimulatedTransfer] = []
        self.events: list[tuple[float, int, int]] = []  # finish, position, operation

    def run(self) -> Timeline:
        for processor in range(len(self.queues)):
            self._go_on(processor)
        while self.events:
            time, _, operation = heapq.heappop(self.events)
            device = self.devices[operation]
            touched = {self.processors[operation]: None}
            for edge in self.graph.outputs[operation]:
                self._deliver(edge, device, time, touched)
            for each in touched:
                self._go_on(each)
        return Timeline(
            tuple(self.start), tuple(self.finish), tuple(self.transfers), tuple(self.devices)
        )

    def _go_on(self, processor: int) -> None:
        """Starts the next operations, as far as the arrival of their inputs is known."""
        queue = self.queues[processor]
        while queue and not self.missing[queue[-1]]:
            operation = queue.pop()
            start = max(self.free[processor], self.ready[operation])
            finish = self.free[processor] = start + self.seconds[operation]
            self.start[operation], self.finish[operation] = start, finish
            heapq.heappush(self.events, (finish, self.position[operation], operation))

    def _deliver(self, number: int, source: int, time: float, touched: dict[int, None]) -> None:
        """Gives a tensor to its consumers: here at once, elsewhere when it arrives."""
        edge, arrivals = self.graph.edges[number], {source: time}
        for consumer in sorted(edge.consumers, key=self.position.__getitem__):
            target = self.devices[consumer]
            if target not in arrivals:
                arrivals[target] = self._send(number, source, target, time)
            self.ready[consumer] = max(self.ready[consumer], arrivals[target])
            self.missing[consumer] -= 1
            touched[self.processors[consumer]] = None

    def _send(self, number: int, source: int, target: int, time: float) -> float:
        sending = self.graph.edges[number].n_bytes * self.byte_seconds[source][target]
        start = time
        enters, busy = start, sending * self.port_share
        if self.network == ONE_PORT:
            start = enters = max(time, self.outgoing[source], self.incoming[target])
            self.outgoing[source] = self.incoming[target] = start + busy
        if self.network == BUFFERED:
            start = max(time, self.outgoing[source])
            self.outgoing[source] = start + busy
            enters = max(start, self.incoming[target])
            self.incoming[target] = enters + busy
        finish: float = enters + sending + self.latency[source][target]
        self.transfers.append(SimulatedTransfer(number, source, target, start, finish))
        return finish
