"""`TaskEffects`: runs, stages and decides the steps that a task applies exactly once."""

from __future__ import annotations

import copy
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from jflow.base.cluster import Task
from jflow.base.drivers import CoreDriver, Event, Started, TimerHandle
from jflow.base.drivers.driver import Mutex
from jflow.base.failpoints import async_failpoint
from jflow.base.roles import AccessRole
from jflow.base.values import Array
from jflow.errors import AbortedError, DataLossError, OpError
from jflow.state.core.remote import remote
from jflow.state.core.task import RECONNECT_TIMEOUT_S, TaskCore, call_task, every, parsed_task
from jflow.state.effects import Earlier, Effect, EffectKey, Ledger, Phase, kept_results, verdict
from jflow.state.effects.effect import Staging
from jflow.state.resources import Containers, SingleWrite, Transaction, VariableId

_LOG = logging.getLogger(__name__)

STAGED_S = 10.0
"""How long a task waits for the decision of a step that it has staged, in seconds, before it asks
the other tasks itself."""

RETRY_S = 1.0
"""The time between two queries if one of them does not answer, in seconds."""

N_TRIES = 60
"""The number of queries before the task aborts the step, so that nothing is held forever."""

StepEffect = Transaction | SingleWrite
"""Keeps the writes of an attempt until they are applied."""

CallTask = Callable[..., Awaitable[Any]]
"""A function that calls a remote method, given the task, the method and its arguments."""

_Run = Callable[[StepEffect], Coroutine[Any, Any, list[Array]]]
"""A function that runs the plans of a step, with the object that keeps their writes."""


@dataclass(frozen=True)
class WritesOfTask:
    """The variables that the plans of one task write.

    Attributes:
      variables: the variables.
      n_programs: how many programs write.
    """

    variables: frozenset[VariableId]
    n_programs: int


def repeated(effect: Effect, earlier: Earlier) -> list[Array]:
    """Returns the results of an earlier attempt that was applied.

    Raises:
      OpError: what it failed with after it was applied.
      DataLossError: if its results were not kept.
    """
    if earlier.error is not None:
        error = earlier.error
        raise type(error)(error.message, op=error.op, task=error.task)
    if earlier.results is None:
        raise DataLossError(
            f"step {effect.sequence} of {effect.client!r} was applied by attempt "
            f"{earlier.attempt}, but its results are gone: they were too large to be kept, or too "
            "many were. It is not applied again; let it return less, or keep results in variables"
        )
    return [*earlier.results]


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
    timer: TimerHandle | None = None


