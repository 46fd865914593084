"""Traces of steps: of one by `RunOptions`, of those of a thread, or of all in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax

from jflow.base.context import Stack
from jflow.base.deadline import Deadline
from jflow.base.deadline.clock import now
from jflow.base.options import RunOptions
from jflow.base.values import Array
from jflow.client.runtime.backend import Backend, Executable
from jflow.compiler.graph.members import visible
from jflow.compiler.placement import Explanation
from jflow.plan import Plan
from jflow.plan.trace import Trace
from jflow.plan.trace.measured import StepNames, measured
from jflow.plan.trace.record import TaskRecord
from jflow.plan.trace.step_stats import StepStats
from jflow.plan.xla.compile import CompiledProgram
from jflow.state.effects import Effect
from jflow.task.execution.repeated import run_repeatedly


class TracedStep(NamedTuple):
    """A traced step that has succeeded: the arguments of `measured`, and what was run."""

    records: Sequence[TaskRecord]
    names: StepNames
    start: float
    finish: float
    executable: TracingExecutable

    def trace(self) -> Trace:
        """Returns the trace of the step."""
        return measured(self.records, self.names, self.start, self.finish)


_RECEIPT_S = 10.0
"""How long the end of a block waits for steps that have ended to be taken, in seconds."""

Receive = Callable[[TracedStep], None]
"""Takes a step of a block when it has ended; may be called on any thread."""


class _Blocks:
    """The open blocks in which steps are traced; `n_open` is read without a lock.

    A block is of one thread, or of the process. A step is given to the innermost block of its
    thread, and to all blocks of the process.

    Attributes:
      n_open: the number of open blocks.
    """

    def __init__(self) -> None:
        self.n_open = 0
        self._lock = threading.Lock()
        self._of_thread: Stack[Receive] = Stack(is_strict=False)
        self._of_process: tuple[Receive, ...] = ()
        self._started: set[Future[list[Array]]] = set()
        self._received = threading.Condition()

    def await_receipt(self, started: Future[list[Array]]) -> Callable[[], None]:
        """Notes that receivers take a started step when it ends; returns what says that they have.

        A future wakes those that wait for it before it calls back, so a block could end before it
        has a step whose result was taken in it.
        """
        with self._received:
            self._started.add(started)

        def have_taken() -> None:
            with self._received:
                self._started.discard(started)
                self._received.notify_all()

        return have_taken

    def receivers(self) -> tuple[Receive, ...]:
        """Returns what takes the steps of this thread; empty outside of all blocks."""
        own = self._of_thread.top
        return self._of_process if own is None else (*self._of_process, own)

    @contextmanager
    def of_thread(self, receive: Receive) -> Iterator[None]:
        """Opens a block of this thread."""
        with self._opened(), self._of_thread.pushed(receive):
            yield

    @contextmanager
    def of_process(self, receive: Receive) -> Iterator[None]:
        """Opens a block of all threads."""
        with self._opened():
            with self._lock:
                self._of_process = (*self._of_process, receive)
            try:
                yield
            finally:
                with self._lock:
                    self._of_process = tuple(one for one in self._of_process if one is not receive)

    @contextmanager
    def _opened(self) -> Iterator[None]:
        with self._lock:
            self.n_open += 1
        try:
            yield
        finally:
            with self._received:
                self._received.wait_for(
                    lambda: not any(one.done() for one in self._started), _RECEIPT_S
                )
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
    traces: list[Trace] = []
    with BLOCKS.of_thread(lambda step: traces.append(step.trace())):
        yield traces


class TracingExecutable:
    """A step that is traced while a block asks for it.

    Args:
      inner: the step.
      title: what it is called in reports.
      backend: where it runs.
      explain: explains its placement.
      signature: the types of what it is fed, as text.

    Attributes:
      inner, title, backend, explain, signature: likewise.
    """

    def __init__(
        self,
        inner: Executable,
        title: str,
        backend: Backend,
        explain: Callable[[Deadline], Explanation],
        signature: str,
    ) -> None:
        self.inner = inner
        self.title = title
        self.backend = backend
        self.explain = explain
        self.signature = signature

    @property
    def names(self) -> StepNames:
        """See `Executable.names`."""
        return self.inner.names

    @property
    def plans(self) -> Sequence[Plan]:
        """See `Executable.plans`."""
        return self.inner.plans

    def prepare(self, deadline: Deadline) -> None:
        """See `Executable.prepare`."""
        self.inner.prepare(deadline)

    def single_program(self, n_feeds: int) -> CompiledProgram | None:
        """See `Executable.single_program`."""
        return self.inner.single_program(n_feeds)

    def run(
        self,
        feeds: Sequence[Array],
        deadline: Deadline,
        *,
        effect: Effect | None = None,
        records: list[TaskRecord] | None = None,
    ) -> list[Array]:
        """See `Executable.run`."""
        if not BLOCKS.n_open:
            return self.inner.run(feeds, deadline, effect=effect, records=records)
        with self._recorded(deadline, records) as noted:
            return self.inner.run(feeds, deadline, effect=effect, records=noted)

    def run_steps(
        self, feeds: Sequence[Array], deadline: Deadline, n_steps: int, is_stacked: bool
    ) -> tuple[int, list[Array]]:
        """See `Executable.run_steps`."""
        if not BLOCKS.n_open:
            return self.inner.run_steps(feeds, deadline, n_steps, is_stacked)
        return run_repeatedly(lambda _: self.run(feeds, deadline), n_steps, is_stacked)

    def compute(
        self, feeds: Sequence[Any], deadline: Deadline, *, records: list[TaskRecord] | None = None
    ) -> list[jax.Array]:
        """See `Executable.compute`."""
        if not BLOCKS.n_open:
            return self.inner.compute(feeds, deadline, records=records)
        with self._recorded(deadline, records) as noted:
            return self.inner.compute(feeds, deadline, records=noted)

    def start(
        self,
        feeds: Sequence[Array],
        deadline: Deadline,
        *,
        effect: Effect | None = None,
        records: list[TaskRecord] | None = None,
    ) -> Future[list[Array]]:
        """See `Executable.start`."""
        receivers = BLOCKS.receivers() if BLOCKS.n_open else ()
        if not receivers:
            return self.inner.start(feeds, deadline, effect=effect, records=records)
        noted = [] if records is None else records
        start = now()
        started = self.inner.start(feeds, deadline, effect=effect, records=noted)
        names = self.names

        have_taken = BLOCKS.await_receipt(started)

        def keep(done: Future[list[Array]]) -> None:
            try:
                if not done.cancelled() and done.exception() is None:
                    step = TracedStep(noted, names, start, now(), self)
                    for receive in receivers:
                        receive(step)
            finally:
                have_taken()

        started.add_done_callback(keep)
        return started

    @contextmanager
    def _recorded(
        self, deadline: Deadline, records: list[TaskRecord] | None
    ) -> Iterator[list[TaskRecord] | None]:
        """Yields the records of a step, which is given to the open blocks if it succeeds."""
        receivers = BLOCKS.receivers()
        if not receivers:
            yield records
            return
        noted = [] if records is None else records
        self.prepare(deadline)
        start = now()
        yield noted
        step = TracedStep(noted, self.names, start, now(), self)
        for receive in receivers:
            receive(step)


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


def run_with_metadata(
    executable: TracingExecutable,
    feeds: Sequence[Any],
    deadline: Deadline,
    *,
    options: RunOptions | None,
    metadata: RunMetadata,
) -> list[Any]:
    """Runs a step, and records what its options request.

    Args:
      executable, feeds, deadline: as for `Executable.run`.
      options: those of the call.
      metadata: gets what the options ask for, and nothing else, once the step has succeeded.
    """
    if options is None or not options.trace_level:
        values, traced_step = executable.run(feeds, deadline), None
    else:
        executable.prepare(deadline)
        start, records = now(), list[TaskRecord]()
        values = executable.run(feeds, deadline, records=records)
        traced_step = TracedStep(records, executable.names, start, now(), executable)
    asks_for_plans = options is not None and options.output_partition_graphs
    metadata.fill(traced_step, plans_text(executable) if asks_for_plans else {})
    return values


def plans_text(executable: TracingExecutable) -> dict[str, str]:
    """Returns the text of a step's plans, by task."""
    by_device: dict[str, list[str]] = {}
    for plan in executable.plans:
        by_device.setdefault(str(plan.device.task), []).append(plan.text())
    return {task: "\n\n".join(texts) for task, texts in sorted(by_device.items())}
