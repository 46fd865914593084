"""`SessionClaim`: the claim of a client's session, by which a later session can fence it off."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jflow.base.cluster import Task
from jflow.errors import AbortedError, ResourceExhaustedError, UnavailableError
from jflow.state.core.claims import ClaimedRuns
from jflow.state.core.task import RECONNECT_TIMEOUT_S, ClusterView, call_task
from jflow.state.fencing import Claim, next_epoch

_MAX_TRIES = 16
MAX_NAMES = 256
"""How many names one session may claim."""
_CLAIM_TIMEOUT_S = 0.5
"""The longest time to wait for a task's reply about an existing claim, in seconds."""


class SessionClaim:
    """The claim under which one session works, if any.

    Args:
      servers: the master's view of the cluster.

    Attributes:
      claim: what the session works under; None if it has claimed nothing.
    """

    def __init__(self, servers: ClusterView[Any, Any]) -> None:
        self._servers = servers
        self._names: set[str] = set()
        self.claim: Claim | None = None

    def check(self) -> None:
        """Raises FencedError if this task has heard of a later claim."""
        if self.claim is not None:
            self._servers.fences.check(self.claim)

    async def make(self, name: str, epoch: int, connect_timeout: float) -> int:
        """Like `ClusterState.claim`, without the deadline."""
        if name not in self._names and len(self._names) >= MAX_NAMES:
            # Tasks remember a bounded number of names, which one session must not fill.
            raise ResourceExhaustedError(
                f"this session has claimed {MAX_NAMES} names, such as {min(self._names)!r}, and "
                f"cannot claim {name!r} as well; open another session"
            )
        self._names.add(name)
        patience = min(connect_timeout, RECONNECT_TIMEOUT_S)
        if epoch:
            self.claim = await self._present_claim(
                Claim(name, epoch), min(patience, _CLAIM_TIMEOUT_S)
            )
        else:
            self.claim = await self._new_claim(name, patience)
        return self.claim.epoch

    async def spread(self, tasks: Iterable[Task]) -> None:
        """Tells tasks of the claim. Raises FencedError if one of them has heard of a later one."""
        claim = self.claim
        if claim is None:
            return
        known_epochs = await self._servers.driver.all_of(
            self._tell(task, claim.name, claim.epoch) for task in tasks
        )
        if (highest := max(known_epochs, default=0)) > claim.epoch:
            await self._tell(self._servers.info().task, claim.name, highest)
            self.check()

    async def _present_claim(self, claim: Claim, patience: float) -> Claim:
        """Returns an existing claim after telling all tasks of it: this one may have missed it."""
        tasks = self._servers.info().tasks
        highest = await self._announce(tasks, claim.name, claim.epoch, patience)
        await self._tell(self._servers.info().task, claim.name, highest)
        self._servers.fences.check(claim)
        return claim

    async def _new_claim(self, name: str, patience: float) -> Claim:
        """Makes a claim whose epoch is higher than all that the reachable tasks know."""
        tasks = [*self._servers.info().tasks]
        highest = await self._announce(tasks, name, 0, patience)
        driver = self._servers.driver
        for _ in range(_MAX_TRIES):
            epoch = next_epoch(highest, driver.wall_time(), driver.random_bits(32))
            claim = Claim(name, epoch)
            highest = await self._announce(tasks, name, claim.epoch, patience)
            if highest == claim.epoch:
                return claim
        raise AbortedError(f"{name!r} is claimed by other programs all the time; try again later")

    async def _announce(self, tasks: Iterable[Task], name: str, epoch: int, patience: float) -> int:
        """Tells tasks of an epoch; returns the highest epoch that one of them knows."""

        async def tell(task: Task) -> int:
            try:
                await self._servers.tasks[task].connect(patience)
                return await self._tell(task, name, epoch)
            except (AbortedError, UnavailableError):
                return 0  # it is down; it hears of the claim with the first call under it

        return max(await self._servers.driver.all_of(map(tell, tasks)))

    async def _tell(self, task: Task, name: str, epoch: int) -> int:
        return await call_task(
            self._servers.tasks, task, ClaimedRuns.learn, RECONNECT_TIMEOUT_S, name, epoch
        )
