"""Partition of a placed graph into plans, by device and by stage.

The XLA operations of one device and stage (`stages.py`) form a segment, which becomes one program;
host calls are separate instructions. The number of calls on a device is therefore bounded by the
number of crossings.

XLA's compile time grows faster than the program: 10,000 mixed equations took 163 s as one program,
50 s in pieces of 1,000 and 21 s in pieces of 100, which also ran three times as fast as the first.
Segments above a cap, below which fusion pays, are therefore cut into pieces much smaller than it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from jflow.base.cluster import Device
from jflow.base.values import Array, HostArray, is_known, is_symbol, symbols_of
from jflow.compiler.graph import Operation, Tensor
from jflow.compiler.graph.bundle import Bundle
from jflow.compiler.graph.primitives import (
    HANDLES,
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
from jflow.compiler.partition.stages import UNKNOWN_LENGTHS, Lengths, Stages, Value, producer_of
from jflow.plan import Feed, Fetch, Plan, Recv, Send


def needs(ops: Sequence[Operation], fed: Iterable[Tensor]) -> Mapping[Operation, Sequence[Tensor]]:
    """Returns the tensors that each operation needs: its inputs, and its size sources.

    Args:
      ops: in the graph's order.
      fed: tensors whose values are inputs of the step.
    """
    size_sources: dict[str, Tensor] = {}
    for tensor in fed:
        _add_size_source(size_sources, tensor)
    needed: dict[Operation, Sequence[Tensor]] = {}
    for op in ops:
        needed[op] = op.inputs
        # An input may have a size such as `n + m`, from which a program cannot tell n and m.
        sizes = _dims(op.inputs) if size_sources else ()
        named = _symbols((*_dims(op.outputs), op.eqn.params.get("dim", 0), *sizes))
        if named:
            seen = {str(dim) for dim in sizes if is_symbol(dim)}
            # The order must not depend on the names of symbols, which are numbered by process.
            sources = (size_sources[x] for x in named if x not in seen and x in size_sources)
            needed[op] = tuple(dict.fromkeys((*op.inputs, *sources)))
            for tensor in op.outputs:
                _add_size_source(size_sources, tensor)
    return needed


def _add_size_source(size_sources: dict[str, Tensor], tensor: Tensor) -> None:
    """Records the sizes that a program can read from a tensor."""
    if not isinstance(tensor.aval, HostArray):
        for dim in _dims([tensor]):
            if is_symbol(dim):
                size_sources.setdefault(str(dim), tensor)


def _dims(tensors: Iterable[Tensor]) -> tuple[Any, ...]:
    return tuple(dim for tensor in tensors for dim in tensor.aval.shape or ())


def _symbols(dims: Iterable[Any]) -> dict[str, None]:
    """Returns the names in unknown sizes; names of functions such as max are harmless."""
    unknown = [dim for dim in dims if not is_known(dim)]
    return dict.fromkeys(name for dim in unknown for name in symbols_of(dim)) if unknown else {}


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
    return _Splitter(running, placement, fed, fetched, checks_nans, lengths).partition(
        max_segment_ops, owner
    )


class _Splitter:
    """The analysis of a placed graph from which all plans are made."""

    def __init__(
        self,
        ops: Sequence[Operation],
        placement: Mapping[Operation, Device],
        fed: Sequence[Tensor],
        fetched: Sequence[Tensor],
        checks_nans: bool,
        lengths: Lengths,
    ) -> None:
        self.ops = ops
        self.placement = placement
        self.feeds = {tensor: index for index, tensor in enumerate(fed)}
        self.fetched = fetched
        self.checks_nans = checks_nans
        self.callbacks = tuple(op for op in ops if calls_client(op.eqn))
        self.needs = needs(ops, fed)
        self.stages = Stages(ops, placement, self.needs, self.feeds, lengths)

    def partition(self, max_segment_ops: int, owner: str) -> Partition:
        groups: dict[tuple[Device, int, bool], list[Operation]] = {}
        for op in self.ops:
            key = self.placement[op], self.stages.number[op], is_on_host(op.eqn)
            groups.setdefault(key, []).append(op)
        contents = Contents({op: number for number, op in enumerate(self.callbacks)})
        pieces = [
            (device, stage, piece)
            for (device, stage, _), group in sorted(groups.items(), key=lambda item: item[0])
            for piece in _pieces(group, max_segment_ops)
        ]
        piece_of = {op: i for i, (_, _, piece) in enumerate(pieces) for op in piece}
        crossings = self._crossings()
        bundles = self._bundles(crossings, piece_of)
        crossings = together(crossings, bundles)
        builders = {
            device: PlanBuilder(device, contents, owner, arriving(bundles, device))
            for device in sorted({device for device, _, _ in groups})
        }
        escaping = {value for value, _ in crossings if isinstance(value, Tensor)}
        escaping.update(self.fetched)
        escaping.update(
            tensor
            for op in self.ops
            for tensor in self.needs[op]
            if tensor not in self.feeds and piece_of[tensor.op] != piece_of[op]
            if (tensor, self.placement[op]) not in bundles
        )
        own_bundles = bundles_by_program(piece_of, crossings)
        escaping.update(
            t for one in chain(*own_bundles.values()) if not is_inside(one) for t in one.tensors
        )
        # Instructions of a stage run in the order in which they are added: arrivals, then
        # computation, then departures.
        self._add_arrivals(builders, crossings)
        for number, (device, stage, piece) in enumerate(pieces):
            if is_on_host(piece[0].eqn):
                builders[device].add_calls(stage, piece, self.feeds)
            else:
                bundles_here = own_bundles.get(number, ())
                inside = [one for one in bundles_here if is_inside(one)]
                self._add_run(builders[device], stage, piece, escaping, inside, piece_of)
                for one in bundles_here:
                    if not is_inside(one):
                        builders[device].add_bundling(stage, one)
        self._add_departures(builders, crossings)
        plans = tuple(
            builder.plan(() if self.stages.is_sequential else self._stage_dependencies(builder))
            for builder in builders.values()
        )
        edges = tuple(value for value, _ in crossings)
        return Partition(plans, contents.segments, contents.constants, self.callbacks, edges)

    def _add_run(
        self,
        builder: PlanBuilder,
        stage: int,
        ops: Sequence[Operation],
        escaping: set[Tensor],
        bundles: Collection[Bundle],
        piece_of: Mapping[Operation, int],
    ) -> None:
        needed = dict.fromkeys(tensor for op in ops for tensor in self.needs[op])
        if not self.checks_nans:
            builder.add_run(stage, ops, needed, escaping, self.feeds, bundles)
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
            and piece_of[tensor.op] != piece_of[op]
        }
        called = {tensor for op in self.callbacks for tensor in op.inputs}
        return called - elsewhere - set(self.fetched)

    def _stage_dependencies(self, builder: PlanBuilder) -> tuple[tuple[int, ...], ...]:
        """Returns the `Plan.after` of a device."""
        number, arrival = self.stages.number, self.stages.arrival
        needed: list[set[int]] = [set() for _ in range(builder.n_stages)]
        for op in self.ops:
            if self.placement[op] == builder.device:
                before = needed[number[op]]
                for source in map(producer_of, self.stages.sources[op]):
                    is_here = self.placement[source] == builder.device
                    before.add(number[source] if is_here else arrival[source])
                if any(tensor in self.feeds for tensor in self.needs[op]):
                    before.add(0)
        return tuple(tuple(sorted(stages - {i})) for i, stages in enumerate(needed))

    def _bundles(self, crossings: Crossings, piece_of: Mapping[Operation, int]) -> Bundles:
        """Returns the bundles to send; none if every result is checked for NaN."""
        if self.checks_nans:
            return {}
        number = {op: i for i, op in enumerate(self.ops)}
        on_host = (op for op in self.ops if is_on_host(op.eqn))
        in_calls = {(one, self.placement[op]) for op in on_host for one in self.needs[op]}
        return bundles_of(crossings, number, piece_of, in_calls)

    def _crossings(self) -> Crossings:
        """Maps (value, target) to the stage that receives the value; the order gives edge numbers.

        In sequential order that is the first stage that needs the value. In dataflow order it is a
        separate stage, because the stages that need the value do not wait for each other.
        """
        crossings: Crossings = {}
        for op in self.ops:
            target, stage = self.placement[op], self.stages.number[op]
            for source in self.stages.sources[op]:
                producer = producer_of(source)
                if self.placement[producer] != target:
                    taking = self.stages.arrival.get(producer, stage)
                    first = crossings.setdefault((source, target), taking)
                    crossings[source, target] = min(first, taking)
        return crossings

    def _add_arrivals(
        self,
        builders: Mapping[Device, PlanBuilder],
        crossings: Crossings,
    ) -> None:
        first_use: dict[tuple[Device, Tensor], int] = {}
        for op in self.ops:
            for tensor in self.needs[op]:
                if tensor in self.feeds:
                    key = (self.placement[op], tensor)
                    stage = self.stages.number[op] if self.stages.is_sequential else 0
                    first_use[key] = min(first_use.get(key, stage), stage)
        for (device, tensor), stage in first_use.items():
            builder = builders[device]
            builder.add(stage, Feed(self.feeds[tensor], builder.slot(tensor)))
        for edge, ((value, target), stage) in enumerate(crossings.items()):
            slot = None if isinstance(value, Operation) else builders[target].slot(value)
            source = self.placement[_producer_of(value)]
            builders[target].add(stage, Recv(edge, source, slot))

    def _add_departures(
        self,
        builders: Mapping[Device, PlanBuilder],
        crossings: Crossings,
    ) -> None:
        for edge, (value, target) in enumerate(crossings):
            producer = _producer_of(value)
            builder = builders[self.placement[producer]]
            slot = None if isinstance(value, Operation) else builder.slot(value)
            builder.add(self.stages.number[producer], Send(edge, target, slot))
        for index, tensor in enumerate(self.fetched):
            builder = builders[self.placement[tensor.op]]
            builder.add(self.stages.number[tensor.op], Fetch(builder.slot(tensor), index))


def _producer_of(value: Value | Bundle) -> Operation:
    return producer_of(value.tensors[0] if isinstance(value, Bundle) else value)


def _pieces(group: Sequence[Operation], max_segment_ops: int) -> Iterator[tuple[Operation, ...]]:
    # In the graph's order, so that no piece depends on a later one. Reads and assignments give XLA
    # nothing to compile; an optimizer of many variables has more of them than of all else.
    n_compiled = sum(op.eqn.primitive not in _MOVES for op in group)
    size = len(group) if n_compiled <= max_segment_ops else min(PIECE_OPS, max_segment_ops)
    for start in range(0, len(group), size):
        yield tuple(group[start : start + size])
