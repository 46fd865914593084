"""Partition of a placed graph into plans, by device and by stage.

The XLA operations of one device and stage (`stages.py`) form a segment, which becomes one program;
host calls are separate instructions. The number of calls on a device is therefore bounded by the
number of crossings.

XLA's compile time grows faster than the program: 10,000 mixed equations took 163 s as one program,
50 s in pieces of 1,000 and 21 s in pieces of 100, which also ran three times as fast as the first.
Segments above a cap, below which fusion pays, are therefore cut into pieces much smaller than it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from jflow.base.cluster import Device
from jflow.base.values import Array
from jflow.compiler.graph import Operation, Tensor
from jflow.compiler.graph.bundle import Bundle
from jflow.compiler.graph.open_loop import OpenLoop
from jflow.compiler.graph.primitives import (
    HANDLES,
    LOOP_ENDS,
    assign_p,
    calls_client,
    group_p,
    initialize_p,
    is_on_host,
    read_p,
)
from jflow.compiler.partition.builder import Contents, PlanBuilder, Segment, may_be_nan
from jflow.compiler.partition.bundles import (
    Bundles,
    Crossings,
    arriving,
    bundles_by_program,
    bundles_of,
    is_inside,
    together,
)
from jflow.compiler.partition.loops import LoopBody, body_of
from jflow.compiler.partition.needs import needs
from jflow.compiler.partition.stages import (
    UNKNOWN_LENGTHS,
    Lengths,
    Stages,
    Value,
    is_computed_in,
    loops_of,
    producer_of,
    unit_of,
)
from jflow.compiler.partition.strides import with_strides
from jflow.plan import Feed, Fetch, Plan, Recv, Send

MAX_SEGMENT_OPS = 1_000
PIECE_OPS = 125

_MOVES = frozenset({read_p, assign_p, initialize_p})
"""The primitives that only move values between variables and programs."""


@dataclass(frozen=True)
class Partition:
    """A step divided into plans, whose programs are named but not lowered yet.

    Attributes:
      plans: one for each device that takes part.
      segments: the segments by the names of their programs in the plans.
      constants: the host tensors that calls take, likewise.
      callbacks: the operations that call the client; plans refer to them by position.
      edges: the values that plans send each other, by the number of their edge.
    """

    plans: tuple[Plan, ...]
    segments: Mapping[str, Segment]
    constants: Mapping[str, Array]
    callbacks: tuple[Operation, ...]
    edges: tuple[Value | Bundle, ...] = ()


def partition(
    ops: Sequence[Operation],
    placement: Mapping[Operation, Device],
    fed: Sequence[Tensor],
    fetched: Sequence[Tensor],
    *,
    max_segment_ops: int = MAX_SEGMENT_OPS,
    lengths: Lengths = UNKNOWN_LENGTHS,
    checks_nans: bool = False,
    owner: str = "",
) -> Partition:
    """Cuts operations into a plan for each device.

    Args:
      ops: the operations to run, in the graph's order.
      placement: a device for each of them.
      fed: tensors whose values are inputs of the step, by index.
      fetched: tensors whose values the step returns, by index; none of them is fed.
      max_segment_ops: segments with more operations are cut into pieces.
      lengths: tells which operations are long, and which are quick.
      checks_nans: whether the plans check the results of programs for NaN.
      owner: the session that owns resources that are not shared.

    Raises:
      InvalidArgumentError, UnimplementedError: if the operations cannot run in one step.
    """
    running = [op for op in ops if op.eqn.primitive not in HANDLES | {group_p}]
    callbacks = tuple(op for op in running if calls_client(op.eqn))
    contents = Contents({op: number for number, op in enumerate(callbacks)})
    cut = _Settings(max_segment_ops, lengths, checks_nans, owner, contents)
    plans = with_strides(_Splitter(running, placement, fed, fetched, cut).plans())
    edges = tuple(contents.edges)
    return Partition(plans, contents.segments, contents.constants, callbacks, edges)


@dataclass(frozen=True)
class _Settings:
    """The settings of a partition, and what it collects, for the step and bodies of its loops.

    Attributes:
      max_segment_ops, lengths, checks_nans, owner: as for `partition`.
      contents: collects what the plans refer to by name or number.
    """

    max_segment_ops: int
    lengths: Lengths
    checks_nans: bool
    owner: str
    contents: Contents


class _Splitter:
    """The analysis of a placed graph, or of the body of a loop, from which plans are made.

    Args:
      ops: the operations, in the graph's order.
      placement: a device for each of them.
      fed: tensors whose values are inputs.
      fetched: tensors whose values are results.
      cut: the settings.
      body: the body of a loop, which the operations are; None if they are a step.
    """

    def __init__(
        self,
        ops: Sequence[Operation],
        placement: Mapping[Operation, Device],
        fed: Sequence[Tensor],
        fetched: Sequence[Tensor],
        cut: _Settings,
        body: LoopBody | None = None,
    ) -> None:
        self.ops = ops
        self.placement = placement
        self.feeds = {tensor: index for index, tensor in enumerate(fed)}
        self.fetched = fetched
        self.cut = cut
        self.body = body
        self.needs = needs(ops, fed) if body is None else body.needs
        self.stages = Stages(ops, placement, self.needs, self.feeds, cut.lengths, self._level)

    def plans(self) -> tuple[Plan, ...]:
        """Returns a plan for each device."""
        contents = self.cut.contents
        pieces = self._pieces()
        piece_of = {op: i for i, one in enumerate(pieces) for op in one.ops}
        crossings = self._crossings()
        bundles = self._bundles(crossings, piece_of)
        crossings = together(crossings, bundles)
        first_edge = len(contents.edges)
        contents.edges += [value for value, _ in crossings]
        builders = {
            device: PlanBuilder(device, contents, self.cut.owner, arriving(bundles, device))
            for device in sorted({self.placement[op] for op in self.ops})
        }
        escaping = {value for value, _ in crossings if isinstance(value, Tensor)}
        escaping.update(self.fetched)
        escaping.update(
            tensor
            for op in self.ops
            for tensor in self._taken(op)
            if tensor not in self.feeds and piece_of.get(tensor.op) != piece_of.get(op)
            if (tensor, self.placement[op]) not in bundles
        )
        own_bundles = bundles_by_program(piece_of, crossings)
        escaping.update(
            t for one in chain(*own_bundles.values()) if not is_inside(one) for t in one.tensors
        )
        # Instructions of a stage run in the order in which they are added: arrivals, then
        # computation, then departures.
        self._add_arrivals(builders, crossings, first_edge)
        donated = self._donated(crossings, piece_of)
        for number, (device, stage, ops) in enumerate(pieces):
            if is_on_host(ops[0].eqn):
                builders[device].add_calls(stage, ops, self.feeds)
            else:
                bundles_here = own_bundles.get(number, ())
                inside = [one for one in bundles_here if is_inside(one)]
                self._add_run(builders[device], stage, ops, escaping, inside, piece_of, donated)
                for one in bundles_here:
                    if not is_inside(one):
                        builders[device].add_bundling(stage, one)
        self._add_loops(builders)
        self._add_departures(builders, crossings, first_edge)
        if self.body is not None:
            self._add_acknowledgements(builders)
        is_ordered = self.stages.is_sequential
        received = self._received(crossings)
        return tuple(
            builder.plan(
                () if is_ordered else self._stage_dependencies(builder, received),
                is_body=self.body is not None,
            )
            for builder in builders.values()
        )

    def _pieces(self) -> list[_Piece]:
        """Returns the programs and groups of host calls, in the order in which they run."""
        groups: dict[tuple[Device, int, bool], list[Operation]] = {}
        for op in self.ops:
            if op.eqn.primitive not in LOOP_ENDS and unit_of(op, self._level) is None:
                key = self.placement[op], self.stages.number[op], is_on_host(op.eqn)
                groups.setdefault(key, []).append(op)
        return [
            _Piece(device, stage, piece)
            for (device, stage, _), group in sorted(groups.items(), key=lambda item: item[0])
            for piece in _divided(group, self.cut.max_segment_ops)
        ]

    # Loops ------------------------------------------------------------------------------------

    @property
    def _level(self) -> OpenLoop | None:
        return None if self.body is None else self.body.loop

    def _add_loops(self, builders: Mapping[Device, PlanBuilder]) -> None:
        for loop, ops in loops_of(self.ops, self._level).items():
            number = self.cut.contents.new_loop()
            body = body_of(loop, ops, self.needs, self.placement)
            splitter = _Splitter(body.ops, self.placement, body.fed, body.fetched, self.cut, body)
            for plan in splitter.plans():
                stage = self.stages.number[ops[0]]
                builder = builders[plan.device]
                edges = self.cut.contents.edges
                builder.add(stage, body.instruction(number, plan, edges, builder))

    def _add_acknowledgements(self, builders: Mapping[Device, PlanBuilder]) -> None:
        """Makes devices wait for those that use what they send, so that these are not flooded.

        An iteration is under way on a device until the others have begun the last stage that takes
        something from it, or have sent it something from there.
        """
        last_taken: dict[tuple[Device, Device], int] = {}
        last_sent: dict[tuple[Device, Device], int] = {}
        for builder in builders.values():
            for stage, one in builder.transfers():
                if isinstance(one, Recv):
                    pair = one.source, builder.device
                    last_taken[pair] = max(stage, last_taken.get(pair, -1))
                else:
                    pair = builder.device, one.target
                    last_sent[pair] = max(stage, last_sent.get(pair, -1))
        last = max((builder.n_stages for builder in builders.values()), default=0)
        for (source, target), stage in last_taken.items():
            if last_sent.get((target, source), -1) < stage:
                edge = self._new_edge()
                builders[target].add(stage, Send(edge, source, None))
                builders[source].add(last, Recv(edge, target, None))

    def _new_edge(self) -> int:
        """Returns a new edge for a signal."""
        edges = self.cut.contents.edges
        edges.append(self.ops[-1])
        return len(edges) - 1

    def _donated(
        self, crossings: Crossings, piece_of: Mapping[Operation, int]
    ) -> frozenset[Tensor]:
        """Returns the carries that only the program takes which makes their next value.

        Nothing but the next iteration may use that value.
        """
        if self.body is None:
            return frozenset()
        users: dict[Tensor, set[int | None]] = {}
        for op in self.ops:
            for tensor in self.needs[op]:
                users.setdefault(tensor, set()).add(piece_of.get(op))
        sent = {value for value, _ in crossings}
        sent |= {t for one in sent if isinstance(one, Bundle) for t in one.tensors}
        n_fetches = Counter(self.fetched)
        donated = set()
        for carry, new in self.body.next.items():
            (old,) = carry.outputs
            maker = piece_of.get(new.op)
            if (
                users.get(old) == {maker}
                and users.get(new, {maker}) == {maker}
                and n_fetches[new] == 1
                and old not in sent
                and new not in sent
            ):
                donated.add(old)
        return frozenset(donated)

    def _add_run(
        self,
        builder: PlanBuilder,
        stage: int,
        ops: Sequence[Operation],
        escaping: set[Tensor],
        bundles: Collection[Bundle],
        piece_of: Mapping[Operation, int],
        donated: frozenset[Tensor],
    ) -> None:
        needed = dict.fromkeys(tensor for op in ops for tensor in self.needs[op])
        if not self.cut.checks_nans:
            builder.add_run(stage, ops, needed, escaping, self.feeds, bundles, donated)
            return
        # All of them leave the program, so that the error can name the operation that made NaN.
        checked = may_be_nan(ops, self.feeds)
        builder.add_run(stage, ops, needed, escaping.union(checked), self.feeds)
        results = escaping - self._leaves_for_callbacks_alone(piece_of)
        builder.add_nan_check(stage, checked, results)

    def _leaves_for_callbacks_alone(self, piece_of: Mapping[Operation, int]) -> set[Tensor]:
        """Returns the tensors that only callbacks use; as under `jax.jit`, these may be NaN."""
        elsewhere = {
            tensor
            for op in self.ops
            for tensor in self.needs[op]
            if not calls_client(op.eqn)
            and tensor not in self.feeds
            and piece_of.get(tensor.op) != piece_of.get(op)
        }
        called = {tensor for op in self.cut.contents.callbacks for tensor in op.inputs}
        return called - elsewhere - set(self.fetched)

    def _received(self, crossings: Crossings) -> Mapping[tuple[Value, Device], int]:
        """Returns the stage at which each value is received by a device."""
        return {
            (value, target): stage
            for (whole, target), stage in crossings.items()
            for value in (whole.tensors if isinstance(whole, Bundle) else (whole,))
        }

    def _stage_dependencies(
        self, builder: PlanBuilder, received: Mapping[tuple[Value, Device], int]
    ) -> tuple[tuple[int, ...], ...]:
        """Returns the `Plan.after` of a device."""
        number = self.stages.number
        needed: list[set[int]] = [set() for _ in range(builder.n_stages)]
        for op in self.ops:
            if self.placement[op] == builder.device:
                before = needed[number[op]]
                for source in self._outer_sources(op):
                    producer = producer_of(source)
                    is_here = self.placement[producer] == builder.device
                    before.add(number[producer] if is_here else received[source, builder.device])
                if any(tensor in self.feeds for tensor in self.needs[op]):
                    before.add(0)
        return tuple(tuple(sorted(stages - {i})) for i, stages in enumerate(needed))

    def _bundles(self, crossings: Crossings, piece_of: Mapping[Operation, int]) -> Bundles:
        """Returns the bundles to send; none if every result is checked for NaN."""
        if self.cut.checks_nans:
            return {}
        number = {op: i for i, op in enumerate(self.ops)}
        # Only programs make bundles and take them apart.
        apart = {
            (one, self.placement[op])
            for op in self.ops
            if op not in piece_of or is_on_host(op.eqn)
            for one in self._taken(op)
        }
        apart.update(
            (value, target)
            for value, target in crossings
            if isinstance(value, Tensor)
            if value.op not in piece_of or (self.body is not None and value is self.body.predicate)
        )
        return bundles_of(crossings, number, piece_of, apart)

    def _crossings(self) -> Crossings:
        """Maps (value, target) to the stage that receives the value; the order gives edge numbers.

        In sequential order and in the body of a loop, that is the first stage that needs the value.
        In dataflow order it is a separate stage, because the stages that need the value do not wait
        for each other.
        """
        crossings: Crossings = {}
        for op in self.ops:
            target, stage = self.placement[op], self.stages.number[op]
            for source in self._outer_sources(op):
                producer = producer_of(source)
                if self.placement[producer] != target:
                    taking = stage
                    if self.body is None:
                        taking = self.stages.arrival.get(producer, stage)
                    first = crossings.setdefault((source, target), taking)
                    crossings[source, target] = min(first, taking)
        predicate = None if self.body is None else self.body.own_predicate
        if predicate is not None:
            # All devices must know when the loop ends.
            for device in {self.placement[op] for op in self.ops} - {self.placement[predicate.op]}:
                crossings.setdefault((predicate, device), self.stages.arrival[predicate.op])
        return crossings

    def _taken(self, op: Operation) -> Sequence[Tensor]:
        """Returns what an operation needs, and what decides from outside of a loop if it runs."""
        needed = self.needs[op]
        for loop in (unit_of(op, self._level), self._level):
            gate = None if loop is None else loop.predicate
            if gate is not None and loop is not None and not is_computed_in(gate, loop):
                needed = (*needed, gate)
        return needed

    def _outer_sources(self, op: Operation) -> Iterator[Value]:
        """Yields what an operation depends on, except inside of an inner loop."""
        unit = unit_of(op, self._level)
        for source in self.stages.sources[op]:
            if unit is None or unit_of(producer_of(source), self._level) is not unit:
                yield source

    def _add_arrivals(
        self, builders: Mapping[Device, PlanBuilder], crossings: Crossings, first_edge: int
    ) -> None:
        first_use: dict[tuple[Device, Tensor], int] = {}
        for op in self.ops:
            for tensor in self._taken(op):
                if tensor in self.feeds:
                    key = (self.placement[op], tensor)
                    stage = self.stages.number[op] if self.stages.is_sequential else 0
                    first_use[key] = min(first_use.get(key, stage), stage)
        for (device, tensor), stage in first_use.items():
            builder = builders[device]
            builder.add(stage, Feed(self.feeds[tensor], builder.slot(tensor)))
        for carry, feed in () if self.body is None else self.body.carries.items():
            builder = builders[self.placement[carry]]
            stage = self.stages.number[carry]
            builder.add(stage, Feed(feed, builder.slot(carry.outputs[0])))
        for edge, ((value, target), stage) in enumerate(crossings.items(), first_edge):
            slot = None if isinstance(value, Operation) else builders[target].slot(value)
            source = self.placement[_producer_of(value)]
            builders[target].add(stage, Recv(edge, source, slot))

    def _add_departures(
        self, builders: Mapping[Device, PlanBuilder], crossings: Crossings, first_edge: int
    ) -> None:
        for edge, (value, target) in enumerate(crossings, first_edge):
            producer = _producer_of(value)
            builder = builders[self.placement[producer]]
            slot = None if isinstance(value, Operation) else builder.slot(value)
            builder.add(self.stages.number[producer], Send(edge, target, slot))
        for index, tensor in enumerate(self.fetched):
            builder = builders[self.placement[tensor.op]]
            builder.add(self.stages.number[tensor.op], Fetch(builder.slot(tensor), index))


def _producer_of(value: Value | Bundle) -> Operation:
    return producer_of(value.tensors[0] if isinstance(value, Bundle) else value)


class _Piece(NamedTuple):
    """Operations of one device and stage: one program, or calls of the host.

    Attributes:
      device, stage: likewise.
      ops: the operations, in the graph's order.
    """

    device: Device
    stage: int
    ops: tuple[Operation, ...]


def _divided(group: Sequence[Operation], max_segment_ops: int) -> Iterator[tuple[Operation, ...]]:
    # In the graph's order, so that no piece depends on a later one. Reads and assignments give XLA
    # nothing to compile; an optimizer of many variables has more of them than of all else.
    n_compiled = sum(op.eqn.primitive not in _MOVES for op in group)
    size = len(group) if n_compiled <= max_segment_ops else min(PIECE_OPS, max_segment_ops)
    for start in range(0, len(group), size):
        yield tuple(group[start : start + size])
