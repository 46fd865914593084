"""Open loops as a placement problem has them: bodies that run several times.

How often the body of a `while` runs is not known, and a branch runs once at most; both count once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from jflow.compiler.graph import Operation, Tensor
from jflow.compiler.graph.open_loop import OpenLoop
from jflow.compiler.graph.primitives import final_p
from jflow.compiler.schedule.graph import RepeatedBody


def loops_around(op: Operation) -> Iterator[OpenLoop]:
    """Yields the open loops that an operation is in, the innermost first."""
    loop = op.loop
    while loop is not None:
        yield loop
        loop = loop.parent


def trips_of(op: Operation) -> int:
    """Returns how often an operation runs in a step, as far as that is known."""
    trips = 1
    for loop in loops_around(op):
        trips *= _trips(loop)
    return trips


def sendings_of(tensor: Tensor, users: Iterable[Operation]) -> int:
    """Returns how often a tensor is sent to its users in a step, as far as that is known."""
    most = 1
    for user in users if tensor.op.loop is not None else ():
        common, trips = {*loops_around(user)}, 1
        for loop in loops_around(tensor.op):
            trips *= _trips(loop) if loop in common else 1
        most = max(most, trips)
    return most


def repeated(ops: Sequence[Operation]) -> tuple[RepeatedBody, ...]:
    """Returns the loops that are known to run their bodies more than once, the outermost of these.

    Args:
      ops: operations of a step; the loops refer to them by their positions.
    """
    members: dict[OpenLoop, list[int]] = {}
    carried: dict[OpenLoop, list[tuple[int, int]]] = {}
    number = {op: i for i, op in enumerate(ops)}
    for op, i in number.items():
        for outermost in [loop for loop in loops_around(op) if _trips(loop) > 1][-1:]:
            members.setdefault(outermost, []).append(i)
            if op in outermost.next:
                made = number[outermost.next[op].op]
                carried.setdefault(outermost, []).append((made, i))
    return tuple(
        RepeatedBody(
            tuple(positions),
            loop.trips,
            loop.window or 0,
            tuple(carried.get(loop, ())),
            f"{loop.op!r} ({loop.line})",
        )
        for loop, positions in members.items()
    )


def awaited_in_loops(ops: Sequence[Operation]) -> Mapping[Operation, list[Operation]]:
    """Returns what waits for an operation in an open loop without using a result of it.

    The last value of a carry is there after the last iteration, and what an iteration makes for the
    next one is made after its predicate.
    """
    after: dict[Operation, list[Operation]] = {}
    position = {op: i for i, op in enumerate(ops)}
    for op in ops:
        if op.loop is None:
            continue
        if op.eqn.primitive is final_p:
            after.setdefault(op.loop.next[op.inputs[0].op].op, []).append(op)
        for new in [op.loop.next[op].op] if op in op.loop.next else ():
            gate = op.loop.predicate
            if gate is not None and position.get(gate.op, len(ops)) < position[new]:
                after.setdefault(gate.op, []).append(new)
    return after


def _trips(loop: OpenLoop) -> int:
    return loop.trips if loop.predicate is None else 1
