"""Cuts a schedule into stages: which operations run as one program, each time that they run.

The operations of a device that have as many crossings between devices before them are one stage, or
two where those that other devices do not wait for take long
(`jflow.compiler.partition.stages`). A loop over devices counts as one operation in this; its body
is cut in the same way, into parts, and each of its iterations has stages of its own. The parts that
the iterations of a device have ready run the later one first, then the older iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jflow.compiler.schedule.graph import OperationGraph, RepeatedBody
from jflow.compiler.schedule.problem import Problem

SPLIT_S = 1e-3
"""Operations that no other device waits for are a program of their own if they take longer, in
seconds. That costs another dispatch, and what XLA would have fused across the cut."""

MAX_ITERATIONS = 16
"""Iterations of a loop that are looked at one by one; of more, the rest is like the last ones."""


class StageKey(NamedTuple):
    """Operations of a device that run as one program; stages sort in the order of running.

    Attributes:
      depth: the most crossings between devices on a path to it; a loop crosses once, at most.
      rank: how many loops of its depth are before it.
      phase: 1 if it runs after what the other operations of its depth send, else 0.
      loop: the number of its loop; -1 outside of loops.
      slot: when it runs in its loop, if all parts took one unit of time.
      part: its depth in the body of its loop, negative, because later parts go first; else 0.
      iteration: the number of its iteration.
      device: the index of its device.
    """

    depth: int
    rank: int
    phase: int
    loop: int
    slot: int
    part: int
    iteration: int
    device: int


@dataclass(frozen=True)
class StageCut:
    """The stages of a schedule.

    Attributes:
      stages: all stages, sorted.
      of: for each operation the numbers of its stages, one for each iteration of its loop.
    """

    stages: list[StageKey]
    of: list[list[int]]


def cut(problem: Problem, devices: Sequence[int]) -> StageCut:
    """Returns the stages of a placement.

    Args:
      problem: what is placed.
      devices: of each operation.
    """
    graph = problem.graph
    depths, ranks = _outer(graph, devices)
    phases = _phases(problem, devices, depths)
    keys = [*zip(depths, ranks, phases, devices, strict=True)]
    alone = {
        key: StageKey(*key[:3], -1, 0, 0, 0, key[3])
        for key in {key for key, loop in zip(keys, graph.loop_of, strict=True) if loop < 0}
    }
    in_loops: dict[int, list[StageKey]] = {}
    for unit in graph.units if graph.loops else ():
        number = graph.loop_of[unit[0]]
        if number < 0:
            continue
        whole = StageKey(depths[unit[0]], ranks[unit[0]], 0, number, 0, 0, 0, 0)
        body = _body_depths(graph, unit, graph.loops[number], devices)
        slots = _slots(graph, graph.loops[number], devices, body)
        stages_of = {
            part: [
                whole._replace(slot=at[part], part=-part[0], iteration=i, device=part[1])
                for i, at in enumerate(slots)
            ]
            for part in slots[0]
        }
        in_loops |= {i: stages_of[body[i], devices[i]] for i in unit}
    every = {stage for stages in in_loops.values() for stage in stages}
    stages = sorted({*alone.values(), *every})
    numbers = {stage: number for number, stage in enumerate(stages)}
    numbers_alone = {key: [numbers[stage]] for key, stage in alone.items()}
    return StageCut(
        stages,
        [
            [numbers[stage] for stage in in_loops[i]] if i in in_loops else numbers_alone[key]
            for i, key in enumerate(keys)
        ],
    )


def n_looked_at(loop: RepeatedBody) -> int:
    """Returns the number of iterations that have stages."""
    return min(loop.trips, MAX_ITERATIONS)


def n_runs(graph: OperationGraph) -> int:
    """Returns how many operations a step has, with each of a loop as often as it has stages."""
    more = sum(len(loop.operations) * (n_looked_at(loop) - 1) for loop in graph.loops)
    return len(graph) + more


def default_window(n_devices: int) -> int:
    """Returns how many iterations of a loop over that many devices may be under way on each."""
    return max(2 * n_devices, n_devices + 2)


def _outer(graph: OperationGraph, devices: Sequence[int]) -> tuple[list[int], list[int]]:
    """Returns depth and rank of each operation; those of a loop have the same."""
    depths, ranks = [0] * len(graph), [0] * len(graph)
    if not graph.loops:
        for i in graph.order:
            for before in graph.predecessors[i]:
                depths[i] = max(depths[i], depths[before] + (devices[before] != devices[i]))
        return depths, ranks
    for unit in graph.units:
        is_loop = graph.loop_of[unit[0]] >= 0
        members = {*unit} if is_loop else ()
        sources = [
            (depths[before] + (devices[before] != devices[i]), before)
            for i in unit
            for before in graph.predecessors[i]
            if before not in members
        ]
        depth = max((at for at, _ in sources), default=0)
        rank = max(
            (
                ranks[before] + (graph.loop_of[before] >= 0)
                for at, before in sources
                if at == depths[before] == depth
            ),
            default=0,
        )
        for i in unit:
            depths[i], ranks[i] = depth, rank
    return depths, ranks


def _phases(problem: Problem, devices: Sequence[int], depth: Sequence[int]) -> list[int]:
    """Returns the phase of each operation: 1 if it runs after its stage's sends, else 0."""
    graph, loop_of = problem.graph, problem.graph.loop_of
    awaited = [False] * len(graph)
    for i in reversed(graph.order):
        loop = loop_of[i]
        for before in graph.predecessors[i]:
            is_here = devices[before] == devices[i]
            is_fed = loop >= 0 and loop_of[before] != loop
            if not is_here or is_fed or (awaited[i] and depth[before] == depth[i]):
                awaited[before] = True
    sending = {(depth[i], devices[i]) for i, is_awaited in enumerate(awaited) if is_awaited}
    left: dict[tuple[int, int], float] = {}
    for i, device in enumerate(devices):
        if not awaited[i] and (depth[i], device) in sending:
            key = depth[i], device
            left[key] = left.get(key, 0.0) + float(problem.costs.seconds[i, device])
    return [
        int(not awaited[i] and left.get((depth[i], device), 0.0) > SPLIT_S)
        for i, device in enumerate(devices)
    ]


