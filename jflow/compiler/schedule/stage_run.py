"""A step that is simulated in stages: its time, its loops, its trace."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from jflow.base.text import seconds_text
from jflow.compiler.schedule.cut import StageCut, cut, n_looked_at
from jflow.compiler.schedule.graph import RepeatedBody
from jflow.compiler.schedule.messages import MessagePart, with_messages
from jflow.compiler.schedule.problem import Costs, Problem
from jflow.compiler.schedule.schedule import Schedule
from jflow.compiler.schedule.simulate import Timeline, name_of_operation, simulate, trace_of
from jflow.compiler.schedule.stages import longest_of, of_stages, unseen_seconds
from jflow.plan.trace import Trace


@dataclass(frozen=True)
class LoopTime:
    """A loop of a simulated step.

    Attributes:
      loop: the loop.
      devices: the indices of its devices.
      seconds: from the beginning of its first part to the end of its last one.
      bubble: the part of that for which its processors have nothing to do, on average, from 0 to 1.
    """

    loop: RepeatedBody
    devices: tuple[int, ...]
    seconds: float
    bubble: float

    def __str__(self) -> str:
        n = len(self.devices)
        return (
            f"loop {self.loop.name}: {self.loop.trips} iterations on {n} "
            f"device{'s' if n > 1 else ''}, predicted {seconds_text(self.seconds)}, bubble "
            f"{self.bubble:.0%}"
        )


@dataclass(frozen=True)
class StageRun:
    """A step that was simulated in stages.

    Attributes:
      cut: its stages.
      start, finish: of each, in seconds; of a loop up to the last iteration that has stages.
      stages: the stages as operations.
      problem, timeline: the same with messages as operations, and when all of these run.
      loops: the loops.
      makespan: the end of the step, with the iterations that have no stages.
    """

    cut: StageCut
    start: Sequence[float]
    finish: Sequence[float]
    stages: Problem
    problem: Problem
    timeline: Timeline
    loops: tuple[LoopTime, ...]
    makespan: float


def simulate_stages(problem: Problem, schedule: Schedule) -> StageRun:
    """Simulates a valid schedule as the runtime runs it: in stages, with messages.

    See `of_stages`, `with_messages` and `simulate`.
    """
    own_cut = cut(problem, schedule.devices)
    by_stage, in_order = of_stages(problem, schedule.devices, own_cut)
    with_them, order = with_messages(by_stage, in_order)
    timeline = simulate(with_them, order)
    start, finish = [0.0] * len(own_cut.stages), [0.0] * len(own_cut.stages)
    for i, stage in enumerate(
        map(_stage_of, range(len(with_them.graph)), with_them.graph.operations)
    ):
        if stage is not None:
            start[stage], finish[stage] = timeline.start[i], timeline.finish[i]
    busy = by_stage.costs.seconds.max(axis=1, initial=0.0).tolist()
    unseen = unseen_seconds(problem, own_cut.stages, finish, busy)
    loops = []
    for number, loop in enumerate(problem.graph.loops):
        own = [i for i, stage in enumerate(own_cut.stages) if stage.loop == number]
        begin, end = min(start[i] for i in own), max(finish[i] for i in own)
        devices = tuple(sorted({own_cut.stages[i].device for i in own}))
        processors = {problem.costs.processor_of[device] for device in devices}
        worked = _busy(timeline, problem.costs.processor_of, processors, begin, end)
        seconds = end - begin + unseen[number]
        used = worked * loop.trips / n_looked_at(loop) / (len(processors) * seconds or 1.0)
        loops.append(LoopTime(loop, devices, seconds, max(1 - used, 0.0)))
    makespan = timeline.makespan + longest_of(problem.graph, unseen)
    return StageRun(own_cut, start, finish, by_stage, with_them, timeline, tuple(loops), makespan)


def _stage_of(number: int, operation: object) -> int | None:
    """Returns the stage that an operation of a problem with messages is; None for a message.

    Args:
      number: its number, which is that of the stage if there are no messages.
      operation: what it stands for.
    """
    if isinstance(operation, MessagePart):
        return None
    return operation if isinstance(operation, int) else number


def _busy(
    timeline: Timeline,
    processor_of: Sequence[int],
    processors: Collection[int],
    begin: float,
    end: float,
) -> float:
    """Returns the seconds that some processors work between two times, all together."""
    return sum(
        max(0.0, min(finish, end) - max(start, begin))
        for start, finish, device in zip(
            timeline.start, timeline.finish, timeline.devices, strict=True
        )
        if processor_of[device] in processors
    )


def is_makespan(costs: Costs) -> bool:
    """Whether `predicted_seconds` equals the makespan of the operations for every schedule."""
    has_messages = costs.overhead is not None or costs.processor_share is not None
    return not (costs.in_stages or has_messages or (costs.tasks and costs.task_seconds))


def predicted_seconds(problem: Problem, schedule: Schedule) -> float:
    """Predicts the seconds of a valid schedule, by operations or in stages as its costs say.

    With what messages take of processors, and what further tasks add; without
    `Costs.step_seconds`.
    """
    if problem.costs.in_stages:
        makespan = simulate_stages(problem, schedule).makespan
    else:
        makespan = simulate(*with_messages(problem, schedule)).makespan
    return makespan + problem.costs.tasks_seconds(schedule.devices)


def trace_of_stages(problem: Problem, run: StageRun, title: str) -> Trace:
    """Returns the trace of a step that was simulated in stages, with a span for each of them.

    A stage has the name of its longest operation, in a loop with the number of the iteration.

    Args:
      problem: what was scheduled.
      run: the result of `simulate_stages` for it.
      title: what a viewer calls the trace.
    """
    seconds = problem.costs.seconds.max(axis=1).tolist()
    longest: dict[int, int] = {}
    for i, stages in enumerate(run.cut.of):
        for stage in stages:
            longest[stage] = max(longest.get(stage, i), i, key=seconds.__getitem__)
    stage_names = [
        name_of_operation(problem.graph.operations[longest[i]])
        + (f" [{stage.iteration}]" if stage.loop >= 0 else "")
        for i, stage in enumerate(run.cut.stages)
    ]
    names, shown = [], []
    for number, operation in enumerate(run.problem.graph.operations):
        of = _stage_of(number, operation)
        if of is not None:
            shown.append(number)
        elif isinstance(operation, MessagePart):
            of = run.stages.graph.edges[operation.edge].producer
        names.append("" if of is None else stage_names[of])
    return trace_of(run.problem, run.timeline, title, names, shown)
