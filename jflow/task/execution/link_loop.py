"""`link_loop`: what the iterations of a loop need, found in its plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from jflow.plan import (
    Feed,
    Fetch,
    Instruction,
    Loop,
    Plan,
    Recv,
    Run,
    Send,
    Slot,
    slots_filled,
    slots_read,
)
from jflow.task.execution.iterations import BodyOrder
from jflow.task.execution.linked import (
    LinkedInstruction,
    LinkedLoop,
    LinkedPlan,
    LinkedRun,
    LinkedStage,
)


def link_loop(loop: Loop, plan: Plan, body: LinkedPlan, last_uses: tuple[Slot, ...]) -> LinkedLoop:
    """Links a loop.

    Args:
      loop: the loop.
      plan: the plan that it is an instruction of.
      body: its linked body.
      last_uses: the slots of the plan that it is the last instruction to read.
    """
    flow = _Flow(loop)
    own = flow.next_slots
    stages = tuple(_stage(number, one, flow) for number, one in enumerate(body.stages))
    before = tuple(
        tuple(sorted({flow.maker[own[i]] for one in stage for i in flow.carries_read(one)}))
        for stage in loop.body.stages
    )
    order = BodyOrder(loop.body.after, before, tuple(bool(one.arrivals) for one in stages))
    copied = _copied(flow, plan, last_uses)
    made = None if loop.predicate is None else flow.maker.get(loop.predicate)
    arrives = made is not None and loop.predicate in {x.slot for x in stages[made].arrivals}
    is_fed = loop.predicate is not None and made is None
    computed = None if arrives else made
    return LinkedLoop(loop, body, order, stages, copied, last_uses, computed, is_fed)


def carry_slots(loop: Loop) -> Iterable[Slot]:
    """Returns the slots of the body that carries are in, which are results if the loop ends."""
    return _Flow(loop).carry_in.keys()


@dataclass(frozen=True)
class _Flow:
    """How values flow in a loop and from one iteration to the next."""

    loop: Loop

    @cached_property
    def carry_in(self) -> Mapping[Slot, int]:
        """The carries by their slots in the body."""
        by_feed = {carry.feed: i for i, carry in enumerate(self.loop.carries)}
        feeds = (one for one in self.loop.body.instructions if isinstance(one, Feed))
        return {one.slot: by_feed[one.index] for one in feeds if one.index in by_feed}

    @cached_property
    def next_slots(self) -> tuple[Slot, ...]:
        """For each carry, the slot of the body with its next value."""
        fetches = (one for one in self.loop.body.instructions if isinstance(one, Fetch))
        by_index = {one.index: one.slot for one in fetches}
        return tuple(by_index[carry.fetch] for carry in self.loop.carries)

    @cached_property
    def maker(self) -> Mapping[Slot, int]:
        """The stages that fill slots, except feeds."""
        return {
            slot: number
            for number, stage in enumerate(self.loop.body.stages)
            for one in stage
            if not isinstance(one, Feed)
            for slot in slots_filled(one)
        }

    @cached_property
    def donated(self) -> frozenset[Slot]:
        """The slots of carries whose memory a program takes for the next value."""
        runs = [one for one in self.loop.body.instructions if isinstance(one, Run)]
        return frozenset(
            run.inputs[argument - len(run.reads)]
            for run in runs
            if run.program is not None
            for argument in run.program.donated
            if argument >= len(run.reads)  # the others are variables
        )

    def carries_read(self, one: Instruction) -> set[int]:
        """Returns the carries that an instruction of the body reads or sends."""
        return {self.carry_in[slot] for slot in slots_read(one) if slot in self.carry_in}


def _stage(number: int, stage: Iterable[LinkedInstruction], flow: _Flow) -> LinkedStage:
    instructions = [*stage]
    runs = (one.instruction for one in instructions if isinstance(one, LinkedRun))
    return LinkedStage(
        tuple(one for one in instructions if isinstance(one, Recv)),
        tuple(one for one in instructions if not isinstance(one, Recv)),
        tuple((i, slot) for i, slot in enumerate(flow.next_slots) if flow.maker[slot] == number),
        tuple(run.outputs[-1] for run in runs if run.outputs),
    )


def _copied(flow: _Flow, plan: Plan, last_uses: tuple[Slot, ...]) -> frozenset[int]:
    """Returns the carries whose first values are copied before the first iteration.

    That takes their memory, which must not be that of a variable or fed value, or be used later.
    """
    results = {slot for one in plan.instructions if isinstance(one, Run) for slot in one.outputs}
    results -= {one.slot for one in plan.instructions if isinstance(one, Send)}
    n_uses = Counter(flow.loop.inputs)
    free = {slot for slot in results.intersection(last_uses) if n_uses[slot] == 1}
    return frozenset(
        i
        for slot, i in flow.carry_in.items()
        if slot in flow.donated and flow.loop.carries[i].init not in free
    )
