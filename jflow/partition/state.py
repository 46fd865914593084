"""How a segment uses variables, so that it can read them without a copy and update them in place.

Inside a segment the operations run in the graph's order: a read sees the last write before it. A
read that leaves the segment and has the value from before it is not a result of the program but the
variable's own buffer, leased for as long as the step needs it; so is a written value that stays.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from jflow.errors import InvalidArgumentError
from jflow.graph import Operation, Tensor, VariableRef
from jflow.graph.primitives import ACCESSES, initialize_p, read_p, update_p
from jflow.values import is_static


@dataclass
class StateUse:
    """The use of variables by a segment: what its program takes and gives, and what bypasses it.

    Attributes:
      read: variables whose old value the program takes.
      written: last written tensor of each variable that gets a new value.
      initialized: those of the written that only get it if they have none.
      before: tensors that are a variable's buffer from before the segment.
      after: tensors that are a variable's buffer from after it.
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


def varying_reads(ops: Sequence[Operation], needed: Collection[Tensor]) -> tuple[Tensor, ...]:
    """The reads of variables of changing size that operations of their own segment need.

    Each has symbols of its own for the sizes that it found, so it is an input of its own of the
    program, filled when the critical section begins.
    """
    return tuple(
        op.outputs[0]
        for op in ops
        if op.eqn.primitive is read_p
        and not is_static(op.outputs[0].shape)
        and op.outputs[0] in needed
    )


def analyse(
    ops: Sequence[Operation], leaving: Sequence[Tensor], arriving: Collection[Tensor] = ()
) -> StateUse:
    """How the operations of a segment use variables.

    Args:
      ops: the segment, in the graph's order.
      leaving: its tensors that something outside needs.
      arriving: reads that the segment takes as inputs, see `varying_reads`.

    Raises:
      InvalidArgumentError: if one of these comes after a write.
    """
    use = StateUse()
    consumed = {tensor for op in ops for tensor in op.inputs}
    value_of: dict[Tensor, Tensor | None] = {}  # None: the value from before the segment
    for op in ops:
        if op.eqn.primitive not in ACCESSES:
            continue
        ref: VariableRef = op.eqn.params["variable"]
        (tensor,) = op.outputs
        current = use.written.get(ref)
        if tensor in arriving:
            _check_first(op, ref, current)
            use.before.append((ref, tensor))
            takes_old = False
        elif op.eqn.primitive is read_p:
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
        if tensor not in arriving:
            _classify(use, tensor, value_of)
    return use


def _check_first(op: Operation, ref: VariableRef, written: Tensor | None) -> None:
    if written is not None:
        raise InvalidArgumentError(
            f"{op.name!r} reads {ref}, whose size may change, after {written.op.name!r} has set it "
            "in the same step, and the step computes with what it reads; use the value that the "
            "assignment gives, or read it in the next step",
            op=op.name,
        )


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
