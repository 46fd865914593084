"""One step over several tasks, as a state machine: events in, actions out.

A step begins everywhere at once. It succeeds when every task has finished. On the first failure, or
when it is cancelled, the tasks that still run are told to stop, and the step fails with that first
error once nothing of it runs any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jflow.cluster import Task
from jflow.errors import InternalError, OpError


@dataclass(frozen=True)
class StartTask:
    """Start the plans of a task."""

    task: Task


@dataclass(frozen=True)
class StopTask:
    """Cancel the plans of a task, which still has to report that they ended."""

    task: Task


@dataclass(frozen=True)
class Succeed:
    """The step is done."""


@dataclass(frozen=True)
class Fail:
    """The step has failed and nothing of it runs any more."""

    error: OpError


Action = StartTask | StopTask | Succeed | Fail


class Step:
    """The state of one step.

    Args:
      tasks: those that take part.
    """

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._running = dict.fromkeys(tasks)
        self._error: OpError | None = None

    def begin(self) -> list[Action]:
        """The step may start."""
        return [StartTask(task) for task in self._running] or [Succeed()]

    def task_finished(self, task: Task) -> list[Action]:
        """A task has finished its plans."""
        self._leave(task)
        return self._outcome()

    def task_failed(self, task: Task, error: OpError) -> list[Action]:
        """A task's plans ended with an error, or the task was lost."""
        self._leave(task)
        return self._stop(error) + self._outcome()

    def cancelled(self, error: OpError) -> list[Action]:
        """The caller has cancelled the step."""
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
