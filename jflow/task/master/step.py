"""One step over several tasks, as a state machine: events in, actions out.

A step starts on all tasks at once. It succeeds when every task has finished. On the first failure,
or on cancellation, the tasks that still run are told to stop, and the step fails with that first
error once none of them runs.

Invariants:

* `_running` holds exactly the tasks that were started and have not reported an end. A task reports
  one end, also after `StopTask`; a second one is an InternalError.
* The first error is kept and only it is reported: errors of tasks that were stopped are its
  consequences. `StopTask` is therefore returned at most once for each task.
* `Succeed` or `Fail` is the last action, returned by the event that empties `_running`. So a step
  never ends while a plan of it still runs and may touch state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jflow.base.cluster import Task
from jflow.errors import InternalError, OpError


@dataclass(frozen=True)
class StartTask:
    """Action: start the plans of a task."""

    task: Task


@dataclass(frozen=True)
class StopTask:
    """Action: cancel the plans of a task, which reports their end afterwards."""

    task: Task


@dataclass(frozen=True)
class Succeed:
    """Action: complete the step."""


@dataclass(frozen=True)
class Fail:
    """Action: fail the step; none of its plans runs any more."""

    error: OpError


Action = StartTask | StopTask | Succeed | Fail


class Step:
    """The state of one step. Each method is an event and returns the actions to execute.

    Args:
      tasks: the tasks that take part.
    """

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._running = dict.fromkeys(tasks)
        self._error: OpError | None = None

    def begin(self) -> list[Action]:
        """Event: the step begins."""
        return [StartTask(task) for task in self._running] or [Succeed()]

    def task_finished(self, task: Task) -> list[Action]:
        """Event: a task has finished its plans."""
        self._leave(task)
        return self._outcome()

    def task_failed(self, task: Task, error: OpError) -> list[Action]:
        """Event: a task's plans failed or were stopped, or the task was lost."""
        self._leave(task)
        return self._stop(error) + self._outcome()

    def cancelled(self, error: OpError) -> list[Action]:
        """Event: the caller cancelled the step."""
        return self._stop(error) if self._running else []

    def _leave(self, task: Task) -> None:
        if task not in self._running:
            raise InternalError(f"{task} reported the end of plans that it does not run")
        del self._running[task]

    def _stop(self, error: OpError) -> list[Action]:
        if self._error is not None:
            return []
        self._error = error
        return [StopTask(task) for task in self._running]

    def _outcome(self) -> list[Action]:
        if self._running:
            return []
        return [Succeed()] if self._error is None else [Fail(self._error)]
