"""Cuts a placed graph by device and by stage.

Two things tell the stages of operations apart. The *depth* of an operation is the largest number of
crossings on a way to it: from device to device, or between XLA and the functions of the host. And
there is what it *waits for*: the operations on the ways to it that can take as long as others let
them wait, such as taking an element from a queue. Operations of one device, depth and set of waits
make up a segment, one XLA program; calls on the host are steps of their own. Nothing therefore
waits for what it does not need: a step that puts into a queue what another part of it takes out
again cannot deadlock, and a device makes no more calls than there are crossings.

Stages are numbered so that each comes behind all that it needs. If what they wait for only grows
along a plan, they are taken in this order; else each begins as soon as those it needs are done.

XLA's compile time grows faster than the program: 10,000 mixed equations took 163 s as one program,
50 s in pieces of 1,000 and 21 s in pieces of 100, which also ran three times as fast as the former.
So what is longer than a cap, below which fusing pays, is cut into pieces much smaller than that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from jflow.cluster import Device
from jflow.errors import UnimplementedError
from jflow.graph import Operation, ResourceRef, Tensor, VariableRef
from jflow.graph.primitives import (
    HOMES,
    calls_client,
    check_p,
    constant_p,
    group_p,
    is_on_host,
    may_wait,
)
from jflow.partition.nans import may_be_nan, nan_attributes
from jflow.partition.prune import control_sources
from jflow.partition.sizes import needs
from jflow.partition.state import StateUse, analyse, varying_reads
from jflow.plan import (
    CALLBACK,
    NAN_CHECK,
    VARYING,
    Call,
    Feed,
    Fetch,
    Instruction,
    Plan,
    Program,
    Recv,
    ResourceSpec,
    Run,
    Send,
    Slot,
    VariableKey,
    VariableSpec,
)
from jflow.values import as_strings, is_known, unwrapping
from jflow.xla import internals

MAX_SEGMENT_OPS = 1_000
PIECE_OPS = 125

Keep = Callable[[np.ndarray[Any, Any]], str]
"""Keeps an array for the workers and says under which digest."""

_Value = Tensor | Operation
"""What crosses from device to device: a tensor, or the signal that an operation has run."""


class _Stage(NamedTuple):
    """What tells stages apart; they come in the order of these tuples."""

    n_waits: int
    order: tuple[int, ...]
    depth: int
    waits: frozenset[int]

    def behind(self) -> _Stage:
        """The first stage on another device that can have what this one makes."""
        return self._replace(depth=self.depth + 1)


_NOTHING: frozenset[int] = frozenset()
_FIRST = _Stage(0, (), 0, _NOTHING)


@dataclass(frozen=True)
class Segment:
    """A pure program cut out of the graph.

    It takes the old values of `reads`, then `inputs`, and gives the new values of `writes`,
    then `outputs`.
    """

    device: Device
    ops: tuple[Operation, ...]
    reads: tuple[VariableRef, ...]
    inputs: tuple[Tensor, ...]
    writes: tuple[VariableRef, ...]
    outputs: tuple[Tensor, ...]

    @property
    def donated(self) -> tuple[int, ...]:
        """Numbers of the program's arguments whose memory its results may take."""
        return tuple(i for i, ref in enumerate(self.reads) if ref in self.writes)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to compute."""
        has_effects = any(op.eqn.effects for op in self.ops)
        return not self.writes and not self.outputs and not has_effects


Partition = tuple[Plan, ...]
"""A plan for each device that has something to do."""


def partition(
    ops: Sequence[Operation],
    placement: Mapping[Operation, Device],
    fed: Sequence[Tensor],
    fetched: Sequence[Tensor],
    lower: Callable[[Segment], Program],
    keep: Keep,
    max_segment_ops: int = MAX_SEGMENT_OPS,
    *,
    owner: str = "",
) -> Partition:
    """Cuts operations into a plan for each device.

    Args:
      ops: what must run, in the graph's order.
      placement: a device for each of them.
      fed: tensors whose values come with the step, by their index.
      fetched: tensors whose values the step gives back, by their index; none of them is fed.
      lower: makes the program of a segment that is not empty.
      keep: keeps a constant host tensor.
      max_segment_ops: from which length on to cut a segment into pieces.
      owner: who the resources belong to that are not shared.
    """
    running = [op for op in ops if op.eqn.primitive not in HOMES | {group_p}]
    splitter = _Splitter(running, placement, fed, fetched)
    return splitter.plans(lower, keep, owner, max_segment_ops)


class _Splitter:
    """The facts about a placed graph that each plan is made from."""

    def __init__(
        self,
        ops: Sequence[Operation],
        placement: Mapping[Operation, Device],
        fed: Sequence[Tensor],
        fetched: Sequence[Tensor],
    ) -> None:
        self.ops = ops
        self.placement = placement
        self.feeds = {tensor: index for index, tensor in enumerate(fed)}
        self.fetched = fetched
        callbacks = [op for op in ops if calls_client(op.eqn)]
        self.callbacks = {op: number for number, op in enumerate(callbacks)}
        self.needs = needs(ops, fed)
        running = frozenset(ops)
        self.sources = {op: self._sources(op, running) for op in ops}
        stages = self._stages()
        every = sorted(set(stages.values()))
        self.in_a_row = all(one.waits <= other.waits for one, other in pairwise(every))
        arrivals = {}
        if not self.in_a_row:
            arrivals = {op: stage.behind() for op, stage in stages.items()}
            every = sorted({_FIRST, *every, *arrivals.values()})
        numbers = {stage: number for number, stage in enumerate(every)}
        self.stages = {op: numbers[stage] for op, stage in stages.items()}
        self.arrivals = {op: numbers[stage] for op, stage in arrivals.items()}

    def _sources(self, op: Operation, running: Collection[Operation]) -> list[_Value]:
        """What an operation waits for, feeds excepted."""
        data = [tensor for tensor in self.needs[op] if tensor not in self.feeds]
        return [*data, *(source for source in control_sources(op) if source in running)]

    def _stages(self) -> dict[Operation, _Stage]:
        """The stage of each operation."""
        stages: dict[Operation, _Stage] = {}
        for number, op in enumerate(self.ops):
            depth = 0
            waits = _NOTHING
            for source in self.sources[op]:
                producer = _producer(source)
                before = stages[producer]
                depth = max(depth, before.depth + self._crosses(producer, op))
                if before.waits:
                    waits |= before.waits
            if may_wait(op.eqn):
                waits |= {number}
            stages[op] = _Stage(len(waits), tuple(sorted(waits)), depth, waits)
        return stages

    def _crosses(self, producer: Operation, op: Operation) -> bool:
        return self.placement[producer] != self.placement[op] or (
            is_on_host(producer.eqn) != is_on_host(op.eqn)
        )

    def plans(
        self, lower: Callable[[Segment], Program], keep: Keep, owner: str, max_segment_ops: int
    ) -> Partition:
        groups: dict[tuple[Device, int, bool], list[Operation]] = {}
        for op in self.ops:
            key = self.placement[op], self.stages[op], is_on_host(op.eqn)
            groups.setdefault(key, []).append(op)
        builders = {device: _PlanBuilder(device, owner) for device, _, _ in sorted(groups)}
        segments = [
            (device, stage, piece)
            for (device, stage, _), group in sorted(groups.items(), key=lambda item: item[0])
            for piece in _pieces(group, max_segment_ops)
        ]
        segment_of = {op: i for i, (_, _, part) in enumerate(segments) for op in part}
        crossings = self._crossings()
        escaping = {value for value, _ in crossings if isinstance(value, Tensor)}
        escaping.update(self.fetched)
        escaping.update(
            tensor
            for op in self.ops
            for tensor in self.needs[op]
            if tensor not in self.feeds and segment_of[tensor.op] != segment_of[op]
        )
        self._add_arrivals(builders, crossings)
        for device, stage, part in segments:
            if is_on_host(part[0].eqn):
                builders[device].add_calls(stage, part, keep, self.callbacks)
            else:
                needed = dict.fromkeys(tensor for op in part for tensor in self.needs[op])
                fed = set(self.feeds)
                if internals.debug_nans.value:
                    # All leave the program, so that the error names the operation that made it.
                    looked_at = may_be_nan(part, fed)
                    leaving = escaping.union(looked_at)
                    builders[device].add_run(stage, part, needed, leaving, fed, lower)
                    checked = escaping - self._leaves_for_callbacks_alone(segment_of)
                    builders[device].add_nan_check(stage, looked_at, checked)
                else:
                    builders[device].add_run(stage, part, needed, escaping, fed, lower)
        self._add_departures(builders, crossings)
        return tuple(
            builder.plan(() if self.in_a_row else self._after(builder))
            for builder in builders.values()
        )

    def _leaves_for_callbacks_alone(self, segment_of: Mapping[Operation, int]) -> set[Tensor]:
        """What leaves its program for callbacks only, which may look at NaN as under `jax.jit`."""
        elsewhere = {
            tensor
            for op in self.ops
            for tensor in self.needs[op]
            if op not in self.callbacks
            and tensor not in self.feeds
            and segment_of[tensor.op] != segment_of[op]
        }
        called = {tensor for op in self.callbacks for tensor in op.inputs}
        return called - elsewhere - set(self.fetched)

    def _after(self, builder: _PlanBuilder) -> tuple[tuple[int, ...], ...]:
        """See `Plan.after`."""
        needed: list[set[int]] = [set() for _ in range(builder.n_stages)]
        for op in self.ops:
            if self.placement[op] == builder.device:
                before = needed[self.stages[op]]
                for source in map(_producer, self.sources[op]):
                    is_here = self.placement[source] == builder.device
                    before.add(self.stages[source] if is_here else self.arrivals[source])
                if any(tensor in self.feeds for tensor in self.needs[op]):
                    before.add(0)
        return tuple(tuple(sorted(stages - {i})) for i, stages in enumerate(needed))

    def _crossings(self) -> dict[tuple[_Value, Device], int]:
        """(value, target) → the stage that takes it; their order numbers the edges.

        That is the first one that needs it. If stages begin as they can, it is one of its own, for
        none of those that need it need wait for another one of them.
        """
        crossings: dict[tuple[_Value, Device], int] = {}
        for op in self.ops:
            target, stage = self.placement[op], self.stages[op]
            for source in self.sources[op]:
                producer = _producer(source)
                if self.placement[producer] != target:
                    taking = self.arrivals.get(producer, stage)
                    first = crossings.setdefault((source, target), taking)
                    crossings[source, target] = min(first, taking)
        return crossings

    def _add_arrivals(
        self,
        builders: dict[Device, _PlanBuilder],
        crossings: dict[tuple[_Value, Device], int],
    ) -> None:
        first_use: dict[tuple[Device, Tensor], int] = {}
        for op in self.ops:
            for tensor in self.needs[op]:
                if tensor in self.feeds:
                    key = (self.placement[op], tensor)
                    stage = self.stages[op] if self.in_a_row else 0
                    first_use[key] = min(first_use.get(key, stage), stage)
        for (device, tensor), stage in first_use.items():
            builder = builders[device]
            builder.add(stage, Feed(self.feeds[tensor], builder.slot(tensor)))
        for edge, ((value, target), stage) in enumerate(crossings.items()):
            slot = builders[target].slot(value) if isinstance(value, Tensor) else None
            source = self.placement[_producer(value)]
            builders[target].add(stage, Recv(edge, source, slot))

    def _add_departures(
        self,
        builders: dict[Device, _PlanBuilder],
        crossings: dict[tuple[_Value, Device], int],
    ) -> None:
        for edge, (value, target) in enumerate(crossings):
            producer = _producer(value)
            builder = builders[self.placement[producer]]
            slot = builder.slot(value) if isinstance(value, Tensor) else None
            builder.add(self.stages[producer], Send(edge, target, slot))
        for index, tensor in enumerate(self.fetched):
            builder = builders[self.placement[tensor.op]]
            builder.add(self.stages[tensor.op], Fetch(builder.slot(tensor), index))


def _pieces(group: Sequence[Operation], max_segment_ops: int) -> Iterator[tuple[Operation, ...]]:
    size = max_segment_ops if len(group) <= max_segment_ops else min(PIECE_OPS, max_segment_ops)
    for start in range(0, len(group), size):
        yield tuple(group[start : start + size])


def _sizes(ref: VariableRef) -> tuple[int, ...]:
    return tuple(size if is_known(size) else VARYING for size in ref.shape)


def _producer(value: _Value) -> Operation:
    return value.op if isinstance(value, Tensor) else value


def _callback_attributes(op: Operation, number: int) -> str:
    results = []
    for tensor in op.outputs:
        unwrap = unwrapping(tensor.aval)
        aval = tensor.aval if unwrap is None else unwrap.out_avals[0]
        sizes = [int(size) if is_known(size) else None for size in aval.shape or ()]
        results.append([aval.dtype.name, sizes])
    is_conditional = op.eqn.params["is_conditional"]
    if is_conditional and any(None in sizes for _, sizes in results):
        raise UnimplementedError(
            f"{op.name!r}: {op.eqn.params['callback']} is inside a branch and gives arrays of "
            "sizes that are not known before it runs; call it outside of the branch",
            op=op.name,
        )
    return json.dumps({"number": number, "results": results, "is_conditional": is_conditional})


class _PlanBuilder:
    """A plan in the making: numbers for slots and state, and steps by stage."""

    def __init__(self, device: Device, owner: str) -> None:
        self.device = device
        self._owner = owner
        self._slots: dict[Tensor, Slot] = {}
        self._variables: dict[VariableRef, int] = {}
        self._resources: dict[ResourceRef, int] = {}
        self._stages: dict[int, list[Instruction]] = {}

    @property
    def n_stages(self) -> int:
        """How many stages there are up to the last one that has steps here."""
        return max(self._stages, default=-1) + 1

    def slot(self, tensor: Tensor) -> Slot:
        return self._slots.setdefault(tensor, len(self._slots))

    def _variable(self, ref: VariableRef) -> int:
        return self._variables.setdefault(ref, len(self._variables))

    def _resource(self, ref: ResourceRef) -> int:
        return self._resources.setdefault(ref, len(self._resources))

    def add(self, stage: int, instruction: Instruction) -> None:
        self._stages.setdefault(stage, []).append(instruction)

    def add_calls(
        self,
        stage: int,
        ops: tuple[Operation, ...],
        keep: Keep,
        callbacks: Mapping[Operation, int],
    ) -> None:
        for op in ops:
            outputs = tuple(self.slot(tensor) for tensor in op.outputs)
            if op.eqn.primitive is constant_p:
                call = Call("identity", (), outputs, (keep(op.eqn.params["value"]),), op=op.name)
            elif op.eqn.primitive is check_p:
                (report,) = (self.slot(tensor) for tensor in op.inputs)
                name = keep(as_strings(str(op.eqn.params["variable"])))
                call = Call("check_indices", (report,), (), (name,), op=op.name)
            elif op in callbacks:
                inputs = tuple(self.slot(tensor) for tensor in op.inputs)
                attributes = _callback_attributes(op, callbacks[op])
                call = Call(CALLBACK, inputs, outputs, attributes=attributes, op=op.name)
            else:
                inputs = tuple(self.slot(tensor) for tensor in op.inputs)
                params = op.eqn.params
                resources = tuple(map(self._resource, params["resources"]))
                function, attributes = params["function"], params["attributes"]
                call = Call(function, inputs, outputs, (), resources, attributes, op.name)
            self.add(stage, call)

    def add_run(
        self,
        stage: int,
        ops: tuple[Operation, ...],
        needed: Collection[Tensor],
        escaping: Collection[Tensor],
        fed: Collection[Tensor],
        lower: Callable[[Segment], Program],
    ) -> None:
        arriving = varying_reads(ops, needed)
        inside = {tensor for op in ops for tensor in op.outputs if tensor not in fed}
        inside.difference_update(arriving)
        inputs = tuple(tensor for tensor in needed if tensor not in inside)
        leaving = [t for op in ops for t in op.outputs if t in escaping]
        state: StateUse = analyse(ops, leaving, arriving)
        segment = Segment(self.device, ops, state.reads, inputs, state.writes, tuple(state.outputs))
        self.add(
            stage,
            Run(
                program=None if segment.is_empty else lower(segment),
                reads=tuple(self._variable(ref) for ref in state.reads),
                inputs=tuple(self.slot(tensor) for tensor in inputs),
                writes=tuple(self._variable(ref) for ref in state.writes),
                initializes=tuple(self._variable(ref) for ref in state.initialized),
                outputs=tuple(self.slot(tensor) for tensor in state.outputs),
                before=tuple((self._variable(r), self.slot(t)) for r, t in state.before),
                after=tuple((self._variable(r), self.slot(t)) for r, t in state.after),
                op=next((t.op for t in (*state.written.values(), *leaving)), ops[-1]).name,
            ),
        )

    def add_nan_check(
        self, stage: int, looked_at: Sequence[Tensor], escaping: Collection[Tensor]
    ) -> None:
        if looked_at:
            slots = tuple(self.slot(tensor) for tensor in looked_at)
            self.add(stage, Call(NAN_CHECK, slots, attributes=nan_attributes(looked_at, escaping)))

    def plan(self, after: tuple[tuple[int, ...], ...]) -> Plan:
        return Plan(
            self.device,
            len(self._slots),
            tuple(
                VariableSpec(VariableKey(ref.container, ref.name), ref.dtype.name, _sizes(ref))
                for ref in self._variables
            ),
            tuple(tuple(self._stages.get(stage, ())) for stage in range(self.n_stages)),
            tuple(self._spec(ref) for ref in self._resources),
            after,
        )

    def _spec(self, ref: ResourceRef) -> ResourceSpec:
        owner = "" if ref.is_shared else self._owner
        return ResourceSpec(ref.kind, ref.container, ref.name, owner, ref.definition)
