"""How a segment uses variables, so that it can read them without a copy and update them in place.

Inside a segment the operations run in the graph's order: a read sees the last write before it. A
read that leaves the segment as it was found is no result of the program, it is the variable's
own buffer, held for as long as the step needs it; so is a written value that stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from jflow.graph import Operation, Tensor, VariableRef
from jflow.graph.primitives import ACCESSES, initialize_p, read_p, update_p


@dataclass
class StateUse:
    """What a segment's program takes from variables, gives to them, and passes by.

    Attributes:
      read: variables whose old value the program takes.
      written: last written tensor of each variable that gets a new value.
      initialized: those of the written that only get it if they have none.
      before: tensors that are a variable's buffer as it was found.
      after: tensors that are a variable's buffer as it is left.
      outputs: the other tensors that leave the segment.
    """

    read: dict[VariableRef, None] = field(default_factory=dict)
    written: dict[VariableRef, Tensor] = field(default_factory=dict)
    initialized: dict[VariableRef, None] = field(default_factory=dict)
    before: list[tuple[VariableRef, Tensor]] = field(default_factory=list)
    after: list[tuple[VariableRef, Tensor]] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)

    @property
    def reads(self) -> tuple[VariableRef, ...]:
        return tuple(self.read)

    @property
    def writes(self) -> tuple[VariableRef, ...]:
        return tuple(self.written)


def analyse(ops: Sequence[Operation], leaving: Sequence[Tensor]) -> StateUse:
    """How the operations of a segment use variables.

    Args:
      ops: the segment, in the graph's order.
      leaving: its tensors that something outside needs.
    """
    use = StateUse()
    consumed = {tensor for op in ops for tensor in op.inputs}
    value_of: dict[Tensor, Tensor | None] = {}  # None: the value as it was found
    for op in ops:
        if op.eqn.primitive not in ACCESSES:
            continue
        ref: VariableRef = op.eqn.params["variable"]
        (tensor,) = op.outputs
        current = use.written.get(ref)
        if op.eqn.primitive is read_p:
            value_of[tensor] = current
            takes_old = tensor in consumed
        else:
            use.written[ref] = value_of[tensor] = tensor
            if op.eqn.primitive is initialize_p:
                use.initialized[ref] = None
            takes_old = op.eqn.primitive is update_p
        if takes_old and current is None:
            use.read[ref] = None
    for tensor in leaving:
        _classify(use, tensor, value_of)
    return use


def _classify(use: StateUse, tensor: Tensor, value_of: dict[Tensor, Tensor | None]) -> None:
    if tensor not in value_of:
        use.outputs.append(tensor)
        return
    ref: VariableRef = tensor.op.eqn.params["variable"]
    value = value_of[tensor]
    if value is None:
        use.before.append((ref, tensor))
    elif value is use.written[ref]:
        use.after.append((ref, tensor))
    else:
        use.outputs.append(tensor)
