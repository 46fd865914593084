"""Requests of the operations of an open loop that have none of their own.

JAX's derivatives of a body have equations without a request, such as the sum of two gradients. They
go where the data is: an equation without a request has that of its last input that has one, or of
its first user. A carry, its next value and its last one are placed as one, by the request of the
second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from jflow.compiler.graph import request
from jflow.compiler.graph.graph import Operation
from jflow.compiler.graph.primitives import carry_p, final_p, index_p
from jflow.compiler.graph.request import Request


def spread_requests(ops: Sequence[Operation]) -> dict[Operation, list[Operation]]:
    """Gives each operation of an open loop a request, and colocates carries with their values.

    Returns:
      The users of each operation in the loop.
    """
    loops = {op.loop for op in ops if op.loop is not None}
    leaders = {carry: new.op for one in loops for carry, new in one.next.items()}
    leaders |= {op: leaders[op.inputs[0].op] for op in ops if op.eqn.primitive is final_p}
    for op in leaders:  # the last value of an inner loop may be a next one
        while leaders[op] in leaders:
            leaders[op] = leaders[leaders[op]]
    users: dict[Operation, list[Operation]] = {op: [] for op in ops}
    for op in ops:
        for source in dict.fromkeys(tensor.op for tensor in op.inputs):
            if source in users:
                users[source].append(op)
    known = _known_requests(ops, users, leaders)
    names: dict[Operation, list[str]] = {}
    for op, leader in leaders.items():
        if op.eqn.primitive is carry_p:
            names.setdefault(leader, []).append(op.name)
    for op in ops:
        leader = leaders.get(op, op)
        own = request.requested(op.eqn)
        spec = known[leader].spec if leader in known else own.spec
        together = (name for name in (*own.names, *names.get(leader, ())) if name != op.name)
        if (changed := request.resolved(spec, dict.fromkeys(together))) != own:
            op.eqn = request.replaced(op.eqn, changed)
    return users


def _known_requests(
    ops: Sequence[Operation],
    users: Mapping[Operation, Sequence[Operation]],
    leaders: Mapping[Operation, Operation],
) -> dict[Operation, Request]:
    """Returns the requests of operations, or of those that they are placed with."""
    known: dict[Operation, Request] = {}
    for op in ops:
        if not (own := request.requested(op.eqn)).is_empty:
            known[leaders.get(op, op)] = own

    def follow(op: Operation, others: Iterable[Operation]) -> None:
        """Gives an operation the request of the first of some others that has one."""
        leader = leaders.get(op, op)
        if leader not in known:
            by = (leaders.get(other, other) for other in others)
            found = next((known[one] for one in by if one in known), None)
            if found is not None:
                known[leader] = found

    n_known = -1
    while len(known) > n_known:
        n_known = len(known)
        for op in ops:
            made_by = (tensor.op for tensor in reversed(op.inputs))
            # The number of the iteration is on all devices.
            follow(op, (one for one in made_by if one.eqn.primitive is not index_p))
        if len(known) == n_known:
            for op in reversed(ops):
                follow(op, users[op])
    return known
