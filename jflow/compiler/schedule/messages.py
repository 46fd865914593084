"""Models messages as operations, because they take time of the processors at both ends.

The simulator (`simulate.py`) sends a tensor while its devices compute. Where a message goes through
the processor that computes, as between CPU devices of two processes, it does not: the sender packs
and writes it, the receiver reads and unpacks it. `with_messages` makes operations of that, so that
the simulator needs to know nothing of it. The model is LogGP (Alexandrov et al., "LogGP:
incorporating long messages into the LogP model", 1995): a message takes `Costs.overhead` of both
processors, and both are busy for the part `Costs.processor_share` of the time of its bytes. What
remains of the transfer's time is spent on the way. Sender and receiver of a long message work at
the same time, so that a lone transfer takes what `Costs.transfer` says.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from jflow.compiler.schedule.graph import Dependency, OperationGraph
from jflow.compiler.schedule.problem import Constraints, Costs, Matrix, Problem
from jflow.compiler.schedule.schedule import Schedule


@dataclass(frozen=True)
class MessagePart:
    """The work of one processor for a message: its sending, receiving or remaining part.

    Attributes:
      edge: the number of the tensor in the graph that is sent.
      target: index of the device that it goes to.
      part: "send", "receive", or "rest": what the sender does while the receiver has begun.
    """

    edge: int
    target: int
    part: str


@dataclass(frozen=True)
class MessageEnds:
    """Costs of messages by source and target, in seconds and in seconds per byte.

    Attributes:
      overhead: of the processor of each end, for each message.
      send, receive: of the sender's and the receiver's processor, for each byte; the receiver
        begins when the sender has ended.
      rest: of the sender's processor, while the receiver has begun, for each byte.
      latency, way: between the two, for each message and each byte.
    """

    overhead: list[list[float]]
    send: list[list[float]]
    receive: list[list[float]]
    rest: list[list[float]]
    latency: list[list[float]]
    way: list[list[float]]


def ends_of(costs: Costs) -> MessageEnds:
    """Splits the times of transfers into processor time at the ends and time on the way."""
    none = np.zeros_like(costs.latency)
    overhead = np.minimum(_or(costs.overhead, none), costs.latency / 2)
    busy, byte_seconds = _or(costs.processor_share, none), costs.byte_seconds
    every = (
        overhead,
        np.minimum(busy, 1 - busy) * byte_seconds,
        busy * byte_seconds,
        np.maximum(2 * busy - 1, 0.0) * byte_seconds,
        costs.latency - 2 * overhead,
        np.maximum(1 - 2 * busy, 0.0) * byte_seconds,
    )
    return MessageEnds(*(each.tolist() for each in every))


def with_messages(problem: Problem, schedule: Schedule) -> tuple[Problem, Schedule]:
    """Returns the problem and schedule with messages as operations of the devices at both ends.

    Args:
      problem: what was scheduled.
      schedule: of this problem. A device receives a tensor before the first operation that uses it
        there, and sends what an operation makes after that operation.

    Returns:
      The same problem and schedule if messages take nothing of processors. Otherwise operations are
      numbers of those of the problem, and `MessagePart`s.
    """
    costs = problem.costs
    if costs.overhead is None and costs.processor_share is None:
        return problem, schedule
    return _Expansion(problem, schedule).result()


@dataclass
class _Sent:
    """A message: its size, the number of its send operation, and its consumers."""

    n_bytes: float
    send: int = -1
    consumers: list[int] = field(default_factory=list)


class _Expansion:
    """Builds the problem with messages, in the order of the schedule."""

    def __init__(self, problem: Problem, schedule: Schedule) -> None:
        self._problem, self._schedule = problem, schedule
        self._ends = ends_of(problem.costs)
        self._operations: list[int | MessagePart] = []
        self._devices: list[int] = []
        self._seconds: list[float] = []
        self._edges: list[Dependency] = []
        self._number: dict[int, int] = {}
        self._sent: dict[tuple[int, int], _Sent] = {}

    def result(self) -> tuple[Problem, Schedule]:
        for operation in self._schedule.order:
            self._receive_inputs(operation)
            device = self._schedule.devices[operation]
            duration = float(self._problem.costs.seconds[operation, device])
            self._number[operation] = self._add(operation, device, duration)
            self._send_outputs(operation)
        self._connect()
        seconds = np.zeros((len(self._operations), len(self._problem.devices)))
        seconds[range(len(self._devices)), self._devices] = self._seconds
        costs = self._problem.costs
        rest = replace(
            costs,
            seconds=seconds,
            latency=np.array(self._ends.latency),
            byte_seconds=np.array(self._ends.way),
            overhead=None,
            processor_share=None,
        )
        graph = OperationGraph(tuple(self._operations), tuple(self._edges))
        problem = Problem(graph, self._problem.devices, rest, Constraints())
        return problem, Schedule(tuple(self._devices), tuple(range(len(self._operations))))

    def _add(self, operation: int | MessagePart, device: int, seconds: float) -> int:
        self._operations.append(operation)
        self._devices.append(device)
        self._seconds.append(seconds)
        return len(self._operations) - 1

    def _receive_inputs(self, operation: int) -> None:
        device = self._schedule.devices[operation]
        for number in self._problem.graph.inputs[operation]:
            sent = self._sent.get((number, device))
            if sent is None:
                continue
            if not sent.consumers:
                source = self._schedule.devices[self._problem.graph.edges[number].producer]
                seconds = self._ends.overhead[source][device]
                seconds += self._ends.receive[source][device] * sent.n_bytes
                receive = self._add(MessagePart(number, device, "receive"), device, seconds)
                self._edges.append(Dependency(sent.send, (receive,), sent.n_bytes))
                sent.consumers.append(receive)
            sent.consumers.append(operation)

    def _send_outputs(self, operation: int) -> None:
        source = self._schedule.devices[operation]
        for number in self._problem.graph.outputs[operation]:
            edge = self._problem.graph.edges[number]
            targets = dict.fromkeys(self._schedule.devices[each] for each in edge.consumers)
            for target in targets:
                if target == source:
                    continue
                seconds = self._ends.overhead[source][target]
                seconds += self._ends.send[source][target] * edge.n_bytes
                send = self._add(MessagePart(number, target, "send"), source, seconds)
                self._sent[number, target] = _Sent(edge.n_bytes, send)
                self._edges.append(Dependency(self._number[operation], (send,), 0.0))
                remaining = self._ends.rest[source][target] * edge.n_bytes
                if remaining:
                    rest = self._add(MessagePart(number, target, "rest"), source, remaining)
                    self._edges.append(Dependency(send, (rest,), 0.0))

    def _connect(self) -> None:
        """Adds the edges within devices and those to the consumers of received tensors."""
        devices = self._schedule.devices
        for edge in self._problem.graph.edges:
            here = devices[edge.producer]
            users = tuple(self._number[each] for each in edge.consumers if devices[each] == here)
            if users:
                self._edges.append(Dependency(self._number[edge.producer], users, edge.n_bytes))
        for sent in self._sent.values():
            receive, *waiting = sent.consumers
            later = tuple(self._number[each] for each in waiting)
            self._edges.append(Dependency(receive, later, 0.0))


def _or(values: Matrix | None, other: Matrix) -> Matrix:
    return other if values is None else values
