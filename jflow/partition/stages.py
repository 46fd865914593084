"""The stages of a placed graph.

Two things tell the stages of operations apart. The *depth* of an operation is the largest number of
crossings on a path to it: from device to device, or between XLA and the functions of the host. And
there is what it *waits for*: the operations on the paths to it that are blocking, which can take
as long as other steps let them wait, such as taking an element from a queue. Nothing therefore
waits for what it does not need: a step that puts into a queue what another part of it takes out
again cannot deadlock.

Stages are numbered so that each comes behind all that it needs. In *sequential* order they are
taken one after the other; this is right if what they wait for only grows along a plan, so that no
stage waits for something that a later one does not also need. Otherwise they are in *dataflow*
order: each begins as soon as those it needs are done.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from jflow.cluster import Device
from jflow.graph import Operation, Tensor
from jflow.graph.primitives import is_blocking, is_on_host
from jflow.partition.prune import control_sources

Value = Tensor | Operation
"""What crosses from device to device: a tensor, or the signal that an operation has run."""


class _Stage(NamedTuple):
    """What tells stages apart; they come in the order of these tuples."""

    n_blockers: int
    order: tuple[int, ...]
    depth: int
    blockers: frozenset[int]

    def behind(self) -> _Stage:
        """The first stage on another device that can have what this one makes."""
        return self._replace(depth=self.depth + 1)


_NOTHING: frozenset[int] = frozenset()
_FIRST = _Stage(0, (), 0, _NOTHING)


class Stages:
    """The stages of the operations of a step.

    Args:
      ops: the operations, in the graph's order.
      placement: a device for each of them.
      needs: the tensors that each of them needs.
      fed: tensors whose values come with the step.

    Attributes:
      sources: what each operation waits for, without feeds.
      number: the stage of each operation.
      arrival: in dataflow order, the stage of its own in which another device receives what an
        operation makes.
      is_sequential: whether stages are taken one after the other.
    """

    def __init__(
        self,
        ops: Sequence[Operation],
        placement: Mapping[Operation, Device],
        needs: Mapping[Operation, Sequence[Tensor]],
        fed: Collection[Tensor],
    ) -> None:
        running = frozenset(ops)
        self._placement = placement
        self.sources = {op: _sources(op, needs[op], fed, running) for op in ops}
        stages = self._stages(ops)
        every = sorted(set(stages.values()))
        self.is_sequential = all(one.blockers <= other.blockers for one, other in pairwise(every))
        arrivals = {}
        if not self.is_sequential:
            arrivals = {op: stage.behind() for op, stage in stages.items()}
            every = sorted({_FIRST, *every, *arrivals.values()})
        numbers = {stage: number for number, stage in enumerate(every)}
        self.number = {op: numbers[stage] for op, stage in stages.items()}
        self.arrival = {op: numbers[stage] for op, stage in arrivals.items()}

    def _stages(self, ops: Sequence[Operation]) -> dict[Operation, _Stage]:
        # Invariant: no operation is in an earlier stage than what it needs, and one that needs
        # something across a crossing is in a later stage. What an operation waits for includes what
        # its sources wait for; if that is more, there are more waits, and otherwise the depth
        # decides, which grows with each crossing. So a device that takes its stages in order has
        # sent everything that a stage of another device receives before that stage begins.
        stages: dict[Operation, _Stage] = {}
        for number, op in enumerate(ops):
            depth = 0
            blockers = _NOTHING
            for source in self.sources[op]:
                producer = producer_of(source)
                before = stages[producer]
                depth = max(depth, before.depth + self._crosses(producer, op))
                if before.blockers:
                    blockers |= before.blockers
            if is_blocking(op.eqn):
                blockers |= {number}
            stages[op] = _Stage(len(blockers), tuple(sorted(blockers)), depth, blockers)
        return stages

    def _crosses(self, producer: Operation, op: Operation) -> bool:
        return self._placement[producer] != self._placement[op] or (
            is_on_host(producer.eqn) != is_on_host(op.eqn)
        )


def producer_of(value: Value) -> Operation:
    """The operation that makes a value."""
    return value.op if isinstance(value, Tensor) else value


def _sources(
    op: Operation,
    needed: Sequence[Tensor],
    fed: Collection[Tensor],
    running: Collection[Operation],
) -> list[Value]:
    data = [tensor for tensor in needed if tensor not in fed]
    return [*data, *(source for source in control_sources(op) if source in running)]
