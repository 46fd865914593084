"""`TaskEffects`: the steps of a task that are applied once, from their start to their decision."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from jflow.cluster import Task
from jflow.effects import Earlier, Effect, EffectKey, Ledger, Phase, kept_results
from jflow.errors import OpError
from jflow.execution.once import WritesOfTask, finish, give_up
from jflow.execution.step_state import StepEffect
from jflow.failpoints import async_failpoint
from jflow.protocol import Array, Staging, Started, TaskSet, completing
from jflow.resources import SingleWrite, Transaction
from jflow.worker.context import WorkerContext
from jflow.worker.takeover import take_over

_LOG = logging.getLogger(__name__)

STAGED_S = 10.0
"""How long a task waits for the decision of a step that it has staged, in seconds, before it asks
the other tasks itself."""

RETRY_S = 1.0
"""The time between two queries if one of them does not answer, in seconds."""

N_TRIES = 60
"""The number of queries. Then it gives the step up, because nothing may be held for ever."""

_Run = Callable[[StepEffect], Coroutine[Any, Any, list[Array]]]
"""Runs the plans of a step; what they write is kept by the argument."""


@dataclass
class _Open:
    """A step that has begun on this task and is not decided.

    Attributes:
      taker: the attempt that decides it if its own master does not.
      timer: waits for the decision once it is staged.
    """

    effect: Effect
    transaction: Transaction
    participants: tuple[str, ...]
    taker: Effect
    timer: asyncio.TimerHandle | None = None


class TaskEffects:
    """The steps of one caller that a task applies once. Call it on the event loop only.

    Args:
      context: the task.
    """

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._open: dict[EffectKey, _Open] = {}
        self._applying: dict[EffectKey, asyncio.Event] = {}
        self._background = TaskSet()
        self._of_caller: set[EffectKey] = set()

    def of_caller(self) -> TaskEffects:
        """The steps of another caller on the same task."""
        other = copy.copy(self)
        other._of_caller = set()
        return other

    # Running ----------------------------------------------------------------------------------

    async def run(self, staging: Staging, writes: WritesOfTask, run: _Run) -> list[Array]:
        """Runs this task's part of an attempt, and stages or applies what it writes.

        Args:
          staging: the attempt, and the tasks that take part.
          writes: what the plans write.
          run: runs them.

        Raises:
          AbortedError: as `Ledger.begin` and `Ledger.stage`.
          OpError: as `run`; nothing is staged then.
        """
        effect, containers = staging.effect, self._context.containers
        if (action := async_failpoint("worker.before_effect")) is not None:
            await action
        containers.ledger(Ledger.begin, effect, staging.participants)
        is_wide = len(staging.participants) > 1
        kept = writes.effect(containers, effect, is_alone=staging.is_alone, is_wide=is_wide)
        if staging.is_alone:
            return await self._run_alone(effect, kept, run)
        assert isinstance(kept, Transaction)
        return await self._run_staged(effect, kept, staging.participants, run)

    async def _run_staged(
        self, effect: Effect, transaction: Transaction, participants: tuple[str, ...], run: _Run
    ) -> list[Array]:
        key, containers = effect.key, self._context.containers
        step = self._open[key] = _Open(effect, transaction, participants, effect.again())
        self._of_caller.add(key)
        try:
            values = await run(transaction)
            containers.ledger(Ledger.stage, effect)
            self._wait_for_decision(key, step)
            if (action := async_failpoint("worker.after_stage")) is not None:
                await action
        except BaseException:
            # What is staged stays so if a later attempt has taken over, which decides it.
            if containers.ledger(Ledger.abort, effect, effect.attempt):
                self._close(key)
            raise
        return values

    async def _run_alone(self, effect: Effect, kept: StepEffect, run: _Run) -> list[Array]:
        containers = self._context.containers
        try:
            begun = Started(run(kept))
            values = begun.result if begun.is_done else await self._complete(effect, kept, begun)
            finish(containers, effect, kept, values)
        except BaseException as error:
            give_up(containers, effect, kept, error)
            raise
        if (action := async_failpoint("worker.after_effect")) is not None:
            await action
        return values

    async def _complete(
        self, effect: Effect, kept: StepEffect, begun: Started[list[Array]]
    ) -> list[Array]:
        """Completes plans that have to wait; a later attempt waits for what is being applied."""
        key = effect.key
        ended = self._applying[key] = asyncio.Event()
        try:
            # A write that is being applied cannot be taken back, and a repeat needs the results.
            return await completing(
                begun.rest(), lambda: isinstance(kept, SingleWrite) and kept.is_applied
            )
        finally:
            # What waits for this goes on when the caller has told the ledger of the end.
            ended.set()
            if self._applying.get(key) is ended:
                del self._applying[key]

    # Decisions --------------------------------------------------------------------------------

    async def decide(
        self, effect: Effect, by: int, is_commit: bool, results: Sequence[Array] | None
    ) -> None:
        """See `WorkerService.decide_effect`."""
        if (action := async_failpoint("worker.before_decision")) is not None:
            await action
        ledger = self._context.containers.ledger
        if not is_commit:
            if ledger(Ledger.abort, effect, by):
                self._close(effect.key)
        else:
            kept = None if results is None else kept_results(results, is_saved=True)
            if ledger(Ledger.commit, effect, by, kept):
                self._close(effect.key, is_commit=True)
        if (action := async_failpoint("worker.after_decision")) is not None:
            await action

    async def take_over(self, effect: Effect) -> Earlier:
        """See `WorkerService.take_over_effect`."""
        key = effect.key
        while True:
            earlier = self._context.containers.ledger(Ledger.take_over, effect)
            if earlier.phase is not Phase.APPLYING:
                break
            await self._applying[key].wait()
        step = self._open.get(key)
        if step is not None:
            step.taker = effect
            if earlier.phase is Phase.STAGED:
                self._wait_for_decision(key, step)  # of the one that takes over
            else:
                self._close(key)
        if (action := async_failpoint("worker.after_take_over")) is not None:
            await action
        return earlier

    def close(self) -> None:
        """The caller is gone: asks the other tasks what it decided last."""
        for key in [*self._of_caller]:
            self._ask_others(key)

    def _close(self, key: EffectKey, *, is_commit: bool = False) -> None:
        step = self._open.pop(key, None)
        self._of_caller.discard(key)
        if step is None:
            return
        if step.timer is not None:
            step.timer.cancel()
        if is_commit:
            step.transaction.commit()
        else:
            step.transaction.abort()

    def _wait_for_decision(self, key: EffectKey, step: _Open) -> None:
        if step.timer is not None:
            step.timer.cancel()
        loop = asyncio.get_running_loop()
        step.timer = loop.call_later(STAGED_S, self._ask_others, key)

    # In doubt ---------------------------------------------------------------------------------

    def _ask_others(self, key: EffectKey) -> None:
        self._of_caller.discard(key)
        step = self._open.get(key)
        if step is not None and step.timer is not None:  # it is staged
            step.timer.cancel()
            self._background.start(self._resolve(key))

    async def _resolve(self, key: EffectKey) -> None:
        """Finds out whether a step that this task has staged was committed, and ends it."""
        for _ in range(N_TRIES):
            step = self._open.get(key)
            if step is None:
                return
            try:
                await take_over(
                    step.taker, map(Task.parse, step.participants), self._context.transport
                )
            except OpError as error:
                _LOG.warning("%s is not decided: %s", step.effect, error)
                await asyncio.sleep(RETRY_S)
        step = self._open.get(key)
        if step is not None:
            _LOG.error("%s is given up: a task that it wrote on does not answer", step.effect)
            await self.decide(step.effect, step.taker.attempt, False, None)