class TaskEffects:
    """The steps of one caller that a task applies exactly once.

    Args:
      state: the task.
    """

    def __init__(self, state: TaskCore) -> None:
        self._state = state
        self._open: dict[EffectKey, _Open] = {}
        self._applying: dict[EffectKey, list[Event]] = {}
        self._mutex = Mutex(state.driver)
        self._of_caller: set[EffectKey] = set()

    def of_caller(self) -> TaskEffects:
        """Returns the `TaskEffects` of another caller on the same task."""
        other = copy.copy(self)
        other._of_caller = set()
        return other

    # Running ----------------------------------------------------------------------------------

    async def apply_alone(self, effect: Effect, writes: WritesOfTask, run: _Run) -> list[Array]:
        """Runs an attempt on this task alone, or returns the results of an applied earlier one.

        One of them runs at a time, so none waits for another one that waits for it.

        Args:
          effect, writes, run: as for `run_on_task`.

        Raises:
          AbortedError: if a later attempt was run, or a later epoch of the client.
          DataLossError: if the step was applied, but its results were not kept.
          OpError: as `run`; nothing is applied then, unless the step is a single program that was.
        """
        async with self._mutex:
            earlier = await self.take_over(effect)
            if earlier.phase is Phase.COMMITTED:
                return repeated(effect, earlier)
            return await self.run_on_task(
                Staging(effect, True, (str(self._state.task),)), writes, run
            )

    async def run_on_task(self, staging: Staging, writes: WritesOfTask, run: _Run) -> list[Array]:
        """Runs this task's part of an attempt, then stages or applies its writes.

        Args:
          staging: the attempt, and the tasks that take part.
          writes: what the plans write.
          run: runs them.

        Raises:
          AbortedError: as `Ledger.begin_attempt` and `Ledger.stage`.
          OpError: as `run`; nothing is staged then.
        """
        effect, containers = staging.effect, self._state.containers
        if (action := async_failpoint("worker.before_effect")) is not None:
            await action
        containers.ledger(Ledger.begin_attempt, effect, staging.participants)
        if staging.is_alone and writes.n_programs == 1:
            return await self._run_alone(effect, SingleWrite(containers, effect), run)
        is_wide = len(staging.participants) > 1
        transaction = Transaction(containers, effect, writes.variables, is_wide=is_wide)
        if staging.is_alone:
            return await self._run_alone(effect, transaction, run)
        return await self._run_staged(staging, transaction, run)

    async def _run_staged(
        self, staging: Staging, transaction: Transaction, run: _Run
    ) -> list[Array]:
        effect, containers = staging.effect, self._state.containers
        key = effect.key
        step = self._open[key] = _Open(effect, transaction, staging.participants, effect.again())
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

    async def _run_alone(self, effect: Effect, writer: StepEffect, run: _Run) -> list[Array]:
        containers = self._state.containers
        try:
            started_run = Started(run(writer))
            values = (
                started_run.result
                if started_run.is_done
                else await self._complete(effect, writer, started_run)
            )
            results = kept_results(values, is_saved=effect.is_saved)
            containers.ledger(Ledger.finish, effect, results)
            writer.commit()
        except BaseException as error:
            _give_up(containers, effect, writer, error)
            raise
        if (action := async_failpoint("worker.after_effect")) is not None:
            await action
        return values

    async def _complete(
        self, effect: Effect, writer: StepEffect, running: Started[list[Array]]
    ) -> list[Array]:
        """Completes plans that had to wait, uninterrupted once their write is being applied."""
        key, waiting = effect.key, list[Event]()
        self._applying[key] = waiting

        def goes_on() -> bool:
            if not (isinstance(writer, SingleWrite) and writer.must_complete):
                return False
            writer.given_up()
            return True

        try:
            # A write that is being applied cannot be taken back, and a repeat needs the results.
            return await self._state.driver.shield(running.rest(), goes_on)
        finally:
            # What waits for this goes on once the ledger knows of the end.
            for one in waiting:
                one.set()
            if self._applying.get(key) is waiting:
                del self._applying[key]

    # Decisions --------------------------------------------------------------------------------

    @remote(needs=AccessRole.CLUSTER)
    async def decide(
        self, effect: Effect, by: int, is_commit: bool, results: Sequence[Array] | None
    ) -> None:
        """Commits or aborts what an attempt has staged; see `Ledger.commit`. Idempotent.

        Args:
          effect: the attempt.
          by: the attempt that decides.
          is_commit: whether it is applied.
          results: what a repeat of the step is answered with; None if that is not kept.
        """
        if (action := async_failpoint("worker.before_decision")) is not None:
            await action
        ledger = self._state.containers.ledger
        if not is_commit:
            if ledger(Ledger.abort, effect, by):
                self._close(effect.key)
        else:
            copies = None if results is None else kept_results(results, is_saved=True)
            if ledger(Ledger.commit, effect, by, copies):
                self._close(effect.key, is_commit=True)
        if (action := async_failpoint("worker.after_decision")) is not None:
            await action

    @remote(needs=AccessRole.CLUSTER)
    async def take_over(self, effect: Effect) -> Earlier:
        """Takes over from earlier attempts of a step; see `Ledger.take_over`.

        Waits for one that is being applied.
        """
        key = effect.key
        while True:
            earlier = self._state.containers.ledger(Ledger.take_over, effect)
            if earlier.phase is not Phase.APPLYING:
                break
            end_event = self._state.driver.event()
            self._applying[key].append(end_event)
            await end_event.wait()
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
        """Asks the other tasks to decide the caller's staged steps, because the caller is gone."""
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
        step.timer = self._state.driver.later(STAGED_S, self._ask_others, key)

    # In doubt ---------------------------------------------------------------------------------

    def _ask_others(self, key: EffectKey) -> None:
        self._of_caller.discard(key)
        step = self._open.get(key)
        if step is not None and step.timer is not None:  # it is staged
            step.timer.cancel()
            self._state.driver.start(self._resolve(key))

    async def _resolve(self, key: EffectKey) -> None:
        """Takes a staged step over to learn whether it was committed, and ends it accordingly."""
        for _ in range(N_TRIES):
            step = self._open.get(key)
            if step is None:
                return
            try:
                participants = map(Task.parse, step.participants)
                await take_over(step.taker, participants, self._call, self._state.driver)
            except OpError as error:
                _LOG.warning("%s is not decided: %s", step.effect, error)
                await self._state.driver.sleep(RETRY_S)
        step = self._open.get(key)
        if step is not None:
            _LOG.error("%s is given up: a task that it wrote on does not answer", step.effect)
            await self.decide(step.effect, step.taker.attempt, False, None)

    async def _call(self, task: Task, method: Callable[..., Any], *args: Any) -> Any:
        return await call_task(self._state.tasks, task, method, RECONNECT_TIMEOUT_S, *args)


