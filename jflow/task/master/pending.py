"""Finds what the calls of a session wait for, for a client whose call takes long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from jflow.base.cluster import Task
from jflow.base.deadline.clock import now
from jflow.state.watch import (
    SessionWait,
    SessionWaits,
    StatusRequest,
    TaskReport,
    TaskState,
    WaitStatus,
    bounded_name,
)
from jflow.task.master.step_runner import RegisteredStep
from jflow.task.master.view import ServerView
from jflow.task.master.watching import ClusterWatch

N_STEP_IDS = 1 << 40
"""How many step numbers a session has, from its first one on: more than it can use."""

_ANSWER_S = 1.0
"""How long each task has to say what its steps wait for, in seconds."""
_REQUEST = StatusRequest(("pending",))

Entries = Mapping[int, Sequence[tuple[Task, int]]]
"""The tasks of registered steps, by handle, each with the handle of its plans there."""


async def find_waits(
    servers: ServerView, steps: Mapping[int, RegisteredStep], own_ids: Sequence[range]
) -> SessionWaits:
    """Finds what the steps of a session wait for, on all tasks that take part in any of them.

    Args:
      servers: the master's view of the cluster.
      steps: the registered steps by handle.
      own_ids: the numbers that their runs may have.
    """
    entries = {
        handle: [(entry.task, entry.handle) for entry in step.entries.values()]
        for handle, step in steps.items()
    }
    tasks = sorted({task for found in entries.values() for task, _ in found})
    if not tasks:
        return SessionWaits(())
    reports = await ClusterWatch(servers).inspect(_REQUEST, tasks, _ANSWER_S)
    answered = session_waits(reports, entries, own_ids)
    return SessionWaits((*_held_steps(servers, steps), *answered.found))


def connection_waits(servers: ServerView, since: Mapping[Task, float]) -> list[SessionWait]:
    """Returns the waits for tasks to which a session is connecting, and since when."""
    info = servers.info()

    def wait(task: Task) -> SessionWait:
        address = info.cluster.task_address(task.job, task.index)
        what = f"for {task} at {address} to start"
        return SessionWait(0, str(info.task), WaitStatus("", 0, now() - since[task], what))

    return [wait(task) for task in sorted(since)]


def _held_steps(servers: ServerView, steps: Mapping[int, RegisteredStep]) -> Iterator[SessionWait]:
    """Yields the waits of steps that have not begun because the state that they use is held."""
    handles = {step.use: handle for handle, step in steps.items()}
    gate, own = servers.gate, str(servers.info().task)
    for use, since in gate.waiting.values():
        if use in handles and (what := gate.directory.obstacle(use)):
            wait = WaitStatus("", 0, now() - since, bounded_name(what))
            yield SessionWait(handles[use], own, wait)


def session_waits(
    reports: Sequence[TaskReport], entries: Entries, own_ids: Sequence[range]
) -> SessionWaits:
    """Derives what the steps of a session wait for from the reports of tasks; see `find_waits`."""
    handles = {
        (str(task), plans): handle for handle, found in entries.items() for task, plans in found
    }
    found = [
        SessionWait(handles.get((task, wait.plans), 0), task, wait)
        for task, wait in _waits_in(reports)
        if any(int(wait.step, 16) in ids for ids in own_ids)
    ]
    computing = {one.wait.step for one in found if not one.wait.cause}
    waiting = [one for one in found if one.wait.step not in computing]
    lost = _unresponsive_tasks(reports, entries, {one.handle for one in found})
    return SessionWaits((*lost, *waiting))


def _waits_in(reports: Iterable[TaskReport]) -> Iterator[tuple[str, WaitStatus]]:
    for report in reports:
        if (status := report.status) is not None:
            for wait in status.pending:
                yield str(report.task), wait


def _unresponsive_tasks(
    reports: Iterable[TaskReport], entries: Entries, running: set[int]
) -> Iterator[SessionWait]:
    """Yields waits for unresponsive tasks of the running steps; of all if none is known to run."""
    needed = {
        task
        for handle, found in entries.items()
        if handle in running or not running
        for task, _ in found
    }
    for report in reports:
        if report.state is not TaskState.UP and report.task in needed:
            what = f"for {report.task} at {report.address} ({report.state.value}: {report.reason})"
            yield SessionWait(0, str(report.task), WaitStatus("", 0, 0.0, what))
