"""Bodies of open loops, which are cut by device and stage like a step of its own.

An iteration is fed what comes from outside of the loop, its number, and the carries; it fetches the
next values of the carries. A carry is on one device, with the operation that makes its next value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jflow.base.cluster import Device
from jflow.compiler.graph import Operation, Tensor
from jflow.compiler.graph.bundle import Bundle
from jflow.compiler.graph.open_loop import OpenLoop
from jflow.compiler.graph.primitives import carry_p, final_p, index_p
from jflow.compiler.partition.builder import PlanBuilder
from jflow.compiler.partition.stages import Value, is_computed_in, loops_of
from jflow.compiler.schedule.cut import default_window
from jflow.plan import Carry, Feed, Fetch, Loop, Plan, Recv, Slot


@dataclass(frozen=True)
class LoopBody:
    """One iteration of an open loop.

    Attributes:
      loop: the loop.
      ops: its operations with the carries, in the graph's order.
      needs: the tensors that each of them needs; the carries need none.
      fed: the values that come from outside and the number of the iteration, by the numbers of the
        fed values.
      index: the number of the iteration, as a tensor; None if nothing needs it.
      carries: the carries, with the numbers of the fed values.
      next: the next value of each of them.
      finals: the last values that something needs, by carry.
      window: how many iterations may be under way.
      predicate: says whether an iteration is run; None if all are.
    """

    loop: OpenLoop
    ops: Sequence[Operation]
    needs: Mapping[Operation, Sequence[Tensor]]
    fed: Sequence[Tensor]
    index: Tensor | None
    carries: Mapping[Operation, int]
    next: Mapping[Operation, Tensor]
    finals: Mapping[Operation, Tensor]
    window: int
    predicate: Tensor | None

    @property
    def fetched(self) -> list[Tensor]:
        """The next values of the carries, in their order, and the predicate that it computes."""
        own = self.own_predicate
        return [*self.next.values(), *([] if own is None else [own])]

    @property
    def own_predicate(self) -> Tensor | None:
        """The predicate if it is computed in each iteration, else None."""
        predicate = self.predicate
        return predicate if predicate is not None and is_computed_in(predicate, self.loop) else None

    def _predicate_in(self, plan: Plan, edges: Sequence[Value | Bundle]) -> Slot | None:
        """Returns the slot of the predicate in a plan of the body; None if it has none."""
        for one in plan.instructions:
            match one:
                case Feed(index=i) if i < len(self.fed) and self.fed[i] is self.predicate:
                    return one.slot
                case Recv(edge=edge) if edges[edge] is self.predicate:
                    return one.slot
                case Fetch(index=i) if i == len(self.next):
                    return one.slot
        return None

    def instruction(
        self, number: int, plan: Plan, edges: Sequence[Value | Bundle], builder: PlanBuilder
    ) -> Loop:
        """Returns the instruction that runs a plan of this body; its stride is not known yet.

        Args:
          number: of the loop.
          plan: one of the body's plans.
          edges: the values of the edges of the step so far, by number.
          builder: of the plan around the loop, on the same device.
        """
        here = {one.index for one in plan.instructions if isinstance(one, Feed)}
        outside = [(tensor, i) for i, tensor in enumerate(self.fed) if i in here]
        loop, slot, finals = self.loop, builder.slot, self.finals
        return Loop(
            number=number,
            body=plan,
            trips=loop.trips,
            window=self.window,
            stride=1,
            cycle=1,
            consts=tuple((slot(tensor), i) for tensor, i in outside if tensor is not self.index),
            carries=tuple(
                Carry(
                    slot(carry.inputs[0]),
                    feed,
                    fetch,
                    slot(finals[carry]) if carry in finals else None,
                )
                for fetch, (carry, feed) in enumerate(self.carries.items())
                if feed in here
            ),
            index=next((i for tensor, i in outside if tensor is self.index), None),
            is_reversed=loop.is_reversed,
            op=loop.op,
            predicate=None if self.predicate is None else self._predicate_in(plan, edges),
        )


def body_of(
    loop: OpenLoop,
    ops: Sequence[Operation],
    needs: Mapping[Operation, Sequence[Tensor]],
    placement: Mapping[Operation, Device],
) -> LoopBody:
    """Returns the body of an open loop.

    Args:
      loop: the loop.
      ops: its operations, in the graph's order.
      needs: the tensors that each of them needs.
      placement: their devices.
    """
    own = [op for op in ops if op.loop is loop]
    index = next((op.outputs[0] for op in own if op.eqn.primitive is index_p), None)
    finals = {op.inputs[0].op: op.outputs[0] for op in own if op.eqn.primitive is final_p}
    carries = [op for op in own if op.eqn.primitive is carry_p]
    ends = {op for op in own if op.eqn.primitive in (index_p, final_p)}
    inside = [op for op in ops if op not in ends]
    own_needs = {op: needs[op] for op in inside} | dict.fromkeys(carries, ())
    outside = [t for op in inside for t in own_needs[op] if not is_computed_in(t, loop)]
    predicates = (one.predicate for one in (loop, *loops_of(inside, loop)))
    outside += [one for one in predicates if one is not None and not is_computed_in(one, loop)]
    fed = [*dict.fromkeys(outside), *([] if index is None else [index])]
    n_devices = len({placement[op] for op in inside})
    return LoopBody(
        loop,
        inside,
        own_needs,
        fed,
        index,
        {op: number for number, op in enumerate(carries, len(fed))},
        {op: loop.next[op] for op in carries},
        finals,
        default_window(n_devices) if loop.window is None else loop.window,
        loop.predicate,
    )
