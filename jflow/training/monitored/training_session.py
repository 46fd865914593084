"""`MonitoredTrainingSession`: a monitored session with the hooks that a training usually has."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

from jflow.base.options import ConfigProto
from jflow.training.event_files import can_write_events
from jflow.training.monitored.checkpoint_hook import CheckpointSaverHook
from jflow.training.monitored.creators import ChiefSessionCreator, WorkerSessionCreator
from jflow.training.monitored.report_hooks import StepCounterHook, SummarySaverHook
from jflow.training.monitored.run_hook import SessionRunHook
from jflow.training.monitored.scaffold import Scaffold
from jflow.training.monitored.session import MonitoredSession


class UseDefault:
    """The type of an interval that is not given, which differs from None, no interval."""

    def __repr__(self) -> str:
        return "USE_DEFAULT"


USE_DEFAULT: Final = UseDefault()

Steps = int | UseDefault | None
Seconds = float | UseDefault | None
Intervals = tuple[int | None, float | None]
"""Steps and seconds between two times."""

FilePath = str | os.PathLike[str]


def MonitoredTrainingSession(  # noqa: N802, PLR0913, PLR0917 - as in TensorFlow
    master: str = "",
    is_chief: bool = True,
    checkpoint_dir: FilePath | None = None,
    scaffold: Scaffold | None = None,
    hooks: Sequence[SessionRunHook] | None = None,
    chief_only_hooks: Sequence[SessionRunHook] | None = None,
    save_checkpoint_secs: Seconds = USE_DEFAULT,
    save_summaries_steps: Steps = USE_DEFAULT,
    save_summaries_secs: Seconds = USE_DEFAULT,
    config: ConfigProto | None = None,
    stop_grace_period_secs: float = 120,
    log_step_count_steps: int | None = 100,
    max_wait_secs: float = 7200,
    save_checkpoint_steps: Steps = USE_DEFAULT,
    summary_dir: FilePath | None = None,
) -> MonitoredSession:
    """Returns a monitored session for one process of a training.

    The chief restores the latest checkpoint or initializes the variables, and saves checkpoints,
    summaries and the rate of steps. Other processes wait until the variables are ready. If both
    intervals of checkpoints, or of summaries, are None or not positive, there are none.

    Args:
      master: target of the session.
      is_chief: whether this process is the chief.
      checkpoint_dir: directory of the checkpoints; None to save none.
      scaffold: what the session needs in addition to its steps; None for the defaults.
      hooks: hooks of this process.
      chief_only_hooks: more hooks, if it is the chief; they are called first.
      save_checkpoint_secs: seconds between checkpoints, 600 by default.
      save_summaries_steps: steps between summaries, 100 by default.
      save_summaries_secs: seconds between summaries.
      config: options of the session.
      stop_grace_period_secs: how long to wait for threads at the end.
      log_step_count_steps: steps between two logs of the rate; None or 0 for none.
      max_wait_secs: how long another process waits for the chief, in seconds.
      save_checkpoint_steps: steps between checkpoints, instead of seconds.
      summary_dir: directory of the event files; None for `checkpoint_dir`. Without the package
        tensorboardX the rate is only logged.

    Raises:
      ValueError: if both intervals of checkpoints, or of summaries, are given.
      RuntimeError: if the graph has no global step, and there is a directory.
      UnimplementedError: if the graph has summaries to save, and tensorboardX is not installed.
    """
    scaffold = scaffold or Scaffold()
    if not is_chief:
        creator = WorkerSessionCreator(scaffold, master, config, max_wait_secs)
        return MonitoredSession(creator, hooks, stop_grace_period_secs)
    summaries = _intervals(save_summaries_steps, save_summaries_secs, (100, None))
    checkpoints = _intervals(save_checkpoint_steps, save_checkpoint_secs, (None, 600))
    all_hooks = [
        *(chief_only_hooks or ()),
        *_reports(summary_dir or checkpoint_dir, scaffold, log_step_count_steps or 0, summaries),
        *_saves(checkpoint_dir, scaffold, checkpoints),
        *(hooks or ()),
    ]
    chief = ChiefSessionCreator(scaffold, master, config, checkpoint_dir)
    return MonitoredSession(chief, all_hooks, stop_grace_period_secs)


def _reports(
    directory: FilePath | None, scaffold: Scaffold, n_steps: int, intervals: Intervals
) -> Iterator[SessionRunHook]:
    """Yields the hooks that report the rate of steps and the summaries of a graph."""
    if directory and n_steps > 0:
        yield StepCounterHook(n_steps, output_dir=directory if can_write_events() else None)
    if directory and any(intervals):
        yield SummarySaverHook(*intervals, output_dir=directory, scaffold=scaffold)


def _saves(
    directory: FilePath | None, scaffold: Scaffold, intervals: Intervals
) -> Iterator[SessionRunHook]:
    """Yields the hook that saves checkpoints."""
    if directory and any(intervals):
        steps, secs = intervals
        yield CheckpointSaverHook(directory, secs, steps, scaffold=scaffold)


def _intervals(steps: Steps, secs: Seconds, default: Intervals) -> Intervals:
    """The steps and seconds between two times; None for each that is not given or not positive."""
    if isinstance(steps, UseDefault) and isinstance(secs, UseDefault):
        return default
    known_steps = None if isinstance(steps, UseDefault) else steps
    known_secs = None if isinstance(secs, UseDefault) else secs
    return (
        known_steps if known_steps and known_steps > 0 else None,
        known_secs if known_secs and known_secs > 0 else None,
    )
