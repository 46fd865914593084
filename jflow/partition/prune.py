"""Which operations a step needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from jflow.errors import InvalidArgumentError
from jflow.graph import Graph, Operation, Tensor
from jflow.graph.primitives import group_p, placeholder_p


def prune(
    graph: Graph, targets: Iterable[Operation], fetches: Iterable[Tensor], fed: Collection[Tensor]
) -> list[Operation]:
    """The operations that targets and fetches need, in the graph's order.

    A fed tensor cuts the graph: nothing is needed for its sake. An operation all of whose outputs
    are fed does not run.

    Raises:
      InvalidArgumentError: if a placeholder is needed that is not fed.
    """
    needed: set[Operation] = set()
    pending = [*targets, *(tensor.op for tensor in fetches if tensor not in fed)]
    while pending:
        op = pending.pop()
        if op in needed:
            continue
        if op.eqn.primitive is placeholder_p:
            raise InvalidArgumentError(
                f"You must feed a value for placeholder {op.name!r} (made at {op.origin}) "
                f"with dtype {op.outputs[0].dtype} and shape {op.outputs[0].shape}",
                op=op.name,
            )
        needed.add(op)
        pending.extend(tensor.op for tensor in op.inputs if tensor not in fed)
        pending.extend(op.control_inputs)
    return [op for op in graph.get_operations() if op in needed]


def control_sources(op: Operation) -> list[Operation]:
    """The operations that must run before `op` for no data; groups are seen through."""
    found: dict[Operation, None] = {}
    pending = list(op.control_inputs)
    while pending:
        source = pending.pop()
        if source.eqn.primitive is group_p:
            pending.extend(source.control_inputs)
        else:
            found[source] = None
    return list(found)
