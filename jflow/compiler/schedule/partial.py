"""A schedule under construction by a list scheduler: placed operations and free times."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from operator import itemgetter

from jflow.compiler.schedule.problem import (
    BUFFERED,
    Problem,
    capacity_of,
    class_seconds,
    class_sums,
    classes_of,
    infeasible,
    resident_of,
)
from jflow.compiler.schedule.schedule import Schedule
from jflow.compiler.schedule.sends import port_times


class PartialSchedule:
    """Builds a schedule by placing operations in turn, each after its inputs.

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
        self._port_share = problem.costs.port_share
        self._is_buffered = problem.costs.network == BUFFERED
        self._inserts = inserts
        self._seconds: Callable[[int, int], float] = problem.costs.seconds.item
        self._latency = problem.costs.latency.tolist()
        self._byte_seconds = problem.costs.byte_seconds.tolist()
        self._processors = problem.costs.processor_of
        self._free = [0.0] * problem.costs.n_processors
        self._starts: list[list[float]] = [
            [] for _ in self._free
        ]  # of what is placed, with inserts
        self._ends: list[list[float]] = [[] for _ in self._free]
        self._arrivals: list[dict[int, float]] = [{} for _ in range(n_devices)]  # of edges
        self._served: dict[int, list[tuple[int, int, float, float]]] = {}  # see `_inputs`
        self._outgoing = [0.0] * n_devices
        self._incoming = self._outgoing if problem.costs.half_duplex else [0.0] * n_devices
        self._classes = classes_of(problem)
        self._class_device: dict[int, int] = {}
        self._room = list(capacity_of(problem))
        self._needed = class_sums(problem, resident_of(problem))
        self._all = tuple(range(n_devices))
        self._pending = [0.0] * len(self._free)  # work of classes that are placed in part
        self._class_seconds = _shared_work(problem)

    def options(self, operation: int) -> tuple[int, ...]:
        """Returns the devices that an operation may be placed on now.

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
        """Returns the earliest start of an operation on a device; its inputs must be placed."""
        return self._start_after(self._inputs_ready_at(operation, device), operation, device)

    def _start_after(self, ready: float, operation: int, device: int) -> float:
        """Returns the first time from `ready` on at which a device is free for an operation."""
        processor = self._processors[device]
        free = self._free[processor]
        if ready >= free:
            return ready
        if not self._inserts:
            return free
        seconds, at = self._seconds(operation, device), ready
        starts, ends = self._starts[processor], self._ends[processor]
        for i in range(bisect_right(ends, at), len(ends)):
            if at + seconds <= starts[i]:
                break
            at = ends[i]
        return at

    def earliest_finish(self, operation: int, device: int) -> float:
        """Returns the earliest finish of an operation on a device; its inputs must be placed."""
        return self.earliest_start(operation, device) + self._seconds(operation, device)

    def fastest(self, operation: int) -> int:
        """Returns the device with the earliest finish of an operation; the first one of a tie.

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
        """Returns when a device has finished everything placed on it."""
        return self._free[self._processors[device]]

    def place(self, operation: int, device: int) -> None:
        """Places an operation at its earliest start."""
        start = self._start_after(
            self._inputs_ready_at(operation, device, book=True), operation, device
        )
        finish = start + self._seconds(operation, device)
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
            self._pending[processor] -= self._seconds(operation, device)
        self._served.pop(operation, None)

    def schedule(self) -> Schedule:
        """Returns the schedule; each device runs its operations in the order of their starts."""
        position = {operation: i for i, operation in enumerate(self.problem.graph.order)}
        order = sorted(position, key=lambda i: (self.start[i], self.finish[i], position[i]))
        return Schedule(tuple(self.devices), tuple(order))

    def _inputs_ready_at(self, operation: int, device: int, *, book: bool = False) -> float:
        """Returns when the inputs of an operation are on a device; `book` books their transfers."""
        ready = 0.0
        arrivals, here = self._arrivals[device], self._incoming[device]
        ports: dict[int, float] = {}
        for number, source, finish, n_bytes in self._inputs(operation):
            if source == device:
                arrival = finish
            elif number in arrivals:
                arrival = arrivals[number]
            else:
                sending, enters = n_bytes * self._byte_seconds[source][device], finish
                if self._books:
                    busy = sending * self._port_share
                    outgoing = ports.get(source, self._outgoing[source])
                    leaves, enters = port_times(finish, outgoing, here, self._is_buffered)
                    ports[source], here = leaves + busy, enters + busy
                arrival = enters + sending + self._latency[source][device]
                if book:
                    arrivals[number] = arrival
            if arrival > ready:  # noqa: PLR1730 - a call takes longer
                ready = arrival
        if book and self._books:
            self._incoming[device] = here
            for source, port in ports.items():
                self._outgoing[source] = port
        return ready

    def _inputs(self, operation: int) -> list[tuple[int, int, float, float]]:
        """Returns edge number, device, finish time and bytes of each input.

        They are in the order in which they are made, in which ports serve them. All of them are
        placed, so this does not change.
        """
        inputs = self._served.get(operation)
        if inputs is None:
            edges, inputs = self.problem.graph.edges, []
            for number in self.problem.graph.inputs[operation]:
                edge = edges[number]
                finish = self.finish[edge.producer]
                inputs.append((number, self.devices[edge.producer], finish, edge.n_bytes))
            if self._books:
                inputs.sort(key=itemgetter(2))
            self._served[operation] = inputs
        return inputs


def _shared_work(problem: Problem) -> dict[int, list[float]]:
    """Returns the total work on each device of each class that has several operations."""
    counts = Counter(problem.constraints.classes)
    if len(counts) == len(problem.constraints.classes):
        return {}
    totals = class_seconds(problem)
    return {number: totals[number].tolist() for number, count in counts.items() if count > 1}
