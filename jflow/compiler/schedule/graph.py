"""The graph that strategies see: operations and tensors as indices and sizes, no equations."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from jflow.errors import InvalidArgumentError


@dataclass(frozen=True)
class Dependency:
    """A tensor, or a signal, from one operation to its consumers.

    Attributes:
      producer: index of the operation that makes it.
      consumers: indices of the operations that use it, each once.
      n_bytes: its size; 0 for a signal, which carries no value. It is sent at most once to each
        device, however many of its consumers are there.
      bundle: what it can travel with: tensors of one name here that one program makes for one other
        device are one message. "" for a message of its own.
    """

    producer: int
    consumers: tuple[int, ...]
    n_bytes: float
    bundle: str = ""


@dataclass(frozen=True)
class RepeatedBody:
    """The body of a loop: operations that a step runs several times, one iteration after another.

    Iterations overlap as far as their data allows.

    Attributes:
      operations: their indices.
      trips: how often they run, at least once.
      window: how many iterations may be under way on a device; 0 for the default.
      carried: pairs of operations: what the first one makes in an iteration, the second one gives
        in the next.
      name: what messages call it.
    """

    operations: tuple[int, ...]
    trips: int
    window: int = 0
    carried: tuple[tuple[int, int], ...] = ()
    name: str = ""


class Uses(NamedTuple):
    """(Edge, producer, consumer) of every use of an edge, as columns in the order of the edges.

    Attributes:
      edge, producer, consumer: i64[uses], indices.
    """

    edge: np.ndarray[Any, np.dtype[np.int64]]
    producer: np.ndarray[Any, np.dtype[np.int64]]
    consumer: np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, eq=False)
class OperationGraph:
    """A directed acyclic graph of operations.

    Attributes:
      operations: what the nodes stand for, by which messages and strategies identify them.
      edges: the tensors between them. Of one that a loop sends in each iteration, `n_bytes` is the
        sum.
      loops: the loops; no operation is in two of them.
      runs: how often each operation runs, also in loops inside of these loops; empty for as often
        as the loops say.

    Raises:
      InvalidArgumentError: if an operation is listed twice, an edge or loop refers to one that does
        not exist, or operations depend on each other in a cycle.
    """

    operations: tuple[Hashable, ...]
    edges: tuple[Dependency, ...]
    loops: tuple[RepeatedBody, ...] = ()
    runs: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.operations)) != len(self.operations):
            raise InvalidArgumentError("an operation is listed twice in the graph to be placed")
        indices = range(len(self.operations))
        for edge in self.edges:
            for index in (edge.producer, *edge.consumers):
                if index not in indices:
                    raise InvalidArgumentError(
                        f"{edge} refers to operation {index}; the graph has {len(indices)}"
                    )
        _ = self.order
        for loop in self.loops:
            if loop.trips < 1 or not {*loop.operations} <= {*indices}:
                raise InvalidArgumentError(
                    f"expected a loop of operations 0 to {len(indices) - 1} that runs, got {loop}"
                )
        _ = self.units

    def __len__(self) -> int:
        return len(self.operations)

    @cached_property
    def inputs(self) -> list[list[int]]:
        """The indices of the edges that each operation uses."""
        by_consumer: list[list[int]] = [[] for _ in self.operations]
        for number, edge in enumerate(self.edges):
            for consumer in edge.consumers:
                by_consumer[consumer].append(number)
        return by_consumer

    @cached_property
    def outputs(self) -> list[list[int]]:
        """The indices of the edges that each operation produces."""
        by_producer: list[list[int]] = [[] for _ in self.operations]
        for number, edge in enumerate(self.edges):
            by_producer[edge.producer].append(number)
        return by_producer

    @cached_property
    def uses(self) -> Uses:
        """All edges with their consumers, as columns."""
        n_uses = [len(edge.consumers) for edge in self.edges]
        consumers = [consumer for edge in self.edges for consumer in edge.consumers]
        producers = np.array([edge.producer for edge in self.edges], np.int64)
        edges = np.repeat(np.arange(len(self.edges)), n_uses)
        return Uses(edges, producers[edges], np.array(consumers, np.int64))

    @cached_property
    def sizes(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The bytes of each edge."""
        return np.array([edge.n_bytes for edge in self.edges], np.float64)

    @cached_property
    def successors(self) -> list[list[int]]:
        """The consumers of each operation's results, without duplicates."""
        return [
            [*dict.fromkeys(c for edge in edges for c in self.edges[edge].consumers)]
            for edges in self.outputs
        ]

    @cached_property
    def predecessors(self) -> list[list[int]]:
        """The producers of each operation's inputs, without duplicates."""
        return [
            [*dict.fromkeys(self.edges[edge].producer for edge in edges)] for edges in self.inputs
        ]

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The operations in a topological order, breadth first (Kahn's algorithm)."""
        missing = [len(before) for before in self.predecessors]
        ready = deque(index for index, count in enumerate(missing) if not count)
        order: list[int] = []
        while ready:
            index = ready.popleft()
            order.append(index)
            for successor in self.successors[index]:
                missing[successor] -= 1
                if not missing[successor]:
                    ready.append(successor)
        if len(order) < len(self.operations):
            cyclic = [str(self.operations[i]) for i, count in enumerate(missing) if count]
            raise InvalidArgumentError(
                f"operations depend on each other in a cycle, among them {', '.join(cyclic[:5])}"
            )
        return tuple(order)

    @cached_property
    def loop_of(self) -> list[int]:
        """The number of the loop of each operation; -1 outside of loops."""
        loops = [-1] * len(self.operations)
        for number, loop in enumerate(self.loops):
            for index in loop.operations:
                loops[index] = number
        return loops

    @cached_property
    def trips(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """How often the loop of each operation runs it; 1 outside of loops."""
        trips = np.ones(len(self.operations))
        for loop in self.loops:
            trips[[*loop.operations]] = loop.trips
        return trips

    @cached_property
    def units(self) -> tuple[tuple[int, ...], ...]:
        """Single operations and the bodies of whole loops, in a topological order."""
        if not self.loops:
            return tuple((index,) for index in self.order)
        first: dict[int, int] = {}
        bodies: dict[int, list[int]] = {}
        for index in self.order:
            number = self.loop_of[index]
            unit = index if number < 0 else first.setdefault(number, index)
            bodies.setdefault(unit, []).append(index)
        of = {index: unit for unit, body in bodies.items() for index in body}
        edges = {
            (of[edge.producer], of[consumer])
            for edge in self.edges
            for consumer in edge.consumers
            if of[edge.producer] != of[consumer]
        }
        numbers = {unit: number for number, unit in enumerate(bodies)}
        contracted = graph_of([*bodies], [(numbers[a], numbers[b], 0.0) for a, b in sorted(edges)])
        every = [*bodies.values()]
        return tuple(tuple(every[number]) for number in contracted.order)


def graph_of(
    operations: Sequence[Hashable], edges: Sequence[tuple[int, int, float]]
) -> OperationGraph:
    """Returns a graph with a separate tensor for each (producer, consumer, bytes)."""
    return OperationGraph(
        tuple(operations), tuple(Dependency(a, (b,), size) for a, b, size in edges)
    )
