"""Hooks that log, count, summarize and profile steps."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jflow.base.files import replace_file
from jflow.base.options import RunOptions
from jflow.client.session import Session
from jflow.errors import UnimplementedError
from jflow.plan.trace.step_stats import ChromeTimeline
from jflow.state.records import scalar_value
from jflow.training.event_files import FileWriter, FileWriterCache
from jflow.training.monitored.control_hooks import required_global_step
from jflow.training.monitored.run_hook import (
    SecondOrStepTimer,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from jflow.training.monitored.scaffold import Scaffold
from jflow.training.threads import Coordinator

_LOG = logging.getLogger(__name__)


class LoggingTensorHook(SessionRunHook):
    """Logs the values of tensors, at level INFO of the logger `jflow.training.monitored`.

    Args:
      tensors: tensors, or their names, by the tags to log them under; or a list of them.
      every_n_iter: steps between two times.
      every_n_secs: seconds between two times.
      at_end: whether to log them at the end, too; exactly one of the intervals is needed otherwise.
      formatter: function from values by tag to the text to log.

    Raises:
      ValueError: if the interval is missing, given twice or not positive.
    """

    def __init__(
        self,
        tensors: Mapping[str, Any] | Sequence[Any],
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[dict[Any, Any]], str] | None = None,
    ) -> None:
        has_interval = every_n_iter is not None or every_n_secs is not None
        if not has_interval and not at_end:
            raise ValueError(
                "expected at_end, or exactly one of every_n_iter and every_n_secs, got none of them"
            )
        if every_n_iter is not None and every_n_iter <= 0:
            raise ValueError(f"expected a positive every_n_iter, got {every_n_iter}")
        self._timer = SecondOrStepTimer(every_n_secs, every_n_iter) if has_interval else None
        self._tensors = (
            dict(tensors) if isinstance(tensors, Mapping) else {tag: tag for tag in tensors}
        )
        self._at_end = at_end
        self._formatter = formatter

    def begin(self) -> None:
        """Starts counting steps."""
        if self._timer is not None:
            self._timer.reset()
        self._n_steps = 0
        self._is_due = False

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Fetches the tensors if they are to be logged."""
        self._is_due = self._timer is not None and self._timer.should_trigger_for_step(
            self._n_steps
        )
        return SessionRunArgs(self._tensors) if self._is_due else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Logs the values, if they were fetched."""
        if self._is_due:
            self._log(run_values.results)
        self._n_steps += 1

    def end(self, session: Session) -> None:
        """Logs the values at the end, if that was asked for."""
        if self._at_end:
            self._log(session.run(self._tensors))

    def _log(self, values: dict[Any, Any]) -> None:
        seconds = None
        if self._timer is not None:
            seconds, _ = self._timer.update_last_triggered_step(self._n_steps)
        if self._formatter is not None:
            _LOG.info("%s", self._formatter(values))
            return
        text = ", ".join(f"{_label(tag)} = {value}" for tag, value in values.items())
        _LOG.info("%s%s", text, "" if seconds is None else f" ({seconds:.3f} sec)")


def _label(tag: Any) -> str:
    return tag if isinstance(tag, str) else str(getattr(tag, "name", tag))


class StepCounterHook(SessionRunHook):
    """Logs and summarizes how many global steps are made per second.

    Args:
      every_n_steps: steps between two times.
      every_n_secs: seconds between two times; exactly one of both.
      output_dir: directory of an event file that gets the rate as a summary.
      summary_writer: a `FileWriter`, or another object with a method `add_summary`, instead of a
        directory.

    Raises:
      ValueError: unless there is exactly one interval.
      UnimplementedError: if there is a directory, and tensorboardX is not installed.
    """

    def __init__(
        self,
        every_n_steps: int | None = 100,
        every_n_secs: float | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: FileWriter | None = None,
    ) -> None:
        self._timer = SecondOrStepTimer(every_n_secs, every_n_steps)
        self._writer = _writer(output_dir, summary_writer)
        self._seen: int | None = None
        self._has_warned = False

    def begin(self) -> None:
        """Finds the global step."""
        self._global_step = required_global_step(self)
        self._tag = f"{self._global_step.op.name}/sec"

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Reads the global step."""
        return SessionRunArgs(self._global_step)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Reports the rate if it is due."""
        before = int(run_values.results)
        if not self._timer.should_trigger_for_step(before + 1):
            return
        step = int(run_context.session.run(self._global_step))
        if not self._timer.should_trigger_for_step(step):
            self._warn_of_standstill(step)
            return
        seconds, steps = self._timer.update_last_triggered_step(step)
        if seconds is not None and steps is not None:
            rate = steps / seconds if seconds else np.inf
            _LOG.info("%s: %g", self._tag, rate)
            if self._writer is not None:
                self._writer.add_summary(scalar_value(self._tag, rate), step)

    def end(self, session: Session) -> None:
        """Flushes the event file."""
        if isinstance(self._writer, FileWriter):
            self._writer.flush()

    def _warn_of_standstill(self, step: int) -> None:
        if step == self._seen and not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "the global step stays at %d although steps are run; pass global_step= to "
                "minimize() or apply_gradients()",
                step,
            )
        self._seen = step


class SummarySaverHook(SessionRunHook):
    """Writes summaries into an event file, those of the first step and then periodically.

    Args:
      save_steps: steps between two times.
      save_secs: seconds between two times; exactly one of both.
      output_dir: directory of the event file.
      summary_writer: a `FileWriter` instead of a directory.
      scaffold: a `Scaffold`, whose summaries are written.
      summary_op: a serialized summary, or a list of them; exactly one of it and the scaffold.

    Raises:
      ValueError: unless there is exactly one interval, and one source of summaries.
      UnimplementedError: if there is a directory, and tensorboardX is not installed; for a scaffold
        when the session is created, if there are summaries.
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: FileWriter | None = None,
        scaffold: Scaffold | None = None,
        summary_op: Any = None,
    ) -> None:
        if (scaffold is None) == (summary_op is None):
            raise ValueError("expected exactly one of scaffold and summary_op")
        self._timer = SecondOrStepTimer(save_secs, save_steps)
        self._output_dir = output_dir
        self._writer = summary_writer
        self._scaffold = scaffold
        self._summary_op = summary_op
        self._next_step: int | None = None
        self._is_due = False
        if scaffold is None:
            self._open()

    def begin(self) -> None:
        """Finds the global step."""
        self._global_step = required_global_step(self)
        self._next_step = None

    def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """Opens the event file, if there are summaries."""
        if self._summaries():
            self._open()

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Fetches the summaries if they are to be written."""
        self._is_due = self._next_step is None or self._timer.should_trigger_for_step(
            self._next_step
        )
        return SessionRunArgs([self._global_step, self._summaries() if self._is_due else []])

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Writes the summaries, if they were fetched."""
        before, summaries = run_values.results
        step = int(before) + 1
        if self._is_due:
            step = int(run_context.session.run(self._global_step))
            self._timer.update_last_triggered_step(step)
            for summary in summaries:
                assert self._writer is not None
                self._writer.add_summary(summary, step)
        self._next_step = step + 1

    def end(self, session: Session) -> None:
        """Flushes the event file."""
        if self._writer is not None:
            self._writer.flush()

    def _open(self) -> None:
        self._writer = _writer(self._output_dir, self._writer)
        if self._writer is None:
            raise ValueError("a SummarySaverHook requires output_dir= or summary_writer=")

    def _summaries(self) -> list[Any]:
        summary_op = self._summary_op if self._scaffold is None else self._scaffold.summary_op
        if summary_op is None:
            return []
        return list(summary_op) if isinstance(summary_op, list | tuple) else [summary_op]


