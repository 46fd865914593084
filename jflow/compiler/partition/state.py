"""Analysis of the variables of a segment, to read without copies and to update in place.

Inside a segment the operations run in the graph's order: a read sees the last write before it. A
value from before the segment that leaves it is not a result of the program: it is the variable's
own buffer, leased for as long as the step needs it. So is a final written value.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from jflow.base.values import is_static
from jflow.compiler.graph import Operation, Tensor, VariableRef
from jflow.compiler.graph.primitives import ACCESSES, initialize_p, read_p, update_p
from jflow.errors import InvalidArgumentError


@dataclass
class StateUse:
    """The use of variables by a segment: arguments, results, and values that bypass the program.

    Attributes:
      read: variables whose old value the program takes.
      written: the last written tensor of each variable that gets a new value.
      initialized: the written variables that keep their value if they have one.
      before: tensors that are a variable's buffer before the segment.
      after: tensors that are a variable's buffer after the segment.
      outputs: all other tensors that leave the segment.
    """

    read: dict[VariableRef, None] = field(default_factory=dict)
    written: dict[VariableRef, Tensor] = field(default_factory=dict)
    initialized: dict[VariableRef, None] = field(default_factory=dict)
    before: list[tuple[VariableRef, Tensor]] = field(default_factory=list)
    after: list[tuple[VariableRef, Tensor]] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)

    @property
    def reads(self) -> tuple[VariableRef, ...]:
        """The variables of `read`: first those that are also written, in the order of `writes`.

        JAX gives the memory of arguments to results of the same type in their order, so each
        variable keeps its own: otherwise XLA copies values out of the way of each other.
        """
        updated = [ref for ref in self.written if ref in self.read]
        return (*updated, *(ref for ref in self.read if ref not in self.written))

    @property
    def writes(self) -> tuple[VariableRef, ...]:
        """The variables of `written`, in the order of their first writes."""
        return tuple(self.written)


def varying_reads(ops: Sequence[Operation], needed: Collection[Tensor]) -> tuple[Tensor, ...]:
    """Returns the reads of variables of varying size that their own segment uses.

    Each read has symbols of its own, so it is a separate input of the program, filled when the
    critical section begins.
    """
    return tuple(
        op.outputs[0]
        for op in ops
        if op.eqn.primitive is read_p
        and not is_static(op.outputs[0].aval.shape)
        and op.outputs[0] in needed
    )


def analyse(
    ops: Sequence[Operation], leaving: Sequence[Tensor], arriving: Collection[Tensor] = ()
) -> StateUse:
    """Returns how the operations of a segment use variables.

    Args:
      ops: the segment, in the graph's order.
      leaving: its tensors that are needed outside.
      arriving: reads that are inputs of the segment, see `varying_reads`.

    Raises:
      InvalidArgumentError: if an arriving read comes after a write.
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
            "in the same step, and the step computes with the value; use the result of the "
            "assignment, or read it in the next step",
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
