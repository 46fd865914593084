"""The fibers of a step: what follows what among the instructions of its plans."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from jflow.plan import Recv, Send
from jflow.task.execution.linked import LinkedInstruction, LinkedLoop, LinkedPlan

Numbered = tuple[int, LinkedInstruction]
"""An instruction and the number of its plan."""

FiberName = tuple[int, int]
"""A fiber: the numbers of its plan and stage."""

ONE_FIBER: FiberName = (0, 0)
"""The only fiber of a sequential step."""


def fibers_of(
    plans: Sequence[LinkedPlan], *, is_sequential: bool
) -> tuple[dict[FiberName, list[Numbered]], dict[FiberName, set[FiberName]]]:
    """Returns the instructions of each fiber, and the fibers that have to end before it begins.

    A sequential step is one fiber. Otherwise each stage of a plan is a fiber, so that a stage that
    has to wait keeps no other one waiting; but stages with parts of loops, which run together, are
    one.
    """
    names = _fiber_names(plans, is_sequential)
    work = _fibers(plans, names)
    return work, _order(plans, names, work)


def _fiber_names(plans: Sequence[LinkedPlan], is_sequential: bool) -> dict[FiberName, FiberName]:
    """Returns the fiber of each stage of each plan."""
    names: dict[FiberName, FiberName] = {}
    for stage in range(max((len(linked.stages) for linked in plans), default=0)):
        has_loops = [number for number, linked in enumerate(plans) if _loops_in(linked, stage)]
        for number in range(len(plans)):
            name = number, stage
            names[name] = (has_loops[0], stage) if number in has_loops else name
    return dict.fromkeys(names, ONE_FIBER) if is_sequential else names


def _fibers(
    plans: Sequence[LinkedPlan], names: Mapping[FiberName, FiberName]
) -> dict[FiberName, list[Numbered]]:
    """Divides the instructions of a step among fibers."""
    fibers: dict[FiberName, list[Numbered]] = {}
    begun: set[int] = set()
    for stage in range(max((len(linked.stages) for linked in plans), default=0)):
        following: list[tuple[FiberName, Numbered]] = []
        loops: list[tuple[FiberName, Numbered]] = []
        for number, linked in enumerate(plans):
            name, comes_after = names[number, stage], False
            work = fibers.setdefault(name, [])
            for instruction in linked.stages[stage] if stage < len(linked.stages) else ():
                if isinstance(instruction, LinkedLoop):
                    comes_after = True
                    if instruction.instruction.number not in begun:  # for all of its parts
                        begun.add(instruction.instruction.number)
                        loops.append((name, (number, instruction)))
                elif comes_after:
                    following.append((name, (number, instruction)))
                else:
                    work.append((number, instruction))
        for name, numbered in (*loops, *following):
            fibers[name].append(numbered)
    return fibers


def _loops_in(linked: LinkedPlan, stage: int) -> list[LinkedLoop]:
    instructions = linked.stages[stage] if stage < len(linked.stages) else ()
    return [one for one in instructions if isinstance(one, LinkedLoop)]


def _order(
    plans: Sequence[LinkedPlan],
    names: Mapping[FiberName, FiberName],
    fibers: Mapping[FiberName, Collection[Numbered]],
) -> dict[FiberName, set[FiberName]]:
    """Returns the predecessors of each fiber: those in its plans, and the senders to it."""
    senders = {
        instruction.edge: name
        for name, work in fibers.items()
        for _, instruction in work
        if isinstance(instruction, Send)
    }
    order: dict[FiberName, set[FiberName]] = {name: set() for name in fibers}
    for (number, stage), name in names.items():
        after = plans[number].plan.after
        order[name] |= {names[number, i] for i in after[stage]} if stage < len(after) else set()
    for name, work in fibers.items():
        order[name] |= {senders[one.edge] for _, one in work if isinstance(one, Recv)}
        order[name].discard(name)
    return order