class ProfilerHook(SessionRunHook):
    """Traces steps periodically and writes a `timeline-STEP.json` that a browser shows.

    `chrome://tracing` and https://ui.perfetto.dev open the files.

    Args:
      save_steps: steps between two times.
      save_secs: seconds between two times; exactly one of both.
      output_dir: directory of the files, which is made if it does not exist.
      show_dataflow: whether to draw what is sent between devices.
      show_memory: must be False: jflow does not record memory.

    Raises:
      ValueError: unless there is exactly one interval.
      UnimplementedError: if `show_memory` is True.
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | os.PathLike[str] = "",
        show_dataflow: bool = True,
        show_memory: bool = False,
    ) -> None:
        self._timer = SecondOrStepTimer(save_secs, save_steps)
        self._output_dir = os.fspath(output_dir)
        self._options = {"show_dataflow": show_dataflow, "show_memory": show_memory}
        if show_memory:
            raise UnimplementedError("jflow does not record memory; pass show_memory=False")
        self._next_step: int | None = None
        self._is_due = False

    def begin(self) -> None:
        """Finds the global step."""
        self._global_step = required_global_step(self)
        self._next_step = None

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Asks for a trace if one is due; never of the first step, which compiles."""
        self._is_due = self._next_step is not None and self._timer.should_trigger_for_step(
            self._next_step
        )
        options = RunOptions(trace_level=RunOptions.FULL_TRACE) if self._is_due else None
        return SessionRunArgs(self._global_step, options=options)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Writes the trace, if there is one."""
        before = int(run_values.results)
        if self._next_step is None:
            self._timer.update_last_triggered_step(before)
        step = before + 1
        if self._is_due:
            step = int(run_context.session.run(self._global_step))
            self._timer.update_last_triggered_step(step)
            self._write(run_values, step)
        self._next_step = step + 1

    def _write(self, run_values: SessionRunValues, step: int) -> None:
        path = os.path.join(self._output_dir, f"timeline-{step}.json")
        os.makedirs(self._output_dir or ".", exist_ok=True)
        timeline = ChromeTimeline(run_values.run_metadata)
        replace_file(path, timeline.generate_chrome_trace_format(**self._options))
        _LOG.info("wrote a trace of step %d to %s", step, path)


def _writer(
    output_dir: str | os.PathLike[str] | None, writer: FileWriter | None
) -> FileWriter | None:
    return FileWriterCache.get(output_dir) if writer is None and output_dir else writer
