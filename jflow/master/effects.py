"""`EffectRunner`: runs one attempt of a step that is applied once, and commits it.

A step on one task is applied by that task. Otherwise it is a commit in two phases: the tasks run
their plans and stage what they write; if all have, the master tells them to commit it. If a master
is lost in between, its step waits for a decision. The next attempt takes it over, through any
master (`jflow.worker.takeover`), or else the tasks ask each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from jflow.cluster import Task
from jflow.effects import ConflictError, Earlier, Effect, kept_results
from jflow.errors import OpError
from jflow.execution.once import repeated
from jflow.failpoints import async_failpoint
from jflow.master.step_runner import RegisteredStep, TaskPlans
from jflow.master.view import ClusterView
from jflow.protocol import Array, Staging, WorkerService
from jflow.worker.takeover import take_over

_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.1


def lone_staging(step: RegisteredStep, effect: Effect) -> Staging | None:
    """What the first attempt of a step needs that one program of one task applies.

    There is nothing to commit, to abort or to take over then. None of any other attempt: it needs
    an `EffectRunner`.
    """
    writer = step.writer
    return None if writer is None or effect.attempt > 1 else Staging(effect, True, (writer,))


class EffectRunner:
    """Runs one attempt of a step. Call it on the event loop only.

    Args:
      servers: the master's view of the cluster.
      entries: the plans of each task that takes part.
      effect: the attempt.
    """

    def __init__(
        self, servers: ClusterView, entries: Mapping[Task, TaskPlans], effect: Effect
    ) -> None:
        self._servers = servers
        self._writing = {task: entry for task, entry in entries.items() if entry.is_writing}
        self._effect = effect
        names = tuple(sorted(map(str, self._writing)))
        self._staging = Staging(effect, len(entries) == 1, names)

    async def run(
        self, run: Callable[[Staging | None], Awaitable[Sequence[Array]]]
    ) -> Sequence[Array]:
        """Runs the attempt; returns its results, or those of an earlier one that was applied.

        Args:
          run: runs the plans of all tasks.

        Raises:
          SupersededError: if a later attempt has taken over.
          DataLossError: if an earlier attempt was applied, but its results were not kept.
          OpError: as `run`; nothing is applied then. If it is one of committing, such as of a lost
            task, the step may be applied: a later attempt finds out.
        """
        if not self._writing:
            return await run(None)
        if self._effect.attempt > 1:
            earlier = await take_over(self._effect, self._writing, self)
            if earlier is not None:
                return repeated(self._effect, earlier)
        values = await self._staged(run)
        if not self._staging.is_alone:
            await self._commit(values)
        return values

    async def _staged(
        self, run: Callable[[Staging | None], Awaitable[Sequence[Array]]]
    ) -> Sequence[Array]:
        """Runs the plans; again while older steps that may wait for this one are in the way."""
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return await run(self._staging)
            except ConflictError:
                await self._abort()
            except BaseException as error:
                if isinstance(error, OpError) and not self._staging.is_alone:
                    error.is_rolled_back = True  # only `_commit` would have applied it
                self._servers.background.start(self._abort())
                raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _commit(self, values: Sequence[Array]) -> None:
        """Commits what all tasks have staged. It goes on if the caller is cancelled."""
        try:
            if (action := async_failpoint("master.before_commit")) is not None:
                await action
        except BaseException:
            self._servers.background.start(self._abort())
            raise
        kept = kept_results(values, is_saved=self._effect.is_saved)
        committing = asyncio.ensure_future(self._decide(is_commit=True, results=kept))
        try:
            await asyncio.shield(committing)
        except asyncio.CancelledError:
            self._servers.background.start(_quietly(committing))
            raise
        if (action := async_failpoint("master.after_commit")) is not None:
            await action

    async def _abort(self) -> None:
        """Drops what tasks have staged; those that have not drop it themselves."""
        if not self._staging.is_alone:
            await asyncio.gather(
                *(
                    _quietly(self._decide_on(task, is_commit=False, results=None))
                    for task in self._writing
                )
            )

    async def _decide(self, *, is_commit: bool, results: Sequence[Array] | None) -> None:
        # All of them, whatever the others answer: each one that commits shows that it is committed.
        calls = [
            self._decide_on(task, is_commit=is_commit, results=results) for task in self._writing
        ]
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _decide_on(
        self, task: Task, *, is_commit: bool, results: Sequence[Array] | None
    ) -> None:
        effect = self._effect
        await self.decide_effect(task, effect, effect.attempt, is_commit, results)

    # Calls of workers -------------------------------------------------------------------------

    async def take_over_effect(self, task: Task, effect: Effect) -> Earlier:
        """See `WorkerService.take_over_effect`, on a task."""
        if task not in self._writing:
            return await self._servers.tasks.take_over_effect(task, effect)
        entry = self._writing[task]
        return await entry.proxy.call(WorkerService.take_over_effect, entry.incarnation, effect)

    async def decide_effect(
        self,
        task: Task,
        effect: Effect,
        by: int,
        is_commit: bool,
        results: Sequence[Array] | None,
    ) -> None:
        """See `WorkerService.decide_effect`, on a task."""
        decision = (effect, by, is_commit, results)
        if task not in self._writing:
            await self._servers.tasks.decide_effect(task, *decision)
        else:
            entry = self._writing[task]
            await entry.proxy.call(WorkerService.decide_effect, entry.incarnation, *decision)


async def _quietly(call: Awaitable[None]) -> None:
    """Waits for a decision; a task that is lost, or has another one, needs none."""
    with suppress(OpError):
        await call
