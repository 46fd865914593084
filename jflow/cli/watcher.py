"""`Watcher`: a connection to a cluster that is watched, through any server that answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from msgspec.structs import asdict, replace

from jflow.base.cluster import Target, Task
from jflow.base.deadline import Deadline
from jflow.base.handles import Closing
from jflow.client.runtime.members import read_members
from jflow.errors import UnavailableError
from jflow.net.protocol import MasterClient, MasterSession, ServerInfo, WatchedCluster
from jflow.net.wire import connect
from jflow.state.core import ClusterMembers
from jflow.state.members import MemberList
from jflow.state.watch import (
    MAX_ITEMS,
    CoordinatorList,
    CoordinatorStatus,
    StatusRequest,
    TaskReport,
    TaskState,
    TaskStatus,
)

PAGE = MAX_ITEMS
"""How many items of a kind are requested at a time."""
_GRACE_S = 5.0
"""How much longer than its tasks the master has to answer, in seconds."""
_N_SHOWN = 3
"""How many servers that do not answer an error tells of."""


@dataclass(frozen=True)
class Seen:
    """A snapshot of a task.

    Attributes:
      report: how it answers.
      status: what it says; None unless it is up.
    """

    report: TaskReport
    status: TaskStatus | None

    @property
    def is_up(self) -> bool:
        """Whether the task is up."""
        return self.status is not None

    def as_json(self, kinds: Iterable[str] = ()) -> dict[str, Any]:
        """Returns the task as JSON data, with lists of these kinds, empty unless the task is up."""
        report = self.report
        head = {
            "name": str(report.task),
            "address": report.address,
            "state": report.state.value,
            "reason": report.reason,
        }
        facts = {name: getattr(self.status, name, None) for name in _FACTS}
        return head | facts | {kind: [asdict(one) for one in self.items(kind)] for kind in kinds}

    def items(self, kind: str) -> Sequence[Any]:
        """Returns the listed records of a kind."""
        return () if self.status is None else getattr(self.status, kind)

    def listed(self, kind: str) -> list[dict[str, Any]]:
        """Returns the listed records of a kind as JSON data, each with the name of the task."""
        return [{"task": str(self.report.task)} | asdict(one) for one in self.items(kind)]


_FACTS = (
    *("incarnation", "version", "pid", "uptime_s", "memory_bytes", "cpu_s", "n_begun"),
    *("n_compiled", "totals"),
)


class Watcher(Closing):
    """A connection to a cluster, made when it is needed, and again after it broke.

    Args:
      targets: servers of the cluster; the first one that answers is used. If the very first does
        not answer, all others are called at once.
      seconds: how long a server or a task has to answer.
    """

    def __init__(self, targets: Sequence[str | Target], seconds: float) -> None:
        if not seconds > 0:
            raise ValueError(f"--timeout must be more than 0, got {seconds:g}")
        self._targets = targets
        self._seconds = seconds
        self._client: MasterClient | None = None

    @property
    def info(self) -> ServerInfo:
        """The info of the server that answers. Raises UnavailableError if there is none."""
        return self._connected().info

    def inspect(self, kinds: Iterable[str], tasks: Sequence[Task] = ()) -> list[Seen]:
        """Returns all tasks, or those that are named, with all of their items of these kinds.

        Raises:
          UnavailableError: if no server answers.
          InvalidArgumentError: if there is no such task.
        """
        request = StatusRequest(tuple(kinds), limit=PAGE)
        seen = self.page(request, tasks)
        while more := [one.report.task for one in seen if _has_more(one, request)]:
            request = replace(request, first=request.first + request.limit)
            pages = {page.report.task: page.status for page in self.page(request, more)}
            seen = [_with_page(one, pages.get(one.report.task), request) for one in seen]
        return seen

    def page(self, request: StatusRequest, tasks: Sequence[Task]) -> list[Seen]:
        """Returns tasks with a page of their items. Raises as `inspect`."""
        call, deadline = self._connected().call, self._deadline()
        reports = call(WatchedCluster.inspect, request, tasks, self._seconds, deadline)
        return [Seen(report, report.status) for report in reports]

    def coordinators(self) -> list[tuple[Task, CoordinatorStatus]]:
        """Returns the coordinators of all clients, each with the task that has its status.

        Raises:
          UnavailableError: if no server answers.
        """
        client = self._connected()
        rpc, deadline = WatchedCluster.list_coordinators, self._deadline()
        found = []
        for report in client.call(rpc, (), self._seconds, deadline):
            if report.state is TaskState.UP:
                listed = CoordinatorList.from_bytes(report.packed.tobytes())
                found += [(report.task, one) for one in listed.coordinators]
        return found

    def stop(self, tasks: Sequence[Task] = ()) -> Sequence[TaskReport]:
        """Stops the servers of tasks, of all if none is named."""
        return self._connected().call(WatchedCluster.stop, tasks, self._seconds, self._deadline())

    def members(self) -> MemberList:
        """Returns the list of members that the first server that answers knows."""
        return read_members(self._connected(), self._deadline())

    def drain(self, task: str, successor: str, hold_s: float) -> MemberList:
        """Moves everything from a task to another one and removes it; see `ClusterMembers.drain`.

        Args:
          task, successor: the tasks; "" for the next one of the job.
          hold_s: the longest time that steps are held, in seconds.
        """
        deadline = Deadline(self._seconds + 2 * hold_s)
        drain = ClusterMembers.drain
        packed = self._connected().call(drain, task, successor, hold_s, self._seconds, deadline)
        return MemberList.from_bytes(packed)

    def reset(self, containers: Sequence[str]) -> None:
        """Frees containers on all tasks, which must be up."""
        deadline = self._deadline()
        self._connected().call(MasterSession.reset, containers, self._seconds, deadline, ())

    def close(self) -> None:
        """Ends the connection. May be called again."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _leave(self, failed: bool) -> None:
        self.close()

    def _deadline(self) -> Deadline:
        return Deadline(self._seconds + _GRACE_S)

    def _connected(self) -> MasterClient:
        if self._client is not None and self._client.is_open:
            return self._client
        self.close()
        first, *others = self._targets
        attempts = [self._tried(first)]
        if others and isinstance(attempts[0], UnavailableError):
            with ThreadPoolExecutor(len(others)) as pool:
                attempts += pool.map(self._tried, others)
        clients = [one for one in attempts if isinstance(one, MasterClient)]
        for client in clients[1:]:
            client.close()
        if clients:
            self._client = clients[0]
            return self._client
        errors = [one for one in attempts if isinstance(one, UnavailableError)]
        if len(errors) == 1:
            raise errors[0]
        messages = "; ".join(dict.fromkeys(error.message for error in errors[:_N_SHOWN]))
        more = f"; and {len(errors) - _N_SHOWN} more" if len(errors) > _N_SHOWN else ""
        raise UnavailableError(
            f"none of the {len(errors)} servers of the cluster answers: {messages}{more}"
        )

    def _tried(self, target: str | Target) -> MasterClient | UnavailableError:
        """Returns a connection to a server, or why there is none."""
        try:
            return connect(target, self._seconds)
        except UnavailableError as error:
            return error


def _has_more(seen: Seen, request: StatusRequest) -> bool:
    """Returns whether a task has items that it has not listed yet."""
    if seen.status is None:
        return False
    return max(seen.status.totals.values(), default=0) > request.first + request.limit


def _with_page(seen: Seen, page: TaskStatus | None, request: StatusRequest) -> Seen:
    """Returns a task with one more page of its items; what it lost meanwhile is not listed."""
    if page is None or seen.status is None:
        return seen
    longer: dict[str, Any] = {
        kind: (*seen.items(kind), *getattr(page, kind)) for kind in request.kinds
    }
    return Seen(seen.report, replace(seen.status, totals=page.totals, **longer))
