"""`ClusterWatch`: collects the reports of a cluster's tasks about themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np

from jflow.base.cluster import Task
from jflow.base.deadline import FOREVER, Deadline
from jflow.base.values import Array
from jflow.errors import InvalidArgumentError, OpError, UnavailableError
from jflow.net.protocol import WorkerService
from jflow.state.journal import JournalPosition, TaskJournal
from jflow.state.watch import StatusRequest, TaskReport, TaskState
from jflow.task.master.view import ServerView

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")

_MAX_S = 60.0
"""The longest time that a task may have to answer, in seconds."""
_CONNECT_S = 4.0
"""How much of it may pass until it is connected, in seconds."""

_NOTHING = np.zeros(0, np.uint8)


class ClusterWatch:
    """Calls tasks concurrently, each with its own time limit; see `WatchedCluster`.

    Args:
      servers: the master's view of the cluster.

    Attributes:
      is_used: whether it was used.
    """

    def __init__(self, servers: ServerView) -> None:
        self._servers = servers
        self.is_used = False

    async def inspect(
        self,
        request: StatusRequest,
        tasks: Sequence[Task],
        seconds: float,
        deadline: Deadline = FOREVER,
    ) -> list[TaskReport]:
        """See `WatchedCluster.inspect`."""
        named = self._named_tasks(tasks)
        return await asyncio.gather(
            *(self._report(task, seconds, partial(self._status, request)) for task in named)
        )

    async def list_coordinators(
        self, tasks: Sequence[Task], seconds: float, deadline: Deadline = FOREVER
    ) -> list[TaskReport]:
        """See `WatchedCluster.list_coordinators`."""
        named = self._named_tasks(tasks)
        return await asyncio.gather(
            *(self._report(task, seconds, self._coordinators) for task in named)
        )

    async def stop(
        self, tasks: Sequence[Task], seconds: float, deadline: Deadline = FOREVER
    ) -> list[TaskReport]:
        """See `WatchedCluster.stop`."""
        named, own = self._named_tasks(tasks), self._servers.info().task
        others = [task for task in named if task != own]
        calls = (self._report(task, seconds, self._stop_task) for task in others)
        reports = await asyncio.gather(*calls)
        if own in named:
            reports.append(await self._report(own, seconds, self._stop_task))
        return reports

    async def read_journals(
        self,
        positions: Sequence[JournalPosition],
        seconds: float,
        deadline: Deadline = FOREVER,
    ) -> list[TaskJournal]:
        """See `WatchedCluster.read_journals`."""
        self._named_tasks([position.task for position in positions])
        limit = min(max(seconds, 0.0), _MAX_S)
        found = await asyncio.gather(*(self._journal(one, limit) for one in positions))
        return [one for one in found if one is not None]

    async def _journal(self, after: JournalPosition, limit: float) -> TaskJournal | None:
        """Reads on in the journal of a task; returns None if it does not answer in time."""
        try:
            async with asyncio.timeout(limit):
                incarnation = await self._connect_task(after.task)
                position = after.position if incarnation == after.incarnation else 0
                proxy = self._servers.tasks[after.task]
                part = await proxy.call(WorkerService.read_journal, incarnation, position)
        except (TimeoutError, OpError):
            return None
        return TaskJournal(after.task, incarnation, part)

    def _named_tasks(self, tasks: Sequence[Task]) -> list[Task]:
        """Returns the named tasks, or all without names; that of this master first."""
        self.is_used = True
        info = self._servers.info()
        known = list(info.cluster.tasks())
        for task in tasks:
            if task not in known:
                raise InvalidArgumentError(
                    f"the cluster of {info.task} has no {task}; it has {', '.join(map(str, known))}"
                )
        return sorted(dict.fromkeys(tasks) or known, key=lambda task: (task != info.task, task))

    async def _report(
        self, task: Task, seconds: float, call: Callable[[Task], Awaitable[Array]]
    ) -> TaskReport:
        """Returns the report of a task, or why it sends none within `seconds`."""
        limit = min(max(seconds, 0.0), _MAX_S)
        address = self._servers.info().cluster.task_address(task.job, task.index)
        try:
            async with asyncio.timeout(limit):
                return TaskReport(task, address, TaskState.UP, packed=await call(task))
        except TimeoutError:
            return TaskReport(task, address, TaskState.SILENT, f"no answer within {limit:g} s")
        except UnavailableError as error:
            return TaskReport(task, address, TaskState.DOWN, error.message)
        except OpError as error:
            return TaskReport(task, address, TaskState.REFUSED, error.message)

    async def _status(self, request: StatusRequest, task: Task) -> Array:
        return await self._call(task, WorkerService.inspect, request)

    async def _coordinators(self, task: Task) -> Array:
        return await self._call(task, WorkerService.list_coordinators)

    async def _stop_task(self, task: Task) -> Array:
        await self._call(task, WorkerService.stop)
        return _NOTHING

    async def _call(
        self,
        task: Task,
        method: Callable[Concatenate[S, P], Awaitable[R]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Calls a task; retries once if its connection breaks, which does not say why."""
        proxy = self._servers.tasks[task]
        incarnation = await self._connect_task(task)
        try:
            return await proxy.call(method, incarnation, *args, **kwargs)
        except UnavailableError:
            incarnation = await self._connect_task(task)
            return await proxy.call(method, incarnation, *args, **kwargs)

    async def _connect_task(self, task: Task) -> int:
        """Connects to a task; returns its incarnation.

        Raises:
          TimeoutError: if it refuses nothing, but does not answer either.
          UnavailableError: if it refuses connections.
        """
        # Before gRPC ends its own attempt to connect, which would look like a refusal.
        async with asyncio.timeout(_CONNECT_S):
            return (await self._servers.tasks[task].connect(_MAX_S, is_lost=True)).incarnation
