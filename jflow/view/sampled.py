"""Draws a step of another program, of which only the plans are known."""

from __future__ import annotations

from jflow.base.cluster import Device
from jflow.plan.trace.samples import SampledInstruction, SampledPlan, SampledStep
from jflow.view.drawing import draw
from jflow.view.model import Box, BoxFlow, BoxKind, Diagram, Flow, OpInfo, Sketch, StateInfo

_SHOWN = ("run", "call", "feed")


def step_picture(step: SampledStep) -> str:
    """Returns the programs and calls of a step as an SVG image: a lane for each device."""
    return draw(step_diagram(step))


def step_diagram(step: SampledStep) -> Diagram:
    """Returns the programs, calls and variables of a step as boxes, and what flows between them."""
    boxes: list[Box] = []
    numbers: dict[tuple[int, int], int] = {}  # of plan and instruction
    variables: dict[tuple[int, int], int] = {}  # of plan and variable
    for i, plan in enumerate(step.plans):
        for j, name in enumerate(plan.variables):
            variables[i, j] = len(boxes)
            state = StateInfo("variable", name, "", None)
            boxes.append(Box(BoxKind.STATE, name, Device.parse(plan.device), state=state))
    for i, plan in enumerate(step.plans):
        for j, one in enumerate(plan.instructions):
            if one.kind in _SHOWN:
                numbers[i, j] = len(boxes)
                boxes.append(_box(plan, one))
    return Sketch(boxes, _flows(step, numbers, variables)).diagram()


def _box(plan: SampledPlan, one: SampledInstruction) -> Box:
    uses = tuple(plan.variables[number] for number in dict.fromkeys((*one.reads, *one.writes)))
    what = {"run": "program", "call": "function of the host", "feed": "fed value"}[one.kind]
    ops = (OpInfo(one.name, what, (), uses),)
    return Box(BoxKind.OPERATION, one.name, Device.parse(plan.device), ops)


def _flows(
    step: SampledStep,
    numbers: dict[tuple[int, int], int],
    variables: dict[tuple[int, int], int],
) -> list[BoxFlow]:
    senders = {
        one.edge: (i, j)
        for i, plan in enumerate(step.plans)
        for j, one in enumerate(plan.instructions)
        if one.kind == "send"
    }

    def sources(i: int, j: int) -> list[int]:
        """The boxes behind an instruction: its own, or of those whose values it passes on."""
        if (i, j) in numbers:
            return [numbers[i, j]]
        one = step.plans[i].instructions[j]
        if one.kind == "receive":
            return sources(*senders[one.edge]) if one.edge in senders else []
        return [box for k in one.inputs for box in sources(i, k)]

    flows: list[BoxFlow] = []
    for (i, j), box in numbers.items():
        one = step.plans[i].instructions[j]
        flows += [(source, box, Flow.DATA, ()) for k in one.inputs for source in sources(i, k)]
        flows += [(variables[i, k], box, Flow.DATA, ()) for k in one.reads]
        flows += [(variables[i, k], box, Flow.STATE, ()) for k in one.writes if k not in one.reads]
    return flows
