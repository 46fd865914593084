"""`performance_report`: traces all steps of this process in a block, and writes what they did."""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from queue import Empty, SimpleQueue

from jflow.base.cards import Card, Carded
from jflow.base.deadline import Deadline
from jflow.base.deadline.clock import now
from jflow.base.files import replace_file
from jflow.base.text import seconds_text
from jflow.client.runtime.backend import Backend
from jflow.client.runtime.tracing import BLOCKS, TracedStep, TracingExecutable
from jflow.compiler.placement import Explanation
from jflow.view.captions import counted
from jflow.view.measurements import ContainerMemory, Measurements, StepRun
from jflow.view.report import report_page, summary
from jflow.view.timeline import timeline

_PERIOD_S = 1.0
"""How often the memory of containers is looked at, in seconds."""
_PATIENCE_S = 5.0
"""How long a cluster may take to say what a report asks, in seconds."""


class PerformanceReport(Carded):
    """What the steps of a block did; empty until the block has ended.

    Attributes:
      measurements: the figures, as data.
    """

    def __init__(self) -> None:
        self.measurements = Measurements(0.0)
        self._title = ""

    def fill(self, measurements: Measurements, title: str) -> None:
        """Sets what the report tells of."""
        self.measurements, self._title = measurements, title

    def html(self) -> str:
        """Returns the report as an HTML document that needs nothing else."""
        return report_page(self.measurements, self._title)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the report to a file of HTML.

        Raises:
          OSError: if the file cannot be written.
        """
        replace_file(path, self.html(), follows=True)

    def __repr__(self) -> str:
        measured = self.measurements
        took = seconds_text(measured.seconds)
        return f"<jflow.PerformanceReport of {counted(measured.n_steps, 'step')} in {took}>"

    def _card(self) -> Card:
        note = 'report.save("r.html") writes all of it.'
        picture = timeline(self.measurements.trace) if self.measurements.runs else ""
        return Card("PerformanceReport", "", summary(self.measurements), (), picture, note)


@contextmanager
def performance_report(
    path: str | os.PathLike[str] | None = None, *, max_steps: int = 1000
) -> Iterator[PerformanceReport]:
    """A context manager that reports what all steps of this process did while it was open.

    It traces the steps of sessions and functions, what variables and queues do at once, and the
    closures of coordinators, on all threads. The report has a timeline of all tasks, the time by
    operation, the bytes by edge, what waited for what, the updates that asynchronous updates
    missed, the memory of containers, and the predicted times of placements beside the measured
    ones. A traced step waits for the results of each program before it starts the next one of a
    plan.

    Args:
      path: a file of HTML to write when the block ends, even by an error; None for none.
      max_steps: the first so many steps are shown; the others are counted.

    Yields:
      The report, which notebooks show, and which is empty until the block has ended.

    Raises:
      ValueError: if `max_steps` is not positive.
      OSError: if the file cannot be written; without its directory, before the block begins.
    """
    if max_steps < 1:
        raise ValueError(f"max_steps must be at least 1, got {max_steps}")
    if path is not None and not (folder := Path(path).absolute().parent).is_dir():
        raise FileNotFoundError(f"there is no directory {folder} for the report {Path(path).name}")
    report, started = PerformanceReport(), datetime.now()
    collector = _Collector(max_steps)
    try:
        with BLOCKS.of_process(collector.add):
            yield report
    finally:
        report.fill(collector.end(), f"jflow performance report, {started:%Y-%m-%d %H:%M:%S}")
        if path is not None:
            report.save(path)


class _Collector:
    """Collects the steps of a block; a thread of its own asks clusters what is to be known.

    Steps end on any thread, even on those that receive replies, which must not wait.

    Args:
      max_steps: how many steps are kept.
    """

    def __init__(self, max_steps: int) -> None:
        self._max_steps = max_steps
        self._start = now()
        self._lock = threading.Lock()
        self._steps: list[TracedStep] = []
        self._n_steps = 0
        self._titles: dict[TracingExecutable, str] = {}
        self._known: dict[Hashable, str] = {}
        self._explanations: dict[str, Explanation | str] = {}
        self._backends: dict[int, Backend] = {}
        self._memory: dict[tuple[str, str], ContainerMemory] = {}
        self._new: SimpleQueue[TracingExecutable | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._ask, name="jflow report", daemon=True)
        self._thread.start()

    def add(self, step: TracedStep) -> None:
        """Takes a step that has ended."""
        executable = step.executable
        with self._lock:
            self._n_steps += 1
            if len(self._steps) < self._max_steps:
                self._steps.append(step)
            if executable in self._titles:
                return
            # The same step on another connection, such as another thread's, is the same here.
            key = executable.title, executable.signature, *step.names.labels.items()
            is_new = key not in self._known
            if is_new:
                self._known[key] = self._unique(executable.title)
            self._titles[executable] = self._known[key]
        if is_new:
            self._new.put(executable)

    def end(self) -> Measurements:
        """Returns what was measured, once what was asked is known."""
        seconds = now() - self._start
        self._new.put(None)
        self._thread.join(_PATIENCE_S)  # what is not known by then is not shown
        with self._lock:
            steps, n_steps = [*self._steps], self._n_steps
            explanations, memory = {**self._explanations}, sorted(self._memory.values())
        runs = [
            StepRun(
                self._titles[step.executable],
                step.start - self._start,
                step.finish - step.start,
                step.trace(),
            )
            for step in steps
        ]
        unknown = dict.fromkeys(self._titles.values(), "it was not known when the block ended")
        return Measurements(seconds, runs, n_steps, unknown | explanations, memory)

    def _unique(self, title: str) -> str:
        """Returns a title that no other step has."""
        known, number, unique = {*self._known.values()}, 1, title
        while unique in known:
            number += 1
            unique = f"{title} ({number})"
        return unique

    # On the thread of the report ----------------------------------------------------------------

    def _ask(self) -> None:
        while True:
            try:
                executable = self._new.get(timeout=_PERIOD_S)
            except Empty:
                self._look_at_memory()
                continue
            if executable is None:
                self._look_at_memory()
                return
            explained = _explained(executable)
            with self._lock:
                self._explanations[self._titles[executable]] = explained
            self._backends[id(executable.backend)] = executable.backend
            if self._new.empty():
                self._look_at_memory()

    def _look_at_memory(self) -> None:
        for backend in self._backends.values():
            try:
                found = backend.containers(Deadline(_PATIENCE_S))
            except Exception:  # the session is closed, or its cluster lost: the rest is shown
                continue
            for task, containers in found.items():
                for one in containers:
                    key = str(task), one.name
                    row = ContainerMemory(*key, one.n_variables, one.n_resources, one.n_bytes)
                    former = self._memory.get(key)
                    if former is None or row.n_bytes >= former.n_bytes:
                        with self._lock:
                            self._memory[key] = row


def _explained(executable: TracingExecutable) -> Explanation | str:
    """Explains the placement of a step, or says why that is not possible."""
    try:
        return executable.explain(Deadline(_PATIENCE_S))
    except Exception as error:  # of any class: strategies are the user's
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