def _give_up(
    containers: Containers, effect: Effect, writer: StepEffect, error: BaseException
) -> None:
    """Records that an attempt on this task alone has failed, and drops its writes."""
    reported_error = (
        error if isinstance(error, OpError) else AbortedError(f"{effect} ended: {error!r}")
    )
    is_applied = containers.ledger(Ledger.finish, effect, None, reported_error)
    if isinstance(error, OpError):
        error.is_rolled_back = not is_applied
    writer.abort()


async def take_over(
    effect: Effect, tasks: Iterable[Task], call: CallTask, driver: CoreDriver
) -> Earlier | None:
    """Takes over from all earlier attempts of a step and decides them, so that none stays active.

    First all tasks are taken over, after which each ignores the master of the earlier attempt. Then
    what they know is final, and all that take over decide the same, in any order: if a task has
    committed the attempt, all had staged it, and the others commit it now.

    Args:
      effect: the later attempt.
      tasks: the tasks that it writes on.
      call: calls a method of `TaskEffects` on one of them.
      driver: runs this.

    Returns:
      The earlier attempt that is applied; None if there is none.

    Raises:
      SupersededError: if a still later attempt has taken over.
      UnavailableError: if a task is lost.
    """
    written_tasks = [*tasks]
    replies = await driver.all_of(
        call(task, TaskEffects.take_over, effect) for task in written_tasks
    )
    by_task: dict[Task, Earlier] = dict(zip(written_tasks, replies, strict=True))
    # An earlier attempt may have written on other tasks, too, such as the worker that it ran on. If
    # such a task is lost, what it had is lost as well.
    names = {name for earlier in by_task.values() for name in earlier.participants}
    for task in {*map(parsed_task, names)} - by_task.keys():
        with suppress(OpError):
            by_task[task] = await call(task, TaskEffects.take_over, effect)
    applied = verdict(by_task.values())
    decisions = [
        _decide(call, task, effect, earlier, applied)
        for task, earlier in by_task.items()
        if earlier.phase is Phase.STAGED
    ]
    await every(driver, decisions)
    return applied


async def _decide(
    call: CallTask, task: Task, effect: Effect, earlier: Earlier, applied: Earlier | None
) -> None:
    is_commit = applied is not None and applied.attempt == earlier.attempt
    decided_effect = Effect(effect.client, effect.epoch, effect.sequence, earlier.attempt)
    results = applied.results if applied is not None and is_commit else None
    await call(task, TaskEffects.decide, decided_effect, effect.attempt, is_commit, results)
