"""A schedule that a list scheduler is building: what is placed, and when each device is free."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from jflow.schedule.problem import (
    Problem,
    capacity_of,
    classes_of,
    infeasible,
    resident_of,
)
from jflow.schedule.schedule import Schedule


class PartialSchedule:
    """Operations are placed one after another, each after those whose results it uses.

    Args:
      problem: what to schedule.
      books_ports: whether transfers wait for the ports of their devices; most published strategies
        know no ports.
      inserts: whether an operation may start in a gap between two that are placed already.

    Attributes:
      devices, start, finish: of each operation; the device is -1 until it is placed.
    """

    def __init__(
        self, problem: Problem, *, books_ports: bool = False, inserts: bool = False
    ) -> None:
        n, n_devices = len(problem.graph), len(problem.devices)
        self.problem = problem
        self.devices = [-1] * n
        self.start, self.finish = [0.0] * n, [0.0] * n
        self._books = books_ports
        self._inserts = inserts
        self._seconds: list[list[float]] = problem.costs.seconds.tolist()
        self._latency = problem.costs.latency.tolist()
        self._byte_seconds = problem.costs.byte_seconds.tolist()
        self._processors = problem.costs.processor_of
        self._free = [0.0] * problem.costs.n_processors
        self._starts: list[list[float]] = [
            [] for _ in self._free
        ]  # of what is placed, with inserts
        self._ends: list[list[float]] = [[] for _ in self._free]
        self._arrivals: dict[tuple[int, int], float] = {}  # of an edge at a device
        self._outgoing, self._incoming = [0.0] * n_devices, [0.0] * n_devices
        self._classes = classes_of(problem)
        self._class_device: dict[int, int] = {}
        self._room = list(capacity_of(problem))
        self._needed: dict[int, float] = {}
        for number, n_bytes in zip(self._classes, resident_of(problem), strict=True):
            self._needed[number] = self._needed.get(number, 0.0) + n_bytes
        self._all = tuple(range(n_devices))
        self._pending = [0.0] * len(self._free)  # work of classes that are placed in part
        self._class_seconds = _class_seconds(self._classes, problem)

    def options(self, operation: int) -> tuple[int, ...]:
        """The devices that an operation may go to now.

        Raises:
          ResourceExhaustedError: if none of them has room for its class.
        """
        number = self._classes[operation]
        if number in self._class_device:
            return (self._class_device[number],)
        allowed = self.problem.constraints.allowed.get(number, self._all)
        needed = self._needed[number]
        if not needed:
            return allowed
        fitting = tuple(device for device in allowed if self._room[device] >= needed)
        if not fitting:
            room = max(self._room[device] for device in allowed)
            raise infeasible(self.problem, operation, needed, room)
        return fitting

    def earliest_start(self, operation: int, device: int) -> float:
        """When an operation whose inputs are placed could start on a device."""
        ready = self._ready(operation, device, book=False)
        if not self._inserts:
            return max(ready, self._free[self._processors[device]])
        seconds, at = self._seconds[operation][device], ready
        processor = self._processors[device]
        if at >= self._free[processor]:
            return at
        starts, ends = self._starts[processor], self._ends[processor]
        for i in range(bisect_right(ends, at), len(ends)):
            if at + seconds <= starts[i]:
                break
            at = ends[i]
        return at

    def earliest_finish(self, operation: int, device: int) -> float:
        """When an operation whose inputs are placed could be done on a device."""
        return self.earliest_start(operation, device) + self._seconds[operation][device]

    def fastest(self, operation: int) -> int:
        """The device on which an operation is done first, the first of several.

        The first operation of a colocation class decides for all of it, so what counts for it is
        when all of the class could be done, after what is still to come of other classes there.
        """
        options = self.options(operation)
        if len(options) == 1:
            return options[0]
        seconds = self._class_seconds.get(self._classes[operation])
        if seconds is None:
            return min(options, key=lambda each: self.earliest_finish(operation, each))
        processors, pending = self._processors, self._pending
        return min(
            options,
            key=lambda each: (
                self.earliest_start(operation, each) + pending[processors[each]] + seconds[each]
            ),
        )

    def is_free_at(self, device: int) -> float:
        """When a device has run all that is placed on it."""
        return self._free[self._processors[device]]

    def place(self, operation: int, device: int) -> None:
        """Places an operation at its earliest start."""
        start = self.earliest_start(operation, device)
        self._ready(operation, device, book=True)
        finish = start + self._seconds[operation][device]
        self.devices[operation] = device
        self.start[operation], self.finish[operation] = start, finish
        processor = self._processors[device]
        self._free[processor] = max(self._free[processor], finish)
        if self._inserts:
            at = bisect_right(self._ends[processor], start)
            self._starts[processor].insert(at, start)
            self._ends[processor].insert(at, finish)
        number = self._classes[operation]
        if number not in self._class_device:
            self._class_device[number] = device
            self._room[device] -= self._needed[number]
            if number in self._class_seconds:
                self._pending[processor] += self._class_seconds[number][device]
        if number in self._class_seconds:
            self._pending[processor] -= self._seconds[operation][device]

    def schedule(self) -> Schedule:
        """The schedule; each device runs its operations in the order of their starts."""
        position = {operation: i for i, operation in enumerate(self.problem.graph.order)}
        order = sorted(position, key=lambda i: (self.start[i], self.finish[i], position[i]))
        return Schedule(tuple(self.devices), tuple(order))

    def _ready(self, operation: int, device: int, *, book: bool) -> float:
        """When the inputs of an operation are on a device; `book` books their transfers."""
        ready = 0.0
        outgoing: dict[int, float] = {}
        incoming = self._incoming[device]
        edges = self.problem.graph.edges
        for number in self._in_order(operation) if self._books else self._inputs(operation):
            producer = edges[number].producer
            source = self.devices[producer]
            if source == device:
                ready = max(ready, self.finish[producer])
                continue
            arrival = self._arrivals.get((number, device))
            if arrival is None:
                sending = edges[number].n_bytes * self._byte_seconds[source][device]
                start = self.finish[producer]
                if self._books:
                    port = outgoing.get(source, self._outgoing[source])
                    start = max(start, port, incoming)
                    outgoing[source] = incoming = start + sending
                arrival = start + sending + self._latency[source][device]
                if book:
                    self._arrivals[number, device] = arrival
            ready = max(ready, arrival)
        if book and self._books:
            self._incoming[device] = incoming
            for source, port in outgoing.items():
                self._outgoing[source] = port
        return ready

    def _inputs(self, operation: int) -> list[int]:
        return self.problem.graph.inputs[operation]

    def _in_order(self, operation: int) -> list[int]:
        """The inputs in the order in which they are made, in which ports serve them."""
        edges, inputs = self.problem.graph.edges, self._inputs(operation)
        if len(inputs) < 2:
            return inputs
        return sorted(inputs, key=lambda number: self.finish[edges[number].producer])


def _class_seconds(classes: Sequence[int], problem: Problem) -> dict[int, list[float]]:
    """The work of each class of more than one operation, on each device."""
    if not problem.constraints.classes:
        return {}
    numbers, rows, counts = np.unique(classes, return_inverse=True, return_counts=True)
    totals = np.zeros((len(numbers), len(problem.devices)))
    np.add.at(totals, rows, problem.costs.seconds)
    return {
        int(number): total
        for number, count, total in zip(numbers, counts, totals.tolist(), strict=True)
        if count > 1
    }
