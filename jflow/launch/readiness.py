"""Waits between tasks of one program: of the chief for the others, and of those for the chief."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress

from jflow.base.cluster import ClusterSpec, Target, Task
from jflow.base.deadline import Deadline
from jflow.base.deadline.clock import now
from jflow.base.handles import Closing
from jflow.base.text import seconds_text
from jflow.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    OpError,
    UnauthenticatedError,
    UnavailableError,
)
from jflow.net.protocol import MasterClient, WatchedCluster
from jflow.net.wire import connect
from jflow.state.watch import StatusRequest, TaskReport, TaskState

_LOG = logging.getLogger(__name__)

CONNECT_S = 5.0
"""How long a server may take to respond, in seconds."""
_POLL_S = 0.5
_NOTICE_S = 10.0
"""The time to the first notice of a wait, and between notices, in seconds."""
_STOP_S = 10.0
_FINAL = (UnauthenticatedError, FailedPreconditionError)
"""Errors that persist however long one waits, such as another token or version."""


class Waiting:
    """A wait with a time limit, which logs every 10 s what it waits for.

    Args:
      task: the task that waits.
      limit: how long it may take, in seconds.
    """

    def __init__(self, task: Task, limit: float) -> None:
        self._task = task
        self._limit = limit
        self._since = self._last_notice = now()

    def goes_on(self, what: str) -> None:
        """Logs what is waited for if a notice is due; raises after the time limit.

        Args:
          what: what is waited for, and why it is not there.

        Raises:
          DeadlineExceededError: if it has taken too long.
        """
        passed = now() - self._since
        if passed > self._limit:
            raise DeadlineExceededError(
                f"{self._task} has waited {seconds_text(self._limit)} for {what}; start what is "
                "missing, correct its address, or give it longer (timeout); tasks that ended with "
                "an earlier chief have to be started again",
                task=str(self._task),
            )
        if now() - self._last_notice >= _NOTICE_S:
            self._last_notice = now()
            _LOG.warning("%s still waits for %s", self._task, what)


def wait_for_tasks(client: MasterClient, limit: float) -> None:
    """Blocks until all tasks of a cluster are up.

    Args:
      client: a session on the server of the task that waits.
      limit: how long they may take, in seconds.

    Raises:
      DeadlineExceededError: if a task does not respond by then; it says which, where, and why.
    """
    waiting = Waiting(client.info.task, limit)
    request = StatusRequest(())
    tasks: list[Task] = []
    while True:
        deadline = Deadline(CONNECT_S + _STOP_S)
        reports = client.call(WatchedCluster.inspect, request, tasks, CONNECT_S, deadline)
        missing_tasks = [report for report in reports if report.state is not TaskState.UP]
        if not missing_tasks:
            return
        tasks = [report.task for report in missing_tasks]
        waiting.goes_on("; ".join(map(_describe_report, missing_tasks)))
        time.sleep(_POLL_S)


def stop_others(client: MasterClient, cluster: ClusterSpec, own: Task) -> None:
    """Stops the servers of all other tasks, workers first because they use the others."""
    others = [task for task in cluster.tasks() if task != own]
    workers = [task for task in others if task.job == "worker"]
    for tasks in (workers, [task for task in others if task not in workers]):
        if not tasks:
            continue
        try:
            reports = client.call(WatchedCluster.stop, tasks, _STOP_S, Deadline(2 * _STOP_S))
        except OpError as error:
            _LOG.warning("%s cannot stop %s: %s", own, ", ".join(map(str, tasks)), error.message)
            continue
        for report in reports:
            if report.state not in (TaskState.UP, TaskState.DOWN):
                _LOG.warning("%s cannot stop %s", own, _describe_report(report))


def _describe_report(report: TaskReport) -> str:
    return f"{report.task} at {report.address} ({report.state.value}: {report.reason})"


class ChiefWatch(Closing):
    """Watches the chief from another task, in a thread, until the program is over.

    Args:
      own: the task that watches.
      cluster: the cluster.
      chief: the task that is watched.
      limit: how long the chief may be away, in seconds.
      over: set when the program is over, or this gives up.
      is_served: whether `own` has a server, which the chief stops when it is done; if not, the
        program is over when no task of the cluster responds any more.

    Attributes:
      over: as given.
      error: why it gave up; None if it did not.
    """

    def __init__(
        self,
        own: Task,
        cluster: ClusterSpec,
        chief: Task,
        limit: float,
        over: threading.Event,
        *,
        is_served: bool,
    ) -> None:
        self.over = over
        self.error: OpError | None = None
        self._own = own
        self._cluster = cluster
        self._chief = chief
        self._limit = limit
        self._is_served = is_served
        self._thread = threading.Thread(
            target=self._run, name=f"jflow watches {chief}", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stops watching. May be called again."""
        self.over.set()

    def _leave(self, failed: bool) -> None:
        self.close()

    def _run(self) -> None:
        try:
            self._watch()
        except OpError as error:
            self.error = error
        except BaseException as error:
            self.error = UnavailableError(f"internal error while watching {self._chief}: {error}")
            raise
        finally:
            self.over.set()

    def _watch(self) -> None:
        """Connects to the chief, again after each loss, until it is gone for too long."""
        was_there = False
        waiting = Waiting(self._own, self._limit)
        while not self.over.is_set():
            try:
                client = self._connected(self._chief)
            except _FINAL:
                raise
            except OpError as error:
                if was_there and not self._is_served and self._are_all_gone():
                    return
                address = self._address(self._chief)
                waiting.goes_on(f"the chief, {self._chief} at {address}: {error.message}")
                self.over.wait(_POLL_S)
                continue
            was_there = True
            while client.is_open and not self.over.wait(_POLL_S):
                pass
            client.close()
            waiting = Waiting(self._own, self._limit)

    def _connected(self, task: Task) -> MasterClient:
        limit = min(CONNECT_S, self._limit)
        client = connect(Target(self._address(task), task=task), limit)
        # A session that has only watched is not listed.
        with suppress(OpError):
            client.call(
                WatchedCluster.inspect, StatusRequest(()), [task], CONNECT_S, Deadline(CONNECT_S)
            )
        return client

    def _are_all_gone(self) -> bool:
        """Whether no task responds: then the chief has stopped them all, not just failed."""
        for task in self._cluster.tasks():
            with suppress(UnavailableError):
                self._connected(task).close()
                return False
        return True

    def _address(self, task: Task) -> str:
        return self._cluster.task_address(task.job, task.index)
