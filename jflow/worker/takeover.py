"""Takes over a step that is applied once from earlier attempts, on all tasks that it writes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Protocol

from jflow.cluster import Task
from jflow.effects import Earlier, Effect, Phase, verdict
from jflow.errors import InvalidArgumentError, OpError
from jflow.values import Array
from jflow.worker.gather import all_of


class EffectCalls(Protocol):
    """Calls the workers of the tasks that a step writes on; see `WorkerService`."""

    async def take_over_effect(self, task: Task, effect: Effect) -> Earlier:
        """See `WorkerService.take_over_effect`."""

    async def decide_effect(
        self,
        task: Task,
        effect: Effect,
        by: int,
        is_commit: bool,
        results: Sequence[Array] | None,
    ) -> None:
        """See `WorkerService.decide_effect`."""


async def take_over(effect: Effect, tasks: Iterable[Task], calls: EffectCalls) -> Earlier | None:
    """Decides what becomes of the earlier attempts of a step; afterwards none of them is active.

    First all tasks are taken over, after which each ignores the master of the earlier attempt. Then
    what they know is final, and all that take over decide the same, in any order: if a task has
    committed the attempt, all had staged it, and the others commit it now.

    Args:
      effect: the later attempt.
      tasks: the tasks that it writes on.
      calls: reaches them.

    Returns:
      The earlier attempt that is applied; None if there is none.

    Raises:
      SupersededError: if a still later attempt has taken over.
      UnavailableError: if a task is lost.
    """
    wanted = [*tasks]
    found = dict(
        zip(wanted, await all_of(calls.take_over_effect(t, effect) for t in wanted), strict=True)
    )
    # An earlier attempt may have written on other tasks, too, such as the worker that it ran on. If
    # such a task is lost, what it had is lost as well.
    for task in _others(found.values()) - found.keys():
        with suppress(OpError):
            found[task] = await calls.take_over_effect(task, effect)
    applied = verdict(found.values())
    decisions = [
        _decide(calls, task, effect, earlier, applied)
        for task, earlier in found.items()
        if earlier.phase is Phase.STAGED
    ]
    await asyncio.gather(*decisions)
    return applied


async def _decide(
    calls: EffectCalls, task: Task, effect: Effect, earlier: Earlier, applied: Earlier | None
) -> None:
    is_commit = applied is not None and applied.attempt == earlier.attempt
    decided = Effect(effect.client, effect.epoch, effect.sequence, earlier.attempt)
    results = applied.results if applied is not None and is_commit else None
    await calls.decide_effect(task, decided, effect.attempt, is_commit, results)


def _others(found: Iterable[Earlier]) -> set[Task]:
    return {_task(name) for earlier in found for name in earlier.participants}


def _task(name: str) -> Task:
    try:
        return Task.parse(name)
    except ValueError as error:
        raise InvalidArgumentError(f"a task of a step cannot be read: {error}") from None
