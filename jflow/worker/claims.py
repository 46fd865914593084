"""`ClaimedRuns`: the running steps of clients that have claimed a name, and what ends them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jflow.errors import DeadlineExceededError
from jflow.fencing import Claim, Fences
from jflow.logs import event

_LOG = logging.getLogger(__name__)
_PATIENCE_S = 10.0
"""How long to wait for steps that were cancelled, in seconds."""


class ClaimedRuns:
    """What runs under claims on one task. Call it on the event loop only.

    Attributes:
      fences: the claims that the task has heard of.
    """

    def __init__(self) -> None:
        self.fences = Fences()
        self._running: dict[Claim, set[asyncio.Task[Any]]] = {}
        self.fences.add_user(lambda: self._running)

    @property
    def n_running(self) -> int:
        """How many steps run under claims."""
        return sum(map(len, self._running.values()))

    @contextmanager
    def running(self, claim: Claim) -> Iterator[None]:
        """A block of the present asyncio task that ends when there is a later claim.

        Raises:
          FencedError: if there was or is a later claim.
        """
        self.fences.check(claim)
        task = asyncio.current_task()
        assert task is not None
        tasks = self._running.setdefault(claim, set())
        tasks.add(task)
        try:
            yield
        except asyncio.CancelledError:
            self.fences.check(claim)
            raise
        finally:
            tasks.discard(task)
            if not tasks:
                self._running.pop(claim, None)

    async def admit(self, claim: Claim) -> None:
        """Takes note of the claim of a call. Raises FencedError if there was a later one."""
        await self.learn(claim)
        self.fences.check(claim)

    async def highest(self, name: str, epoch: int) -> int:
        """See `WorkerService.learn_claim`."""
        if epoch:
            await self.learn(Claim(name, epoch))
        return self.fences.epoch(name)

    async def learn(self, claim: Claim) -> None:
        """Takes note of a claim, and ends what runs under earlier ones of that name.

        Returns when all of it has ended, so that nothing of it is applied later.

        Raises:
          DeadlineExceededError: if it does not end.
        """
        former = self.fences.epoch(claim.name)
        if not self.fences.learn(claim):
            return
        earlier = [
            task
            for other, tasks in self._running.items()
            if other.name == claim.name and other.epoch < claim.epoch
            for task in tasks
        ]
        if former:
            event(
                _LOG,
                logging.INFO,
                "claim_fenced",
                claim=claim.name,
                epoch=f"{former:x}",
                by=f"{claim.epoch:x}",
                n_steps=len(earlier),
            )
        for task in earlier:
            task.cancel()
        if not earlier:
            return
        _, late = await asyncio.wait(earlier, timeout=_PATIENCE_S)
        if late:
            raise DeadlineExceededError(
                f"{len(late)} steps under an earlier claim of {claim.name!r} did not end within "
                f"{_PATIENCE_S:g} s; claim it again"
            )
