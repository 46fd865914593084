"""`ClaimedRuns`: tracks the steps that run under claims and cancels them after a later claim."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jflow.base.drivers import CoreDriver, Event, Job
from jflow.base.logs import event
from jflow.base.roles import AccessRole
from jflow.errors import DeadlineExceededError
from jflow.state.core.remote import remote
from jflow.state.fencing import Claim, Fences

_LOG = logging.getLogger(__name__)
_PATIENCE_S = 10.0
"""How long to wait for steps that were cancelled, in seconds."""


class ClaimedRuns:
    """The steps that run under claims on one task.

    Args:
      driver: runs it.

    Attributes:
      fences: the claims that the task has heard of.
    """

    def __init__(self, driver: CoreDriver) -> None:
        self.fences = Fences()
        self._driver = driver
        self._running: dict[Claim, dict[Event, Job[Any]]] = {}
        self.fences.add_user(lambda: self._running)

    @property
    def n_running(self) -> int:
        """The number of steps that run under claims."""
        return sum(map(len, self._running.values()))

    @contextmanager
    def running(self, claim: Claim) -> Iterator[None]:
        """Context manager that runs the current coroutine under a claim; a later claim cancels it.

        Raises:
          FencedError: if there was or is a later claim.
        """
        self.fences.check(claim)
        jobs = self._running.setdefault(claim, {})
        end_event = self._driver.event()
        jobs[end_event] = self._driver.current()
        try:
            yield
        except self._driver.Cancelled:
            self.fences.check(claim)
            raise
        finally:
            del jobs[end_event]
            end_event.set()
            if not jobs:
                self._running.pop(claim, None)

    async def admit(self, claim: Claim) -> None:
        """Learns the claim of a call. Raises FencedError if there was a later one."""
        await self._learn(claim)
        self.fences.check(claim)

    @remote(needs=AccessRole.CLUSTER)
    async def learn(self, name: str, epoch: int) -> int:
        """Refuses lower epochs of a name from now on and cancels the steps that run under them.

        Epoch 0 changes nothing.

        Returns:
          The highest epoch of the name that this task has heard of; 0 if there is none.
        """
        if epoch:
            await self._learn(Claim(name, epoch))
        return self.fences.epoch(name)

    async def _learn(self, claim: Claim) -> None:
        """Learns a claim and cancels the steps that run under earlier claims of its name.

        Returns when all of it has ended, so that nothing of it is applied later.

        Raises:
          DeadlineExceededError: if it does not end.
        """
        former_epoch = self.fences.epoch(claim.name)
        if not self.fences.learn(claim):
            return
        earlier_jobs = [
            one
            for other, jobs in self._running.items()
            if other.name == claim.name and other.epoch < claim.epoch
            for one in jobs.items()
        ]
        if former_epoch:
            event(
                _LOG,
                logging.INFO,
                "claim_fenced",
                claim=claim.name,
                epoch=f"{former_epoch:x}",
                by=f"{claim.epoch:x}",
                n_steps=len(earlier_jobs),
            )
        for _, job in earlier_jobs:
            job.cancel()
        try:
            async with self._driver.limit(_PATIENCE_S):
                for end_event, _ in earlier_jobs:
                    await end_event.wait()
        except TimeoutError:
            n_late = sum(not end_event.is_set() for end_event, _ in earlier_jobs)
            raise DeadlineExceededError(
                f"{n_late} steps under an earlier claim of {claim.name!r} did not end within "
                f"{_PATIENCE_S:g} s; claim it again"
            ) from None
