"""`names_of`: what the instructions and edges of a step are called in its traces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jflow.compiler.graph import Operation
from jflow.compiler.partition import Partition
from jflow.plan import Call, Instruction, Plan, Program, Recv, Run, Send
from jflow.plan.trace.measured import EdgeNames, Label, StepNames

_NO_LABEL = Label("")


def names_of(cut: Partition, plans: Sequence[Plan], ops: Iterable[Operation]) -> StepNames:
    """The names of a step.

    Args:
      cut: the partition, whose plans call programs by the names of their segments.
      plans: the same plans with the final names of programs.
      ops: the operations of the step.
    """
    called = {one.op for plan in plans for one in plan.instructions if isinstance(one, Call | Run)}
    labels = {
        str(plan.device): tuple(
            _label(cut, before, after)
            for before, after in zip(old.instructions, plan.instructions, strict=True)
        )
        for old, plan in zip(cut.plans, plans, strict=True)
    }
    edges = {
        one.edge: EdgeNames(cut.edges[one.edge].name, str(plan.device), str(one.target))
        for plan in plans
        for one in plan.instructions
        if isinstance(one, Send)
    }
    return StepNames(labels, edges, {op.name: op.origin for op in ops if op.name in called})


def _label(cut: Partition, before: Instruction, after: Instruction) -> Label:
    match before, after:
        case Run(program=Program(digest=segment)), Run(program=Program() as program, op=op):
            ops = tuple(each.name for each in cut.segments[segment].ops)
            return Label(op, ops, str(program))
        case _, Run(op=op):
            return Label(op)
        case _, Call(function=function, op=op):
            return Label(op or function, (op,) if op else (), function)
        case _, Recv(edge=edge) | Send(edge=edge):
            return Label(cut.edges[edge].name)
    return _NO_LABEL
