"""Discrete-event simulation of a schedule on the costs of its problem.

A device runs its operations one at a time, in the planned order, each as soon as its inputs are
there; devices with one processor do so between them. A tensor leaves when it is made, once for each
other device that uses it. Under the one-port model a transfer occupies the sender's outgoing port
and the receiver's incoming port for the time of its bytes, or for the part of it that
`Costs.port_share` says; with `Costs.half_duplex` the two ports of a device are one. Requests are
served in the order in which they come. The latency comes on top, and occupies no port. With buffers
a transfer occupies the sender's port first and the receiver's when that is free, from its first
byte on.

Only what is sent between devices (`sends.py`) has to be looked at event by event. All operations
are numbered by their position in the order of the schedule, so that events of equal time are
served by the smaller number.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from jflow.compiler.schedule.problem import BUFFERED, UNLIMITED, Costs, Problem
from jflow.compiler.schedule.schedule import Schedule
from jflow.compiler.schedule.sends import Floats, Integers, Sends, port_times, sends_of
from jflow.plan.trace import Span, Trace, Transfer
from jflow.plan.trace.spans import OPERATION


@dataclass(frozen=True)
class SimulatedTransfer:
    """A transfer of a tensor, which leaves at `start` and arrives at `finish`."""

    edge: int
    source: int
    target: int
    start: float
    finish: float


@dataclass(frozen=True)
class Timeline:
    """Start and end times of all operations and transfers, in seconds from the start of the step.

    Attributes:
      start, finish: of each operation.
      devices: index of the device of each operation.
      columns: the fields of the transfers, each of all of them.
    """

    start: tuple[float, ...]
    finish: tuple[float, ...]
    devices: tuple[int, ...]
    columns: tuple[Integers | Floats, ...] = field(compare=False, repr=False)

    @property
    def makespan(self) -> float:
        """The finish time of the last operation."""
        return max(self.finish, default=0.0)

    @cached_property
    def transfers(self) -> tuple[SimulatedTransfer, ...]:
        """The transfers, in the order in which they are requested."""
        return tuple(map(SimulatedTransfer, *(column.tolist() for column in self.columns)))


def simulate(problem: Problem, schedule: Schedule) -> Timeline:
    """Simulates a valid schedule: when each operation and transfer starts and ends, in seconds.

    Operations start as soon as their inputs are there, tensors leave as soon as they are made. The
    order of the schedule is topological, so there is always a next operation: the first one of
    it that has not run has all of its inputs, and all that its device runs before it.
    """
    return _Simulation(problem, schedule).timeline()


def makespan(problem: Problem, schedule: Schedule) -> float:
    """Returns the seconds of a valid schedule; equals `simulate(problem, schedule).makespan`."""
    return max(_Simulation(problem, schedule).finish, default=0.0)


class _Simulation:
    """A simulated run of a schedule; operations are positions in its order.

    Attributes:
      start, finish: of each operation.
      requested: the transfers, as indices of `sends`, in the order in which they are requested.
      leaving, arriving: of these, when they leave and are there.
    """

    def __init__(self, problem: Problem, schedule: Schedule) -> None:
        self.schedule, self.sends = schedule, sends_of(problem, schedule)
        order = np.array(schedule.order, np.int64)
        self.devices = np.array(schedule.devices, np.int64)[order]
        self.start, self.finish = [0.0] * len(order), [0.0] * len(order)
        self.requested: list[int] = []
        self.leaving: list[float] = []
        self.arriving: list[float] = []
        self._run(problem.costs, problem.costs.seconds[order, self.devices].tolist())

    def _run(self, costs: Costs, seconds: list[float]) -> None:
        """Runs all operations.

        An event is the end of an operation that sends something. An operation that has all it waits
        for, and is the first of those of its processor that have not started, starts and ends at
        times that are known at once, though they are still to come.
        """
        sends, start, finish = self.sends, self.start, self.finish
        devices, processors = self.devices, np.array(costs.processor_of, np.int64)[self.devices]
        heads, following = _chain(processors, costs.n_processors)
        device_of, processor_of = devices.tolist(), processors.tolist()
        first, rows = sends.first.tolist(), _transfer_rows(sends, costs.port_share)
        missing = np.bincount(sends.waiting, minlength=len(start)).tolist()
        ready, free = [0.0] * len(start), [0.0] * len(heads)
        has_ports, is_buffered = costs.network != UNLIMITED, costs.network == BUFFERED
        outgoing = [0.0] * len(costs.latency)
        incoming = outgoing if costs.half_duplex else [0.0] * len(outgoing)
        leave, arrive, request = self.leaving.append, self.arriving.append, self.requested.extend
        events: list[tuple[float, int]] = []
        push, pop, serve = heapq.heappush, heapq.heappop, port_times
        to_launch = list(range(len(heads)))
        while True:
            for processor in to_launch:
                at, time = heads[processor], free[processor]
                while at >= 0 and not missing[at]:
                    if ready[at] > time:  # noqa: PLR1730
                        time = ready[at]
                    start[at] = time
                    time += seconds[at]
                    finish[at] = time
                    if first[at] != first[at + 1]:
                        push(events, (time, at))
                    at = following[at]
                heads[processor], free[processor] = at, time
            if not events:
                return
            time, at = pop(events)
            source, to_launch = device_of[at], []
            begin, end = first[at], first[at + 1]
            request(range(begin, end))
            for target, user, sending, busy, latency in rows[begin:end]:
                if has_ports:
                    leaves, enters = serve(time, outgoing[source], incoming[target], is_buffered)
                    outgoing[source] = leaves + busy
                    incoming[target] = enters + busy
                else:
                    leaves = enters = time
                arrives = enters + sending + latency
                leave(leaves)
                arrive(arrives)
                if arrives > ready[user]:  # noqa: PLR1730
                    ready[user] = arrives
                missing[user] = n_missing = missing[user] - 1
                if not n_missing and heads[processor_of[user]] == user:
                    to_launch.append(processor_of[user])

    def timeline(self) -> Timeline:
        order = np.array(self.schedule.order, np.int64)
        start, finish = np.empty(len(order)), np.empty(len(order))
        start[order], finish[order] = self.start, self.finish
        requested = np.array(self.requested, np.int64)
        producer = np.repeat(np.arange(len(order)), np.diff(self.sends.first))[requested]
        edge, target = self.sends.edge[requested], self.sends.target[requested]
        leaving, arriving = np.array(self.leaving), np.array(self.arriving)
        return Timeline(
            tuple(start.tolist()),
            tuple(finish.tolist()),
            tuple(self.schedule.devices),
            (edge, self.devices[producer], target, leaving, arriving),
        )


def _transfer_rows(sends: Sends, port_share: float) -> list[tuple[int, int, float, float, float]]:
    """Returns target, first waiter, seconds, port seconds and latency of each transfer."""
    busy = sends.seconds * port_share
    columns = (sends.target, sends.waiting, sends.seconds, busy, sends.latency)
    return [*zip(*(column.tolist() for column in columns), strict=True)]


def _chain(processors: Integers, n_processors: int) -> tuple[list[int], list[int]]:
    """Returns each processor's first operation and each operation's next one; -1 for none."""
    by_processor = np.argsort(processors, kind="stable")
    following = np.full(len(processors), -1)
    ends = np.diff(processors[by_processor]) != 0
    following[by_processor[:-1]] = np.where(ends, -1, by_processor[1:])
    heads = np.full(n_processors, -1)
    heads[processors[by_processor][::-1]] = by_processor[::-1]
    return heads.tolist(), following.tolist()


def trace_of(
    problem: Problem,
    timeline: Timeline,
    title: str = "simulated",
    names: Sequence[str] | None = None,
    shown: Sequence[int] | None = None,
) -> Trace:
    """Returns the trace of a simulated step, with a span for each operation.

    Args:
      problem: what was simulated.
      timeline: the result of `simulate` for it.
      title: what a viewer calls the trace.
      names: of the operations; None for their own.
      shown: the numbers of the operations that have spans; None for all.
    """
    devices = [str(device) for device in problem.devices]
    names = names or [name_of_operation(operation) for operation in problem.graph.operations]
    shown = range(len(names)) if shown is None else shown
    # By device, so that viewers show the devices in the order of the problem.
    order = sorted(shown, key=lambda i: (timeline.devices[i], timeline.start[i]))
    spans = tuple(
        Span(
            names[i],
            OPERATION,
            devices[timeline.devices[i]],
            timeline.start[i],
            timeline.finish[i],
        )
        for i in order
    )
    edges = problem.graph.edges
    transfers = tuple(
        Transfer(
            names[edges[sent.edge].producer],
            devices[sent.source],
            devices[sent.target],
            int(edges[sent.edge].n_bytes),
            sent.start,
            sent.finish,
        )
        for sent in timeline.transfers
    )
    return Trace(title, spans, transfers)


def name_of_operation(operation: Hashable) -> str:
    """Returns the name of an operation, or its text if it has none."""
    name = getattr(operation, "name", None)
    return name if isinstance(name, str) else str(operation)
