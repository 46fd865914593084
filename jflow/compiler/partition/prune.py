"""Pruning: the operations that a step needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from jflow.base.values import declared, shape_text
from jflow.compiler.graph import Graph, Operation, Tensor
from jflow.compiler.graph.primitives import placeholder_p
from jflow.errors import InvalidArgumentError


def prune(
    graph: Graph, targets: Iterable[Operation], fetches: Iterable[Tensor], fed: Collection[Tensor]
) -> list[Operation]:
    """Returns the operations that targets and fetches depend on, in the graph's order.

    A fed tensor cuts the graph: nothing is needed to compute it. An operation whose outputs are all
    fed does not run, even as a control input or a target.

    Raises:
      InvalidArgumentError: if a required placeholder is not fed.
    """
    fed = frozenset(fed)
    needed: set[Operation] = set()
    pending = [*targets, *(tensor.op for tensor in fetches if tensor not in fed)]
    while pending:
        op = pending.pop()
        if op in needed or is_fed(op, fed):
            continue
        if op.eqn.primitive is placeholder_p:
            (value,) = op.outputs
            raise InvalidArgumentError(
                f"You must feed a value for placeholder {op.name!r} (made at {op.origin}) "
                f"with dtype {value.dtype} and shape {shape_text(declared(value.aval.shape))}",
                op=op.name,
            )
        needed.add(op)
        pending.extend(tensor.op for tensor in op.inputs if tensor not in fed)
        pending.extend(op.control_inputs)
        loop = op.loop
        while loop is not None:
            also = loop.next.get(op), loop.predicate
            pending.extend(tensor.op for tensor in also if tensor is not None)
            loop = loop.parent
    return [op for op in graph.get_operations() if op in needed]


def is_fed(op: Operation, fed: Collection[Tensor]) -> bool:
    """Whether all outputs of an operation are fed, so that it does not run."""
    return bool(op.outputs) and all(tensor in fed for tensor in op.outputs)
