"""Numbers of the edges of loops: each edge of each iteration under way has a number of its own.

An edge of the body of a loop is in iteration i the edge `e + stride * (i % cycle)` of the plan that
the loop is in. The stride of a loop without inner loops is the number of edges of the step; that of
another one is what its inner loops need, with their iterations. At most `window` iterations are
under way on a device, and one ends only when its values have been received, so the numbers of an
inner loop may repeat after twice as many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jflow.plan import MAX_EDGES, MAX_TRIPS, Instruction, Loop, Plan, Send


def with_strides(plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """Returns the plans of a step whose loops have their strides and cycles."""
    every = [one for plan in plans for one in plan.all_instructions]
    inner: dict[int, set[int]] = {}
    for one in every:
        if isinstance(one, Loop):
            inner.setdefault(one.number, set()).update(each.number for each in one.body.loops)
    if not inner:
        return tuple(plans)
    windows = {one.number: one.window for one in every if isinstance(one, Loop)}
    n_edges = max((one.edge for one in every if isinstance(one, Send)), default=0) + 1
    numbers: dict[int, tuple[int, int]] = {}

    def add(number: int, cycle: int | None) -> int:
        """Adds the stride and cycle of a loop; returns the number of edges that it needs."""
        stride = max((add(one, 2 * windows[one]) for one in inner[number]), default=n_edges)
        numbers[number] = stride, cycle or min(MAX_EDGES // stride, MAX_TRIPS)
        return stride * numbers[number][1]

    for number in inner.keys() - {one for several in inner.values() for one in several}:
        add(number, None)

    def with_it(one: Instruction) -> Instruction:
        if not isinstance(one, Loop):
            return one
        stride, cycle = numbers[one.number]
        return replace(one, stride=stride, cycle=cycle)

    return tuple(plan.mapped(with_it) for plan in plans)
