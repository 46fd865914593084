"""Text forms of compiled steps, and the names that their traces use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from jflow.base.cluster import Device
from jflow.base.values import Array
from jflow.compiler.graph import Operation
from jflow.compiler.lowering import Lowered, exported_signature
from jflow.compiler.partition import Partition
from jflow.plan import Call, Instruction, Loop, Plan, Program, Recv, Run, Send, stride_of
from jflow.plan.trace.measured import EdgeNames, Label, StepNames


def placement_text(placement: Mapping[Operation, Device]) -> str:
    """Returns the device of each operation, one per line, in the graph's order."""
    width = max((len(str(device)) for device in placement.values()), default=0)
    lines = (f"  {device!s:{width}}  {op.name}" for op, device in placement.items())
    return "\n".join(["placement", *lines])


def step_text(
    placement: Mapping[Operation, Device],
    plans: Sequence[Plan],
    programs: Mapping[str, Lowered],
    artifacts: Mapping[str, Array],
) -> str:
    """Returns the placement of a step, its plans by device, and its programs.

    Args:
      placement: a device for each operation.
      plans: one for each device.
      programs: programs for this process by name; none for a cluster.
      artifacts: for a cluster, the exported programs as u8[n] by digest.
    """
    signatures = {
        name: programs[name].signature if name in programs else exported_signature(artifacts[name])
        for name in dict.fromkeys(program.digest for plan in plans for program in plan.programs)
    }
    sections = [placement_text(placement)]
    sections += [plan.text(signatures) for plan in plans]
    sections += [f"{name}: {program.text()}" for name, program in programs.items()]
    return "\n\n".join(sections)


_NO_LABEL = Label("")


def names_of(cut: Partition, plans: Sequence[Plan], ops: Iterable[Operation]) -> StepNames:
    """Returns the names of a step's instructions and edges, for its trace.

    Args:
      cut: the partition, whose plans call programs by the names of their segments.
      plans: the same plans with the final names of programs.
      ops: the operations of the step.
    """
    named = (one for plan in plans for one in plan.all_instructions)
    called = {one.op for one in named if isinstance(one, Call | Run | Loop)}
    labels = {
        str(plan.device): tuple(
            _label(cut, before, after)
            for before, after in zip(old.all_instructions, plan.all_instructions, strict=True)
        )
        for old, plan in zip(cut.plans, plans, strict=True)
    }
    edges = {
        one.edge: EdgeNames(cut.edges[one.edge].name, str(plan.device), str(one.target))
        for plan in plans
        for one in plan.all_instructions
        if isinstance(one, Send)
    }
    called |= {edge.name.rpartition(":")[0] for edge in edges.values()}
    lines = {op.name: op.origin for op in ops if op.name in called}
    variables = {str(plan.device): tuple(v.key.name for v in plan.variables) for plan in plans}
    return StepNames(labels, edges, lines, variables, stride_of(plans))


def _label(cut: Partition, before: Instruction, after: Instruction) -> Label:
    match before, after:
        case Run(program=Program(digest=segment)), Run(program=Program() as program, op=op):
            ops = tuple(each.name for each in cut.segments[segment].ops)
            return Label(op, ops, str(program))
        case _, Run(op=op) | Loop(op=op):
            return Label(op)
        case _, Call(function=function, op=op):
            return Label(op or function, (op,) if op else (), function)
        case _, Recv(edge=edge) | Send(edge=edge):
            return Label(cut.edges[edge].name)
    return _NO_LABEL
