"""Dependencies between the enqueues and dequeues of one step on the same queue.

A graph has no edge from an operation that puts elements into a queue to one that takes them out.
Whether the second waits for the first depends on how many elements the queue holds when the step
begins, which no graph says. Strategies and simulations take it for empty: a step that takes out as
many elements as it puts in leaves as many as it found, none if nothing else fills the queue. If
other steps have filled it, the step is faster than predicted, and `auto` divides it less often; to
take every queue for full would have `auto` leave one device for a gain that there is not.

What the graph says counts: elements that are put after others were taken cannot be those.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from jflow.base.values import is_known
from jflow.compiler.graph import Operation
from jflow.compiler.graph.control import control_sources
from jflow.compiler.graph.primitives import ResourceRef, host_p
from jflow.compiler.placement.equations import UNKNOWN_SIZE

_PUT, _PUT_MANY = "queue.enqueue", "queue.enqueue_many"
_TAKE, _TAKE_MANY = "queue.dequeue", "queue.dequeue_many"

_Users = dict[Operation, list[Operation]]


def awaited_elements(ops: Sequence[Operation]) -> dict[Operation, tuple[Operation, ...]]:
    """Maps each operation that enqueues to the operations of the step that dequeue its elements.

    Elements are taken in the order in which they are put, and both in the order of the graph. With
    what is returned as further edges the operations still have no cycle.

    Args:
      ops: the operations of a step, in the graph's order.
    """
    puts, takes = _calls(ops, (_PUT, _PUT_MANY)), _calls(ops, (_TAKE, _TAKE_MANY))
    shared = [queue for queue in takes if queue in puts]
    users = _users(ops) if shared else {}
    awaited: dict[Operation, tuple[Operation, ...]] = {}
    for queue in shared:
        left = {put: n for put in puts[queue] if (n := _n_put(put))}
        for take in takes[queue]:
            for put in _dequeue(left, _n_dequeued(take), _successors(take, users)):
                users.setdefault(put, []).append(take)
                awaited[put] = (*awaited.get(put, ()), take)
    return awaited


def _calls(
    ops: Sequence[Operation], functions: Collection[str]
) -> Mapping[ResourceRef, Sequence[Operation]]:
    """Returns the operations that call some queue functions, by queue."""
    calls: dict[ResourceRef, list[Operation]] = {}
    for op in ops:
        if op.eqn.primitive is host_p and op.eqn.params["function"] in functions:
            calls.setdefault(op.eqn.params["resources"][0], []).append(op)
    return calls


def _users(ops: Sequence[Operation]) -> _Users:
    users: _Users = {}
    for op in ops:
        for source in (*(tensor.op for tensor in op.inputs), *control_sources(op)):
            users.setdefault(source, []).append(op)
    return users


def _successors(op: Operation, users: _Users) -> Collection[Operation]:
    """Returns the transitive successors of an operation."""
    successors: dict[Operation, None] = {}
    pending = [op]
    while pending:
        new = [each for each in users.get(pending.pop(), ()) if each not in successors]
        successors.update(dict.fromkeys(new))
        pending += new
    return successors


def _dequeue(
    left: dict[Operation, int], wanted: int, later: Collection[Operation]
) -> Sequence[Operation]:
    """Subtracts the next elements to be dequeued; returns the operations that enqueue them."""
    elements = []
    for put in [each for each in left if each not in later]:
        if wanted > 0:
            n = min(left[put], wanted)
            wanted -= n
            left[put] -= n
            elements.append(put)
        if not left[put]:
            del left[put]
    return elements


def _n_put(op: Operation) -> int:
    many = op.eqn.params["function"] == _PUT_MANY
    return _n_rows(op.inputs[0].aval.shape) if many else 1


def _n_dequeued(op: Operation) -> int:
    many = op.eqn.params["function"] == _TAKE_MANY
    return _n_rows(op.outputs[0].aval.shape) if many else 1


def _n_rows(shape: Sequence[Any] | None) -> int:
    return shape[0] if shape and is_known(shape[0]) else UNKNOWN_SIZE
