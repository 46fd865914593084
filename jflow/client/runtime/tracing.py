"""Traces of steps, requested by `RunOptions` or by a `trace_steps` context."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from jflow.base.context import Stack
from jflow.base.deadline import Deadline
from jflow.base.deadline.clock import now
from jflow.base.options import RunOptions
from jflow.client.runtime.backend import Executable
from jflow.compiler.graph.members import visible
from jflow.plan.trace import Trace
from jflow.plan.trace.measured import StepNames, measured
from jflow.plan.trace.record import TaskRecord
from jflow.plan.trace.step_stats import StepStats


class RunMetadata:
    """Metadata of a step that has run: `Session.run` fills in what its `RunOptions` request.

    Attributes:
      partition_plans: by task the text of the plans that it ran, if they were asked for.
    """

    def __init__(self) -> None:
        self.partition_plans: dict[str, str] = {}
        self._traced_step: TracedStep | None = None
        self._step_stats = StepStats()

    @property
    def step_stats(self) -> StepStats:
        """Times of what ran on each device of all tasks; empty if the step was not traced."""
        traced_step = self._traced_step
        if traced_step is not None:
            self._step_stats, self._traced_step = StepStats(traced_step.trace()), None
        return self._step_stats

    @property
    def trace(self) -> Trace:
        """The trace of the step; empty if it was not traced."""
        return self.step_stats.trace

    def fill(self, traced_step: TracedStep | None, partition_plans: dict[str, str]) -> None:
        """Replaces the metadata of an earlier step.

        Args:
          traced_step: what its trace is made of, at first use; None for no trace.
          partition_plans: the texts of the plans.
        """
        self._traced_step, self._step_stats = traced_step, StepStats()
        self.partition_plans = partition_plans

    def __repr__(self) -> str:
        return f"<jflow.RunMetadata of {len(self.trace.spans)} spans>"

    def __dir__(self) -> list[str]:
        return visible(super().__dir__(), "fill")

    @property
    def partition_graphs(self) -> tuple[str, ...]:
        """The values of `partition_plans`: one plan text per task."""
        return tuple(self.partition_plans.values())


class TracedStep(NamedTuple):
    """The records of a traced step, which are the arguments of `measured`."""

    records: Sequence[TaskRecord]
    names: StepNames
    start: float
    finish: float

    def trace(self) -> Trace:
        """Returns the trace of the step."""
        return measured(*self)


def trace_run(
    executable: Executable, feeds: Sequence[Any], deadline: Deadline, *, as_jax: bool = False
) -> tuple[list[Any], TracedStep]:
    """Runs a step and traces it.

    Args:
      executable: the step.
      feeds, deadline: as for `Executable.run`.
      as_jax: whether feeds and values are those of `Executable.compute`.
    """
    executable.prepare(deadline)
    start = now()
    values, records = executable.traced(feeds, deadline, as_jax=as_jax)
    return values, TracedStep(records, executable.names, start, now())


def run_with_metadata(
    executable: Executable,
    feeds: Sequence[Any],
    deadline: Deadline,
    *,
    options: RunOptions | None,
    metadata: RunMetadata | None,
) -> list[Any]:
    """Runs a step; records what its options and the current `trace_steps` context request.

    Args:
      executable, feeds, deadline: as for `Executable.run`.
      options: those of the call.
      metadata: gets what the options ask for, and nothing else, once the step has succeeded.
    """
    traces = BLOCKS.current
    if metadata is None or options is None:
        options = RunOptions()
    if traces is None and not options.trace_level:
        values, traced_step = executable.run(feeds, deadline), None
    else:
        values, traced_step = trace_run(executable, feeds, deadline)
        if traces is not None:
            traces.append(traced_step.trace())
    if metadata is not None:
        texts = plans_text(executable) if options.output_partition_graphs else {}
        metadata.fill(traced_step if options.trace_level else None, texts)
    return values


def plans_text(executable: Executable) -> dict[str, str]:
    """Returns the text of a step's plans, by task."""
    by_device: dict[str, list[str]] = {}
    for plan in executable.plans:
        by_device.setdefault(str(plan.device.task), []).append(plan.text())
    return {task: "\n\n".join(texts) for task, texts in sorted(by_device.items())}


class _Blocks:
    """The open `trace_steps` contexts of all threads; `n_open` is read without a lock.

    Attributes:
      n_open: the number of open contexts on all threads.
    """

    def __init__(self) -> None:
        self.n_open = 0
        self._lock = threading.Lock()
        self._stack: Stack[list[Trace]] = Stack(is_strict=False)

    @property
    def current(self) -> list[Trace] | None:
        """The traces of this thread's innermost context; None outside of all."""
        return self._stack.top

    @contextmanager
    def block(self) -> Iterator[list[Trace]]:
        """Opens a context on this thread."""
        with self._lock:
            self.n_open += 1
        try:
            with self._stack.pushed([]) as traces:
                yield traces
        finally:
            with self._lock:
                self.n_open -= 1


BLOCKS = _Blocks()


@contextmanager
def trace_steps() -> Iterator[list[Trace]]:
    """A context manager that traces each step that this thread runs, of functions and sessions.

    It yields a list, to which a `jflow.plan.trace.Trace` is appended for each step when it ends. A
    traced step waits for the results of each program before it starts the next one of a plan, so
    that it knows when they were computed.
    """
    with BLOCKS.block() as traces:
        yield traces
