"""`Master`: opens and resets the sessions of a server's clients."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence

from jflow.base.cluster import Task
from jflow.base.deadline import Deadline
from jflow.base.deadline.clock import now
from jflow.base.drivers import LoopDriver
from jflow.base.logs import Field, event
from jflow.errors import AbortedError, InvalidArgumentError, OpError
from jflow.net.protocol import (
    ALL_RIGHTS,
    ClusterTasks,
    MasterSession,
    Rights,
    ServerInfo,
    WorkerService,
    liveness_s,
)
from jflow.state.core import ClusterMembers, TaskMembers
from jflow.state.fencing import Claim, Fences
from jflow.state.moves import Gate
from jflow.state.watch import CoordinatorList, SessionStatus, StatusRequest
from jflow.task.master.sampling import StepSampler
from jflow.task.master.session import ClientSession
from jflow.task.master.view import ServerView

_LOG = logging.getLogger(__name__)


class Master:
    """Opens sessions for clients. Every method must be called on the event loop.

    Args:
      info: gives the current server info of its server.
      tasks: the tasks of its cluster, each by its proxy.
      members: the list of members that its server knows.
      gate: makes steps wait while the state that they use moves.
      fences: the claims that its server knows.
    """

    def __init__(
        self,
        info: Callable[[], ServerInfo],
        tasks: ClusterTasks,
        members: TaskMembers,
        gate: Gate,
        fences: Fences,
    ) -> None:
        self._servers = ServerView(info, tasks, LoopDriver(), gate, fences, liveness_s)
        self._members = ClusterMembers(self._servers, members)
        self._numbers = itertools.count(1)
        self._sessions: dict[ClientSession, float] = {}
        self._with_steps: set[ClientSession] = set()
        self._sampler = StepSampler()
        self._servers.fences.add_user(self._used_claims)

    def open_session(self, rights: Rights = ALL_RIGHTS) -> MasterSession:
        """Opens a session for a client with these rights."""
        calls = (self._reset, self._begin, self._close)
        session = ClientSession(self._servers, self._sampler, *calls, next(self._numbers), rights)
        session.members = self._members
        self._sessions[session] = now()
        return session

    def list_sessions(self, request: StatusRequest) -> tuple[int, tuple[SessionStatus, ...]]:
        """Returns the number of sessions, and the statuses of a page of them, the oldest first.

        Those that only watch the cluster are not among them.
        """
        present = now()
        sessions = [(one, opened) for one, opened in self._sessions.items() if not one.only_watches]
        page = sessions[request.first : request.first + request.limit]
        return len(sessions), tuple(one.status(present - at) for one, at in page)

    def coordinators(self) -> CoordinatorList:
        """Returns the coordinators of all sessions, as published by their clients."""
        published = (session.coordinator for session in self._sessions)
        return CoordinatorList(tuple(one for one in published if one is not None))

    def _used_claims(self) -> Iterator[Claim]:
        """Returns the claims of the open sessions."""
        claims = (session.used_claim for session in self._sessions)
        return (claim for claim in claims if claim is not None)

    def _begin(self, session: ClientSession) -> None:
        self._with_steps.add(session)
        event(_LOG, logging.INFO, "session_opened", **_named(session))

    def _close(self, session: ClientSession) -> None:
        opened = self._sessions.pop(session, None)
        if opened is not None and session in self._with_steps:
            self._with_steps.discard(session)
            age = round(now() - opened, 3)
            event(_LOG, logging.INFO, "session_closed", **_named(session), age_s=age)

    async def _reset(
        self,
        caller: ClientSession,
        containers: Sequence[str],
        connect_timeout: float,
        deadline: Deadline,
        tasks: Sequence[Task],
    ) -> None:
        cluster = [*self._servers.info().cluster.tasks()]
        unknown = [str(task) for task in tasks if task not in cluster]
        if unknown:
            raise InvalidArgumentError(
                f"containers are to be reset on {unknown}, and the cluster has the tasks "
                f"{[*map(str, cluster)]}"
            )
        others = [session for session in self._sessions if session is not caller]
        names = ", ".join(map(repr, containers))
        requested = {"containers": names, "n_sessions": len(others), **_by(caller)}
        event(_LOG, logging.INFO, "reset", **requested)
        for session in others:
            event(_LOG, logging.INFO, "session_expired", **_named(session), reason="reset")
            session.end(
                AbortedError(
                    f"Session is not found: it ended because containers {list(containers)} of "
                    f"{self._servers.info().task} were reset; open a new one"
                )
            )
        calls = [
            self._reset_task(task, containers, connect_timeout, deadline)
            for task in (tasks or cluster)
        ]
        results = await asyncio.gather(*calls, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _reset_task(
        self, task: Task, containers: Sequence[str], connect_timeout: float, deadline: Deadline
    ) -> None:
        proxy = self._servers.tasks[task]
        try:
            info = await proxy.connect(connect_timeout, deadline)
            async with deadline.bounding(f"resetting {task}", str(task)):
                await proxy.call(WorkerService.reset, info.incarnation, containers)
        except OpError as error:
            doing = f"containers {list(containers)} could not be reset"
            error.with_context(task=str(task), doing=doing)
            raise


def _named(session: ClientSession) -> dict[str, Field]:
    """Returns the fields by which events name a session, and its user if there is one."""
    return {"session": session.number, **_by(session)}


def _by(session: ClientSession) -> dict[str, Field]:
    return {"user": session.rights.user} if session.rights.user else {}
