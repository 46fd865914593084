"""`Registrar`: registers the plans of a session's steps on the tasks that take part.

A task forgets what was registered over a connection when that ends, also if it ends because the
task was stopped for a while. Its variables stay as long as its process lives. So the plans are
registered again over the next connection, if the same incarnation answers there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from jflow.base.cluster import Task
from jflow.base.deadline import FOREVER, Deadline
from jflow.errors import AbortedError, RestartedError, UnavailableError
from jflow.net.protocol import Artifacts, Registered, StepOwner
from jflow.plan import Plan, feed_indices, fetch_indices
from jflow.state.core.task import RECONNECT_TIMEOUT_S
from jflow.state.moves import MovedError, changes_of
from jflow.task.master.step_runner import RegisteredStep, TaskPlans
from jflow.task.master.view import ServerView

_LOOK_S = 0.1
"""How often to look whether connections have ended that a step needs, in seconds."""


class Registrar:
    """Registers plans for one session. Call it on the event loop only.

    Args:
      servers: the master's view of the cluster.
      owner: gives the session, with the claim that it has at the moment.
    """

    def __init__(self, servers: ServerView, owner: Callable[[], StepOwner]) -> None:
        self._servers = servers
        self._own_task = servers.info().task
        self._owner = owner
        self._incarnations: dict[Task, int] = {}

    def restarted(self) -> tuple[Task, ...]:
        """Returns the tasks that the session used and that are known to have restarted since."""
        tasks = self._servers.tasks
        return tuple(
            task
            for task, incarnation in sorted(self._incarnations.items())
            if tasks[task].incarnation not in (0, incarnation)
        )

    def go_on_with(self, restarted: Iterable[Task]) -> None:
        """Lets the session use the current incarnations of tasks that have restarted."""
        for task in restarted:
            if task in self._incarnations:
                self._incarnations[task] = self._servers.tasks[task].incarnation

    async def register(
        self,
        by_task: Mapping[Task, Sequence[Plan]],
        artifacts: Artifacts,
        is_restartable: bool,
        connect_timeout: float,
        deadline: Deadline,
    ) -> tuple[dict[Task, TaskPlans], tuple[str, ...]]:
        """Registers plans on every task; if one fails, releases those on all others.

        Returns:
          What is registered on each task, and the digests of artifacts that tasks lack. If there
          are any, nothing stays registered.
        """

        async def register(task: Task, plans: Sequence[Plan]) -> tuple[TaskPlans, Registered]:
            needed = frozenset().union(*(plan.artifacts for plan in plans))
            own = {digest: sent for digest, sent in artifacts.items() if digest in needed}
            entry = await self._connect_entry(
                task, plans, is_restartable, connect_timeout, deadline
            )
            registered = await self._register(entry, own, deadline)
            return entry.registered_as(registered), registered

        calls = [asyncio.ensure_future(register(task, group)) for task, group in by_task.items()]
        try:
            results = await asyncio.gather(*calls)
        except BaseException:
            for call in calls:
                call.cancel()
            self._servers.driver.start(self._release_ended(calls))
            raise
        missing = dict.fromkeys(digest for _, result in results for digest in result.missing)
        entries = {entry.task: entry for entry, _ in results}
        if missing:
            await self.release(entry for entry in entries.values() if entry.handle)
        return entries, tuple(missing)

    def patience(self, task: Task, connect_timeout: float) -> float:
        """Returns how long to wait for a task that does not respond, in seconds.

        A task that this session has reached before is not about to start for the first time, so a
        short time is enough to find that it is lost.
        """
        is_known = task in self._incarnations
        return min(connect_timeout, RECONNECT_TIMEOUT_S) if is_known else connect_timeout

    def is_current(self, entry: TaskPlans) -> bool:
        """Whether the connection over which a task's plans were registered still exists."""
        return entry.proxy.connection == entry.connection

    def are_current(self, step: RegisteredStep) -> bool:
        """Whether no task of a step needs its plans to be registered again."""
        return all(map(self.is_current, step.entries.values()))

    async def renew(self, step: RegisteredStep) -> None:
        """Registers the plans of a step, of which nothing runs, again where connections have ended.

        Raises:
          OpError: as `renewed`.
        """
        stale = [entry for entry in step.entries.values() if not self.is_current(entry)]
        try:
            await asyncio.gather(*(self._renew_entry(step, entry) for entry in stale))
        except RestartedError as error:
            error.is_rolled_back = True
            raise

    async def keep(self, step: RegisteredStep) -> None:
        """Registers the plans of a step again whenever a connection ends, until cancelled.

        It ends by itself if state of the step has moved.

        Raises:
          OpError: as `renewed`.
        """
        with suppress(MovedError):  # which the step finds when it begins
            while True:
                await self.renew(step)
                await asyncio.sleep(_LOOK_S)

    async def renewed(self, step: RegisteredStep, entry: TaskPlans) -> TaskPlans:
        """Registers one task's plans again, for a step that has begun.

        Raises:
          RestartedError: if another incarnation of the task answers, or this one has freed what the
            session kept there.
          UnavailableError: if the task does not answer.
          AbortedError: if state of the step has moved.
        """
        try:
            return await self._renew_entry(step, entry)
        except MovedError as error:
            if step.only is not None:
                raise
            raise AbortedError(
                f"the state moved while {entry.task} was cut off; the step may have done a part of "
                f"its work: {error.message}",
                task=str(entry.task),
            ) from None

    async def _renew_entry(self, step: RegisteredStep, lost: TaskPlans) -> TaskPlans:
        task = lost.task
        if any(spec.owner for plan in lost.plans for spec in plan.resources):
            await self._servers.tasks[task].connect(RECONNECT_TIMEOUT_S, is_lost=True)
            raise RestartedError(
                f"{task} was cut off from {self._own_task}, and has freed its queues, accumulators "
                "and readers without a shared_name; open a new session and initialize again, or "
                "give them one",
                task=str(task),
            )
        entry = await self._connect_entry(
            task, lost.plans, lost.is_restartable, RECONNECT_TIMEOUT_S, FOREVER
        )
        registered = await self._register(entry, {}, FOREVER)
        if registered.missing:
            raise RestartedError(
                f"{task} was cut off from {self._own_task}, and no longer has "
                f"{len(registered.missing)} programs or constants of the step; open a new session",
                task=str(task),
            )
        entry = entry.registered_as(registered)
        if step.is_released:  # while this waited; the run that needed it may be over
            await self.release([entry])
            raise AbortedError(f"the step was released while {task} was cut off", task=str(task))
        if step.entries[task] is lost:
            step.entries[task] = entry
        elif self.is_current(step.entries[task]):  # another run of the step was first
            await self.release([entry])
        return step.entries[task]

    async def release(self, entries: Iterable[TaskPlans]) -> None:
        """Releases plans; ignores tasks that are lost."""
        for entry in entries:
            with suppress(UnavailableError):  # its plans are gone with it
                await entry.proxy.release(entry.incarnation, entry.handle)

    async def _release_ended(
        self, calls: Sequence[asyncio.Future[tuple[TaskPlans, Registered]]]
    ) -> None:
        """Releases the plans that cancelled registrations have registered nevertheless.

        Not waited for: a task that is busy or lost may answer a cancellation late.
        """
        ended = await asyncio.gather(*calls, return_exceptions=True)
        handles = [one[0] for one in ended if not isinstance(one, BaseException)]
        await self.release(entry for entry in handles if entry.handle)

    async def _connect_entry(
        self,
        task: Task,
        plans: Sequence[Plan],
        is_restartable: bool,
        connect_timeout: float,
        deadline: Deadline,
    ) -> TaskPlans:
        """Connects to a task; returns the plans to register on it, without a handle yet."""
        proxy, patience = self._servers.tasks[task], self.patience(task, connect_timeout)
        info = await proxy.connect(patience, deadline, is_lost=task in self._incarnations)
        # A session depends on the state of the first incarnation of each task that it reached; a
        # call is refused by any later one.
        self._incarnations.setdefault(task, info.incarnation)
        return TaskPlans(
            task,
            proxy,
            self._incarnations[task],
            0,
            feed_indices(plans),
            fetch_indices(plans),
            any(state.is_variable for change in changes_of(plans) for state in change),
            tuple(plans),
            is_restartable,
            proxy.connection,
        )

    async def _register(
        self, entry: TaskPlans, artifacts: Artifacts, deadline: Deadline
    ) -> Registered:
        task = entry.task
        async with deadline.bounding(f"registering the step on {task}", str(task)):
            return await entry.proxy.register(
                entry.incarnation, entry.plans, artifacts, entry.is_restartable, self._owner()
            )
