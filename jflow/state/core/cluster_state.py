"""`ClusterState`: moves, saves, restores and claims, as one session requests them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from jflow.base.cluster import Task
from jflow.base.deadline import Deadline
from jflow.base.drivers import Job
from jflow.base.drivers.driver import Mutex
from jflow.base.roles import AccessRole
from jflow.state.core.claiming import SessionClaim
from jflow.state.core.mover import StateMover
from jflow.state.core.remote import remote
from jflow.state.core.saver import CheckpointSaver
from jflow.state.core.task import ClusterView, within
from jflow.state.moves import StateId
from jflow.state.saves import StateItems

Patience = Callable[[Task, float], float]
"""How long to wait for a task that does not answer, given the connect timeout, in seconds."""


class ClusterState:
    """Executes the moves, saves, restores and claims of one session.

    Every call has a deadline; `connect_timeout` is the longest time to wait for a task that does
    not answer, in seconds.

    Args:
      servers: the master's view of the cluster.
      session: whose steps a save holds back, unless it is consistent; None for all, and for a
        session whose end frees everything.
      claim: what the session works under.
      running: the calls that are made, which the session may cancel.
      check: raises what has ended the session.
      patience: see `Patience`.
      moving: makes moves wait for each other; without it, two of the same state exclude each other.
    """

    def __init__(
        self,
        servers: ClusterView[Any, Any],
        session: object,
        claim: SessionClaim,
        running: set[Job[Any]],
        check: Callable[[], None] = lambda: None,
        patience: Patience = lambda _, connect_timeout: connect_timeout,
        moving: Mutex | None = None,
    ) -> None:
        self._servers = servers
        self._session = session
        self._claim = claim
        self._running = running
        self._check = check
        self._patience = patience
        self._moving = moving or nullcontext()
        self._restores: list[CheckpointSaver] = []

    @remote(needs=AccessRole.OPERATE, doing="claiming {name!r}")
    async def claim(self, name: str, epoch: int, connect_timeout: float, deadline: Deadline) -> int:
        """Claims a name for this session; returns the fencing epoch.

        Args:
          name: the name.
          epoch: of a claim that another session of the program has made; 0 for a new one, which
            all tasks that are up hear of before this returns.
          connect_timeout, deadline: as of every call.

        Raises:
          FencedError: if there was a later claim; likewise every later call of this session.
        """
        async with self._call(f"claiming {name!r}", deadline):
            return await self._claim.make(name, epoch, connect_timeout)

    @remote(needs=AccessRole.USE, doing="moving {states[0].name!r} to {target}")
    async def move(
        self,
        states: Sequence[StateId],
        target: str,
        hold_s: float,
        connect_timeout: float,
        deadline: Deadline,
    ) -> None:
        """Moves state from one device to another, holding no step for longer than `hold_s`.

        Raises:
          MovedError: if some of it is elsewhere.
        """
        async with self._call(f"moving state to {target}", deadline), self._moving:
            await StateMover(self._servers, states, target, hold_s, connect_timeout).move()

    @remote(needs=AccessRole.USE, doing="saving {prefix!r}")
    async def save(
        self,
        prefix: str,
        items: bytes,
        is_consistent: bool,
        about: Mapping[str, str],
        connect_timeout: float,
        deadline: Deadline,
    ) -> bytes:
        """Saves state as a checkpoint; returns a packed `SaveReport`.

        Args:
          prefix: the path of the checkpoint, as the tasks that have the state see it.
          items: packed `StateItems`.
          is_consistent: whether steps of all sessions that change the state are held back until
            every task has its snapshot; else those of this session.
          about: kept in the checkpoint.
          connect_timeout, deadline: as of every call.

        Raises:
          MovedError: if some of the state is elsewhere.
        """
        async with self._call(f"saving {prefix!r}", deadline):
            saver = self._saver(prefix, items, connect_timeout, deadline)
            # A session that is alone on its task has all steps to itself.
            is_consistent = is_consistent and self._session is not None
            return (await saver.save(is_consistent, about)).to_bytes()

    @remote(needs=AccessRole.USE, doing="restoring {prefix!r}")
    async def restore(
        self, prefix: str, items: bytes, connect_timeout: float, deadline: Deadline
    ) -> bytes:
        """Restores state from a checkpoint; returns a packed `SaveReport`. Raises as `save`."""
        async with self._call(f"restoring {prefix!r}", deadline):
            saver = self._saver(prefix, items, connect_timeout, deadline)
            report = await saver.restore()
            if self._session is None:
                await saver.forget()
            elif saver.is_private:
                self._restores.append(saver)
            return report.to_bytes()

    def close(self) -> None:
        """Frees what the session has restored for itself, when the session ends."""
        for restore in self._restores:
            self._servers.driver.start(restore.forget())

    def _saver(
        self, prefix: str, items: bytes, connect_timeout: float, deadline: Deadline
    ) -> CheckpointSaver:
        return CheckpointSaver(
            self._servers,
            self._session,
            prefix,
            StateItems.from_bytes(items),
            lambda task: self._patience(task, connect_timeout),
            deadline,
            self._claim,
        )

    @asynccontextmanager
    async def _call(self, doing: str, deadline: Deadline) -> AsyncIterator[None]:
        """Context manager of a call, cancelled at the deadline or when the session ends."""
        self._check()
        running = self._servers.driver.current()
        self._running.add(running)
        try:
            async with within(self._servers, deadline, doing):
                yield
        finally:
            self._running.discard(running)
