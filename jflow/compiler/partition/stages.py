"""Assigns the operations of a placed graph to stages.

Two properties determine the stage of an operation. Its *depth* is the largest number of crossings
on a path to it: from device to device, or between XLA and functions of the host. Its *blockers* are
the blocking operations on the paths to it, which may wait for other steps, such as taking an
element from a queue. An operation never waits for a blocker that it does not depend on, so a step
that puts an element into a queue and takes it out again in another part cannot deadlock.

Of the operations of one device that agree in both, those that other devices wait for are a stage
of their own, if the others take long: what is sent need not wait for them. Nothing in the first of
these two *phases* depends on the second, because what it depends on is waited for as well.

What a device could compute early, and only its own later stages need, joins the first of these if
it is quick: a program more costs more than it would gain while the device waits. Variables that
only they use are read there, too: an update copies a value that is held meanwhile.

An open loop is in one stage with all of its operations, on all devices that take part. What it
needs is in earlier stages, and what needs it in later ones, on the same device as well. Its body is
cut in the same way, by itself (`loops.py`).

Stages are numbered so that each comes after all stages that it needs. In *sequential* order they
run one after another. That is correct if the sets of blockers only grow along a plan, so that no
stage waits for something that later stages do not need as well. Otherwise they run in *dataflow*
order: each starts as soon as the stages that it needs have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from jflow.base.cluster import Device
from jflow.compiler.graph import Operation, Tensor
from jflow.compiler.graph.control import control_sources
from jflow.compiler.graph.open_loop import OpenLoop
from jflow.compiler.graph.primitives import (
    ACCESSES,
    assign_p,
    carry_p,
    check_p,
    is_blocking,
    is_on_host,
    read_p,
    update_p,
    value_or_p,
)

Value = Tensor | Operation
"""A value that crosses devices: a tensor, or the signal that an operation has run."""


class _Stage(NamedTuple):
    """The identity of a stage; stages are ordered as these tuples."""

    n_blockers: int
    order: tuple[int, ...]
    depth: int
    phase: int
    blockers: frozenset[int]

    def behind(self) -> _Stage:
        """Returns the earliest stage on another device that can use the results of this one."""
        return self._replace(depth=self.depth + 1, phase=0)


_NOTHING: frozenset[int] = frozenset()
_FIRST = _Stage(0, (), 0, 0, _NOTHING)


def never(_: Sequence[Operation]) -> bool:
    """Returns False: the default of the predicates in `Lengths`."""
    return False


class Lengths(NamedTuple):
    """Predicates on the run time of operations of one device as one program.

    Attributes:
      is_long: whether what other devices wait for is sent before they run.
      is_quick: whether they are not worth a program of their own.
    """

    is_long: Callable[[Sequence[Operation]], bool] = never
    is_quick: Callable[[Sequence[Operation]], bool] = never


UNKNOWN_LENGTHS = Lengths()


class Stages:
    """The stages of the operations of a step.

    Args:
      ops: the operations, in the graph's order.
      placement: a device for each of them.
      needs: the tensors that each of them needs.
      fed: tensors whose values are inputs of the step.
      lengths: tells which operations are long, and which are quick.
      level: the open loop of which they are one iteration, whose stages run in dataflow order;
        None if they are a step.

    Attributes:
      sources: the values that each operation depends on, without feeds.
      number: the stage of each operation.
      arrival: in dataflow order, the separate stage in which other devices receive the results of
        an operation.
      is_sequential: whether stages run one after another.
    """

    def __init__(
        self,
        ops: Sequence[Operation],
        placement: Mapping[Operation, Device],
        needs: Mapping[Operation, Sequence[Tensor]],
        fed: Collection[Tensor],
        lengths: Lengths = UNKNOWN_LENGTHS,
        level: OpenLoop | None = None,
    ) -> None:
        running = frozenset(ops)
        self._placement = placement
        self._unit = {op: unit_of(op, level) for op in ops}
        self.sources = {op: _sources(op, needs[op], fed, running) for op in ops}
        for op, initializer in _initializers(ops).items():
            self.sources[op].append(initializer)
        for op, predicate in [*self._predicates(ops, fed, level)]:
            self.sources[op].append(predicate)
        if level is None:
            stages = self._stages(ops)
            self._defer(ops, stages, lengths)
        else:
            stages = self._body_stages(ops, lengths, level)
        self._add_phases(ops, stages, lengths)
        every = sorted(set(stages.values()))
        self.is_sequential = level is None and all(
            one.blockers <= other.blockers for one, other in pairwise(every)
        )
        arrivals = {}
        if not self.is_sequential:
            arrivals = {op: stage.behind() for op, stage in stages.items()}
            every = sorted({_FIRST, *every, *arrivals.values()})
        numbers = {stage: number for number, stage in enumerate(every)}
        self.number = {op: numbers[stage] for op, stage in stages.items()}
        self.arrival = {op: numbers[stage] for op, stage in arrivals.items()}

    def _stages(self, ops: Sequence[Operation]) -> dict[Operation, _Stage]:
        # Invariant: an operation is not in an earlier stage than its sources, and is in a later
        # stage than sources across a crossing. Its blockers include those of its sources: either
        # there are more of them, which sorts it later, or the depth decides, which grows with each
        # crossing. A device that runs its stages in order has therefore sent everything that a
        # stage of another device receives before that stage starts.
        stages: dict[Operation, _Stage] = {}
        loops = loops_of(ops, None)
        for number, op in enumerate(ops):
            if op in stages:
                continue
            # The operations of a loop come one after another.
            unit = self._unit[op]
            together = (op,) if unit is None else loops[unit]
            depth = 0
            blockers = _NOTHING
            for one, source in self._outer_sources(together):
                producer = producer_of(source)
                before = stages[producer]
                depth = max(depth, before.depth + self._crosses(producer, one))
                if before.blockers:
                    blockers |= before.blockers
            if any(is_blocking(one.eqn) for one in together):
                blockers |= {number}
            in_order = tuple(sorted(blockers)) if blockers else ()
            stage = _Stage(len(blockers), in_order, depth, 0, blockers)
            stages.update(dict.fromkeys(together, stage))
        return stages

    def _outer_sources(self, together: Iterable[Operation]) -> Iterator[tuple[Operation, Value]]:
        """Yields the sources of operations, of a loop only those from outside of it."""
        for op in together:
            unit = self._unit[op]
            for source in self.sources[op]:
                if unit is None or self._unit.get(producer_of(source)) is not unit:
                    yield op, source

    def _body_stages(
        self, ops: Sequence[Operation], lengths: Lengths, level: OpenLoop
    ) -> dict[Operation, _Stage]:
        """Returns the stages of the body of a loop, by depth.

        Carries are before all others, so that they are sent as soon as they are there. What is
        quick and depends only on carries, on values from outside of the loop and on the number of
        the iteration, is computed where it is first used: it could be early, but a program of its
        own in each iteration would cost more. What the predicate decides is behind it.
        """
        gate, loops = level.predicate, loops_of(ops, level)
        depths: dict[Operation, int] = {}
        movable: set[Operation] = set()
        sent: set[Operation] = set()
        for op in ops:
            if op in depths:
                continue
            if op.eqn.primitive is carry_p and op.loop is level:
                depths[op] = -1
                movable.add(op)
                continue
            unit = self._unit[op]
            together = (op,) if unit is None else loops[unit]
            depth, is_decided = 0, False
            producers: list[Operation] = []
            for one, source in self._outer_sources(together):
                producer = producer_of(source)
                crosses = self._crosses(producer, one)
                depth = max(depth, depths[producer] + crosses)
                if source is gate:
                    is_decided = True
                else:
                    producers.append(producer)
                if crosses:
                    sent.add(producer)
            if is_decided and gate is not None:
                depth = max(depth, depths[gate.op] + 1)
            depths.update(dict.fromkeys(together, depth))
            is_free = is_decided or gate is None or gate.op not in self._unit
            if unit is None and is_free and movable.issuperset(producers):
                movable.update([op] if lengths.is_quick([op]) else ())
        self._sink(ops, depths, {op for op in movable - sent if op.eqn.primitive is not carry_p})
        return {op: _Stage(0, (), depth, 0, _NOTHING) for op, depth in depths.items()}

    def _sink(
        self, ops: Sequence[Operation], depths: dict[Operation, int], movable: set[Operation]
    ) -> None:
        """Moves operations to the depth of their first use."""
        first_use: dict[Operation, int] = {}
        for op in reversed(ops):
            if op in movable and op in first_use:
                depths[op] = first_use[op]
            for producer in map(producer_of, self.sources[op]):
                first_use[producer] = min(depths[op], first_use.get(producer, depths[op]))

    def _predicates(
        self, ops: Sequence[Operation], fed: Collection[Tensor], level: OpenLoop | None
    ) -> Iterator[tuple[Operation, Tensor]]:
        """Yields the operations that wait for a predicate, with it.

        A loop waits for a predicate from outside of it. In a body, all wait for the predicate of
        its loop but the carries and what computes it.
        """
        loops = loops_of(ops, level)
        for loop, members in loops.items():
            given = loop.predicate
            if given is not None and given not in fed and not is_computed_in(given, loop):
                yield from ((op, given) for op in members)
        gate = None if level is None else level.predicate
        if gate is None or gate.op not in self._unit:
            return
        before = {gate.op}
        for op in reversed(ops):
            if op in before:
                unit = self._unit[op]
                together = (op,) if unit is None else loops[unit]
                before.update(together)
                before.update(producer_of(one) for _, one in self._outer_sources(together))
        for op in ops:
            if op not in before and not (op.eqn.primitive is carry_p and op.loop is level):
                yield op, gate

    def _defer(
        self, ops: Sequence[Operation], stages: dict[Operation, _Stage], lengths: Lengths
    ) -> None:
        """Moves quick operations to a later stage of their device if only later stages need them.

        All operations of a device and stage move, or none: otherwise there is as much to run. They
        wait for the blockers of that stage then, for which all that needs them waits anyway.
        """
        groups: dict[tuple[Device, _Stage], list[Operation]] = {}
        for op in ops:
            groups.setdefault((self._placement[op], stages[op]), []).append(op)
        if len(groups) == len({device for device, _ in groups}):
            return
        users: dict[Operation, list[Operation]] = {}
        for op in ops:
            for producer in map(producer_of, self.sources[op]):
                users.setdefault(producer, []).append(op)
        others = _around_reads(ops)
        # Later stages first, because their operations may move on.
        for (device, stage), group in sorted(groups.items(), reverse=True, key=lambda it: it[0][1]):
            moved: dict[Operation, _Stage] = {}
            for op in reversed(group):
                at = [moved.get(user, stages[user]) for user in users.get(op, ())]
                if not at or not self._may_move(op, users[op]):
                    break
                first = min(at)
                if first == stage or not all(first.blockers <= one.blockers for one in at):
                    break
                if any(self._placement[user] != device for user in users[op]):
                    break
                before, after = others.get(op, ((), ()))
                if any(stages[one] > stage for one in before) or any(
                    stages[one] < first for one in after
                ):
                    break  # a read that would see another value
                moved[op] = first
            if len(moved) == len(group) and lengths.is_quick(group):
                stages.update(moved)

    def _add_phases(
        self, ops: Sequence[Operation], stages: dict[Operation, _Stage], lengths: Lengths
    ) -> None:
        """Moves operations that no other device waits for to the second phase of their stage."""
        placement = self._placement
        awaited: set[Operation] = set()
        for op in reversed(ops):
            for producer in map(producer_of, self.sources[op]):
                is_here = placement[producer] == placement[op]
                if not is_here or (op in awaited and stages[op] == stages[producer]):
                    awaited.add(producer)
        sending = {(placement[op], stages[op]) for op in awaited}
        left: dict[tuple[Device, _Stage], list[Operation]] = {}
        for op in ops:
            key = placement[op], stages[op]
            if op not in awaited and key in sending and self._unit[op] is None:
                left.setdefault(key, []).append(op)
        for rest in left.values():
            if lengths.is_long(rest):
                stages.update({op: stages[op]._replace(phase=1) for op in rest})

    def _crosses(self, producer: Operation, op: Operation) -> bool:
        return (
            self._placement[producer] != self._placement[op]
            or is_on_host(producer.eqn) != is_on_host(op.eqn)
            or self._unit[producer] is not self._unit[op]
        )

    def _may_move(self, op: Operation, users: Sequence[Operation]) -> bool:
        """Whether an operation may be moved to a later stage, into the programs that use it.

        A variable may be read later, because other steps may write it at any time. That it is read
        where it is used is better: a value that is held meanwhile is copied by the next update.
        """
        if any(self._unit[one] is not None for one in (op, *users)):
            return False
        is_read = op.eqn.primitive is read_p
        if not is_read and (op.eqn.effects or op.eqn.primitive in ACCESSES or is_on_host(op.eqn)):
            return False
        return not any(is_on_host(user.eqn) for user in users)


def unit_of(op: Operation, level: OpenLoop | None) -> OpenLoop | None:
    """Returns the loop that an operation of a step or body belongs to as a whole, if any.

    Args:
      op: the operation.
      level: the loop of the body; None for a step.
    """
    return None if op.loop is None else op.loop.below(level)


def loops_of(ops: Sequence[Operation], level: OpenLoop | None) -> dict[OpenLoop, list[Operation]]:
    """Returns the loops of a step or body, with their operations; arguments as for `unit_of`."""
    loops: dict[OpenLoop, list[Operation]] = {}
    for op in ops:
        unit = unit_of(op, level)
        if unit is not None:
            loops.setdefault(unit, []).append(op)
    return loops


def is_computed_in(tensor: Tensor, loop: OpenLoop) -> bool:
    """Whether a tensor is computed in the body of a loop, or of one inside of it."""
    within = tensor.op.loop
    return within is not None and within.is_in(loop)


def producer_of(value: Value) -> Operation:
    """Returns the operation that produces a value."""
    return value.op if isinstance(value, Tensor) else value


_Around = tuple[Sequence[Operation], Sequence[Operation]]
"""Operations before and after another one."""


def _around_reads(ops: Sequence[Operation]) -> dict[Operation, _Around]:
    """Returns, for each read, the writes of its variable before and after it in the graph."""
    writes: dict[object, list[Operation]] = {}
    reads: list[tuple[Operation, int]] = []
    for op in ops:
        if op.eqn.primitive in ACCESSES:
            of_variable = writes.setdefault(op.eqn.params["variable"], [])
            if op.eqn.primitive is read_p:
                reads.append((op, len(of_variable)))
            else:
                of_variable.append(op)
    around: dict[Operation, _Around] = {}
    for op, n_before in reads:
        of_variable = writes[op.eqn.params["variable"]]
        around[op] = of_variable[:n_before], of_variable[n_before:]
    return around


def _sources(
    op: Operation,
    needed: Sequence[Tensor],
    fed: Collection[Tensor],
    running: Collection[Operation],
) -> list[Value]:
    sources: dict[Value, None] = dict.fromkeys(tensor for tensor in needed if tensor not in fed)
    sources.update(dict.fromkeys(_waited_for(op)))
    for value in [*sources]:
        sources.update(dict.fromkeys(_checks_of(producer_of(value))))
    return [one for one in sources if isinstance(one, Tensor) or one in running]


def _initializers(ops: Sequence[Operation]) -> dict[Operation, Operation]:
    """Maps uses of a variable's initialized value to its initializer in the same step.

    Without it the value could be the one before. Both need the same initial value, so that nothing
    waits for a blocker that it does not depend on.
    """
    initializers: dict[tuple[object, Tensor], Operation] = {}
    by_variable: dict[Operation, Operation] = {}
    for op in ops:
        if op.eqn.primitive is assign_p and not op.control_inputs:
            initializers[op.eqn.params["variable"], op.inputs[0]] = op
        elif op.eqn.primitive is value_or_p:
            initializer = initializers.get((op.eqn.params["variable"], op.inputs[0]))
            if initializer is not None:
                by_variable[op] = initializer
    return by_variable


def _waited_for(op: Operation) -> list[Operation]:
    """Returns the control inputs of an operation; checks of a guarded update count as theirs."""
    sources = control_sources(op)
    for check in _checks_of(op):
        sources.remove(check)
        sources += control_sources(check)
    return sources


def _checks_of(op: Operation) -> list[Operation]:
    """Returns the checks that a guarded update does not wait for; only its consumers do."""
    if op.eqn.primitive is not update_p or not op.eqn.params["is_guarded"]:
        return []
    variable = op.eqn.params["variable"]
    return [
        source
        for source in control_sources(op)
        if source.eqn.primitive is check_p and source.eqn.params["variable"] is variable
    ]