# Loops --------------------------------------------------------------------------------------------

_BodyKey = tuple[int, int]
"""Depth in the body, and device."""


def _body_depths(
    graph: OperationGraph, body: Sequence[int], loop: RepeatedBody, devices: Sequence[int]
) -> dict[int, int]:
    """Returns the depth of each operation in the body of a loop, given in a topological order.

    A carry is where it is first used, or before all else if another device uses it.
    """
    carries = {carry for _, carry in loop.carried}
    depths: dict[int, int] = {}
    first_use: dict[int, int] = {}
    for i in body:
        before = [one for one in graph.predecessors[i] if one in depths]
        depth = max((depths[one] + (devices[one] != devices[i]) for one in before), default=0)
        depths[i] = -1 if i in carries else max(depth, 0)
        for one in carries.intersection(before):
            use = depths[i] if devices[one] == devices[i] else -1
            first_use[one] = min(use, first_use.get(one, use))
    return depths | {carry: first_use.get(carry, 0) for carry in carries}


def _slots(
    graph: OperationGraph, loop: RepeatedBody, devices: Sequence[int], depths: dict[int, int]
) -> list[dict[_BodyKey, int]]:
    """Returns for each iteration when each part runs, if all parts took one unit of time.

    A part runs after the parts that it uses, after itself in the iteration before, and after what
    makes its carries there; also after the last part of its device in the iteration that is as many
    before it as the window has.
    """
    part_of = {i: (depths[i], devices[i]) for i in loop.operations}
    parts = sorted(set(part_of.values()))
    sources: dict[_BodyKey, set[_BodyKey]] = {part: set() for part in parts}
    for i in loop.operations:
        here = {part_of[one] for one in graph.predecessors[i] if one in part_of}
        sources[part_of[i]] |= here - {part_of[i]}
    earlier: dict[_BodyKey, set[_BodyKey]] = {part: {part} for part in parts}
    for made, carry in loop.carried:
        earlier[part_of[carry]].add(part_of[made])
    last = {device: (depth, device) for depth, device in parts}
    window = loop.window or default_window(len(last))
    slots: list[dict[_BodyKey, int]] = []
    for number in range(n_looked_at(loop)):
        at: dict[_BodyKey, int] = {}
        for part in parts:
            earliest = [at[one] for one in sources[part] if one in at]
            earliest += [slots[-1][one] for one in earlier[part]] if slots else []
            if number >= window:
                earliest.append(slots[number - window][last[part[1]]])
            at[part] = max(earliest, default=-1) + 1
        slots.append(at)
    return slots
