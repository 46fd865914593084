"""Control dependencies of operations."""

from __future__ import annotations

from jflow.compiler.graph.graph import Operation
from jflow.compiler.graph.primitives import group_p


def control_sources(op: Operation) -> list[Operation]:
    """Returns the control inputs of an operation, with groups replaced by their own."""
    seen = dict.fromkeys(op.control_inputs)
    pending = list(seen)
    while pending:
        source = pending.pop()
        if source.eqn.primitive is group_p:
            new = [each for each in source.control_inputs if each not in seen]
            seen.update(dict.fromkeys(new))
            pending.extend(new)
    return [source for source in seen if source.eqn.primitive is not group_p]
