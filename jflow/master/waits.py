"""What the calls of a session wait for, for a client whose call takes long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from jflow.cluster import Task
from jflow.master.step_runner import RegisteredStep
from jflow.master.view import ClusterView
from jflow.master.watching import ClusterWatch
from jflow.watch import (
    SessionWait,
    SessionWaits,
    StatusRequest,
    TaskReport,
    TaskState,
    TaskStatus,
    WaitStatus,
)

N_STEP_IDS = 1 << 40
"""How many numbers of steps a session has from its first one: more than it can use."""

_ANSWER_S = 1.0
"""How long each task has to say what its steps wait for, in seconds."""
_REQUEST = StatusRequest(("waits",))


async def find_waits(
    servers: ClusterView, steps: Mapping[int, RegisteredStep], first_id: int
) -> SessionWaits:
    """What the steps of a session wait for, on all tasks that take part in any of them.

    Args:
      servers: the master's view of the cluster.
      steps: the registered steps by handle.
      first_id: the number of the first run of one; others follow it.
    """
    tasks = {task for step in steps.values() for task in step.entries}
    if not tasks:
        return SessionWaits(())
    reports = await ClusterWatch(servers).inspect(_REQUEST, sorted(tasks), _ANSWER_S)
    handles = {
        (str(entry.task), entry.handle): handle
        for handle, step in steps.items()
        for entry in step.entries.values()
    }
    found = [
        SessionWait(handles.get((task, wait.plans), 0), task, wait)
        for task, wait in _waits(reports)
        if 0 <= int(wait.step, 16) - first_id < N_STEP_IDS
    ]
    computing = {one.wait.step for one in found if not one.wait.waits}
    waiting = [one for one in found if one.wait.step not in computing]
    running = {one.handle for one in found}
    lost = _unanswered(reports, steps, running)
    return SessionWaits((*lost, *waiting))


def _waits(reports: Iterable[TaskReport]) -> Iterator[tuple[str, WaitStatus]]:
    for report in reports:
        if report.state is TaskState.UP:
            for wait in TaskStatus.from_bytes(report.status).waits:
                yield str(report.task), wait


def _unanswered(
    reports: Sequence[TaskReport], steps: Mapping[int, RegisteredStep], running: set[int]
) -> Iterator[SessionWait]:
    """The tasks that do not answer, of the steps that run; of all if none is known to run."""
    needed: set[Task] = set()
    for handle, step in steps.items():
        if handle in running or not running:
            needed |= step.entries.keys()
    for report in reports:
        if report.state is not TaskState.UP and report.task in needed:
            what = f"for {report.task} at {report.address} ({report.state.value}: {report.reason})"
            yield SessionWait(0, str(report.task), WaitStatus("", 0, 0.0, what))
