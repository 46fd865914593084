"""`EffectRunner`: runs one attempt of a step whose writes are applied once, and commits it.

A step on one task is applied by that task. Otherwise it is a commit in two phases: the tasks run
their plans and stage what they write; if all have, the master tells them to commit it. If a master
is lost in between, its step waits for a decision. The next attempt takes it over, through any
master (`take_over`), or else the tasks ask each other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from jflow.base.cluster import Task
from jflow.base.deadline import backoff
from jflow.base.failpoints import async_failpoint
from jflow.base.values import Array
from jflow.errors import OpError
from jflow.state.core.effects import TaskEffects, repeated, take_over
from jflow.state.core.task import RECONNECT_TIMEOUT_S, ClusterView, TaskCalls, call_task, every
from jflow.state.effects import ConflictError, Effect, kept_results
from jflow.state.effects.effect import Staging

_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.1


class Participant(Protocol):
    """One task's part in a step."""

    @property
    def proxy(self) -> TaskCalls:
        """The proxy through which the task is called."""

    @property
    def incarnation(self) -> int:
        """The incarnation of the task in which its plans are registered."""

    @property
    def is_writing(self) -> bool:
        """Whether its plans write variables."""


class EffectRunner:
    """Runs and commits one attempt of a step.

    Args:
      servers: the master's view of the cluster.
      entries: each task that takes part.
      effect: the attempt.
    """

    def __init__(
        self, servers: ClusterView[Any, Any], entries: Mapping[Task, Participant], effect: Effect
    ) -> None:
        self._servers = servers
        self._writing = {task: entry for task, entry in entries.items() if entry.is_writing}
        self._effect = effect
        names = tuple(sorted(map(str, self._writing)))
        self._staging = Staging(effect, len(entries) == 1, names)

    async def run_attempt(
        self, run: Callable[[Staging | None], Awaitable[Sequence[Array]]]
    ) -> Sequence[Array]:
        """Runs the attempt; returns its results, or those of an earlier attempt that was applied.

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
            earlier = await take_over(self._effect, self._writing, self._call, self._servers.driver)
            if earlier is not None:
                return repeated(self._effect, earlier)
        values = await self._run_staged(run)
        if not self._staging.is_alone:
            await self._commit(values)
        return values

    async def _run_staged(
        self, run: Callable[[Staging | None], Awaitable[Sequence[Array]]]
    ) -> Sequence[Array]:
        """Runs the plans, and reruns them after each conflict with an older step."""
        pauses = backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            try:
                return await run(self._staging)
            except ConflictError:
                # A decision without an answer may arrive late, and drop what is staged by then.
                if (lost := await self._abort()) is not None:
                    lost.is_rolled_back = True
                    raise lost from None
            except BaseException as error:
                if isinstance(error, OpError) and not self._staging.is_alone:
                    error.is_rolled_back = True  # only `_commit` would have applied it
                self._servers.driver.start(self._abort())
                raise
            await self._servers.driver.sleep(next(pauses))

    async def _commit(self, values: Sequence[Array]) -> None:
        """Commits on all tasks what they have staged, even if the caller is cancelled."""
        try:
            if (action := async_failpoint("master.before_commit")) is not None:
                await action
        except BaseException:
            self._servers.driver.start(self._abort())
            raise
        results = kept_results(values, is_saved=self._effect.is_saved)
        # On all of them, whatever the others answer: each one that commits shows that it is done.
        commit_on = partial(self._decide_on, is_commit=True, results=results)
        await every(self._servers.driver, map(commit_on, self._writing))
        if (action := async_failpoint("master.after_commit")) is not None:
            await action

    async def _abort(self) -> OpError | None:
        """Aborts the attempt on the tasks that write; a task on its own aborts it itself.

        Returns:
          The error of a task that is lost, which needs no decision.
        """
        if not self._staging.is_alone:
            abort_on = partial(self._decide_on, is_commit=False, results=None)
            try:
                await every(self._servers.driver, map(abort_on, self._writing))
            except OpError as error:
                return error
        return None

    async def _decide_on(
        self, task: Task, *, is_commit: bool, results: Sequence[Array] | None
    ) -> None:
        effect = self._effect
        await self._call(task, TaskEffects.decide, effect, effect.attempt, is_commit, results)

    async def _call(self, task: Task, method: Callable[..., Any], *args: Any) -> Any:
        entry = self._writing.get(task)
        if entry is not None:
            return await entry.proxy.call(method, entry.incarnation, *args)
        return await call_task(self._servers.tasks, task, method, RECONNECT_TIMEOUT_S, *args)
