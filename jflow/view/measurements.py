"""`Measurements`: what the steps of a performance report did, as tables."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

from jflow.base.text import natural
from jflow.compiler.placement import Explanation
from jflow.plan.trace import Span, Trace, Transfer
from jflow.plan.trace.spans import CALL, PROGRAM, STEP, WAIT

T = TypeVar("T", Span, Transfer)

STEPS = "steps of this process"
"""The lane of a timeline that shows when each step began and ended."""


@dataclass(frozen=True)
class StepRun:
    """A run of a step.

    Attributes:
      title: what the step is called; runs of one step have the same title.
      start: when it began, in seconds from the start of the report.
      seconds: how long the call took.
      trace: its trace, whose times are from its own start.
    """

    title: str
    start: float
    seconds: float
    trace: Trace


class ContainerMemory(NamedTuple):
    """The memory that a container of a task held at most, in bytes, when it was looked at."""

    task: str
    container: str
    n_variables: int
    n_resources: int
    n_bytes: int


@dataclass(frozen=True)
class StepFigures:
    """The times of all traced runs of one step, in seconds.

    Attributes:
      n_runs: how many runs were traced.
      total: the sum of their times.
      predicted: the time that its placement was predicted to take; None if it is not known.
      n_bytes: what a run transfers, as a mean.
    """

    title: str
    n_runs: int
    total: float
    median: float
    slowest: float
    predicted: float | None
    n_bytes: float


@dataclass(frozen=True)
class SpanFigures:
    """The times of all spans of one name, kind and device, in seconds.

    Attributes:
      line: the user's line that made the operation; "" if it is not known.
      predicted: what the operations of the program were predicted to take together; None if that
        is not known.
    """

    name: str
    kind: str
    device: str
    line: str
    n: int
    total: float
    median: float
    longest: float
    predicted: float | None = None


@dataclass(frozen=True)
class EdgeFigures:
    """The transfers of one tensor from a device to another."""

    name: str
    source: str
    target: str
    n: int
    n_bytes: int
    total: float
    longest: float


@dataclass(frozen=True)
class UpdateFigures:
    """The updates of a variable by steps that had read it before, and how many they missed."""

    variable: str
    device: str
    n: int
    mean_missed: float
    most_missed: int


@dataclass(frozen=True)
class Measurements:
    """What a performance report tells of.

    Attributes:
      seconds: how long the block was open.
      runs: the runs that were traced, in the order in which they ended.
      n_steps: how many runs there were, with those of which nothing is kept.
      explanations: by title the placement of a step, or why it is not known.
      memory: the memory of containers.
    """

    seconds: float
    runs: Sequence[StepRun] = ()
    n_steps: int = 0
    explanations: Mapping[str, Explanation | str] = field(default_factory=dict)
    memory: Sequence[ContainerMemory] = ()

    @cached_property
    def trace(self) -> Trace:
        """All runs on one axis of time, with a span for each step."""
        spans: list[Span] = []
        transfers: list[Transfer] = []
        for run in self.runs:
            spans.append(Span(run.title, STEP, STEPS, run.start, run.start + run.seconds))
            spans += [_moved(span, run.start) for span in run.trace.spans]
            transfers += [_moved(one, run.start) for one in run.trace.transfers]
        return Trace("all steps", tuple(spans), tuple(transfers))

    @cached_property
    def steps(self) -> Sequence[StepFigures]:
        """The figures of each step, that with the longest total first."""
        by_title: defaultdict[str, list[StepRun]] = defaultdict(list)
        for run in self.runs:
            by_title[run.title].append(run)
        figures = [self._step(title, runs) for title, runs in by_title.items()]
        return sorted(figures, key=lambda one: -one.total)

    def _step(self, title: str, runs: Sequence[StepRun]) -> StepFigures:
        seconds = [run.seconds for run in runs]
        n_bytes = sum(one.n_bytes for run in runs for one in run.trace.transfers)
        explained = self.explanations.get(title)
        predicted = explained.predicted_seconds if isinstance(explained, Explanation) else None
        median = statistics.median(seconds)
        total = sum(seconds)
        return StepFigures(
            title, len(runs), total, median, max(seconds), predicted, n_bytes / len(runs)
        )

    def extremes(self, title: str) -> tuple[StepRun, StepRun]:
        """Returns a run of a step that took the median time, and the slowest one."""
        runs = sorted((run for run in self.runs if run.title == title), key=lambda run: run.seconds)
        return runs[(len(runs) - 1) // 2], runs[-1]

    @cached_property
    def seconds_in_steps(self) -> float:
        """How long at least one traced step ran."""
        return _covered((run.start, run.start + run.seconds) for run in self.runs)

    @cached_property
    def busy(self) -> Mapping[str, float]:
        """By device the seconds in which it ran a program or its host a function."""
        intervals: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        for span in self.trace.spans:
            if span.kind in (PROGRAM, CALL):
                intervals[span.device].append((span.start, span.finish))
        devices = sorted(self.trace.devices, key=natural)
        return {device: _covered(intervals[device]) for device in devices if device != STEPS}

    @cached_property
    def operations(self) -> Sequence[SpanFigures]:
        """Programs and calls by name and device, that with the longest total first."""
        return self._spans(PROGRAM, CALL)

    @cached_property
    def waiting(self) -> Sequence[SpanFigures]:
        """What was waited for by name and device, the longest total first."""
        return self._spans(WAIT)

    def _spans(self, *kinds: str) -> Sequence[SpanFigures]:
        spans: defaultdict[tuple[str, str, str], list[Span]] = defaultdict(list)
        titles: dict[tuple[str, str, str], str] = {}
        for run in self.runs:
            for span in run.trace.spans:
                if span.kind in kinds:
                    key = span.name, span.kind, span.device
                    spans[key].append(span)
                    titles[key] = run.title
        figures = []
        for key, group in spans.items():
            seconds = [span.seconds for span in group]
            total, median, longest = sum(seconds), statistics.median(seconds), max(seconds)
            line = str(group[-1].details.get("made at", ""))
            predicted = self._predicted(titles[key], group[-1])
            figures.append(SpanFigures(*key, line, len(group), total, median, longest, predicted))
        return sorted(figures, key=lambda one: -one.total)

    def _predicted(self, title: str, span: Span) -> float | None:
        known = self._operation_seconds.get(title)
        if known is None or span.kind != PROGRAM:
            return None
        operations = str(span.details.get("operations", "")).split(", ")
        return sum(known.get(operation, 0.0) for operation in operations)

    @cached_property
    def _operation_seconds(self) -> Mapping[str, Mapping[str, float]]:
        """By step and operation the time that the operation was predicted to take."""
        return {
            title: {span.name: span.seconds for span in explained.trace.spans}
            for title, explained in self.explanations.items()
            if isinstance(explained, Explanation)
        }

    @cached_property
    def edges(self) -> Sequence[EdgeFigures]:
        """Transfers by tensor and devices, that with the most bytes first."""
        edges: defaultdict[tuple[str, str, str], list[Transfer]] = defaultdict(list)
        for run in self.runs:
            for one in run.trace.transfers:
                edges[one.name, one.source, one.target].append(one)
        figures = []
        for key, group in edges.items():
            seconds = [one.seconds for one in group]
            n_bytes = sum(one.n_bytes for one in group)
            figures.append(EdgeFigures(*key, len(group), n_bytes, sum(seconds), max(seconds)))
        return sorted(figures, key=lambda one: (-one.n_bytes, -one.total))

    @cached_property
    def updates(self) -> Sequence[UpdateFigures]:
        """Updates by variable, that which missed the most first."""
        missed: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for run in self.runs:
            for one in run.trace.updates:
                missed[one.variable, one.device].append(one.n_missed)
        figures = [
            UpdateFigures(*key, len(counts), statistics.fmean(counts), max(counts))
            for key, counts in missed.items()
        ]
        return sorted(figures, key=lambda one: (-one.mean_missed, natural(one.variable)))

    @cached_property
    def clock_error(self) -> float:
        """By how much the times of tasks may be shifted at most, in seconds."""
        errors = [
            float(value)
            for run in self.runs
            for name, value in run.trace.details.items()
            if name.startswith("clock error")
        ]
        return max(errors, default=0.0)


def _moved(one: T, seconds: float) -> T:
    return replace(one, start=one.start + seconds, finish=one.finish + seconds)


def _covered(intervals: Iterable[tuple[float, float]]) -> float:
    """Returns the length of the union of intervals."""
    total, end = 0.0, float("-inf")
    for start, finish in sorted(intervals):
        total += max(finish - max(start, end), 0.0)
        end = max(end, finish)
    return total
