"""Steps that are applied once: what they write on a task, and how a local session runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jflow.deadline import Deadline
from jflow.effects import Earlier, Effect, Ledger, Phase, kept_results
from jflow.errors import AbortedError, DataLossError, OpError
from jflow.execution.link import LinkedPlan, LinkedRun
from jflow.execution.step_state import StepEffect
from jflow.resources import Containers, SingleWrite, Transaction, VariableId
from jflow.values import Array


@dataclass(frozen=True)
class WritesOfTask:
    """What plans of one task write.

    Attributes:
      variables: the variables.
      n_programs: how many programs write.
    """

    variables: frozenset[VariableId]
    n_programs: int

    @classmethod
    def of(cls, plans: Sequence[LinkedPlan]) -> WritesOfTask:
        """What linked plans write."""
        writing = [
            one.written
            for plan in plans
            for stage in plan.stages
            for one in stage
            if isinstance(one, LinkedRun) and one.written
        ]
        return cls(frozenset(key for keys in writing for key in keys), len(writing))

    def effect(
        self, containers: Containers, effect: Effect, *, is_alone: bool, is_wide: bool
    ) -> StepEffect:
        """What keeps the writes of an attempt.

        Args:
          containers: the state of the task.
          effect: the attempt.
          is_alone: whether no other task takes part in the step.
          is_wide: whether it writes on other tasks, too.
        """
        if is_alone and self.n_programs == 1:
            return SingleWrite(containers, effect)
        return Transaction(containers, effect, self.variables, is_wide=is_wide)


def repeated(effect: Effect, earlier: Earlier) -> list[Array]:
    """The results of an earlier attempt, which was applied.

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


class Once:
    """The steps of one local executable that are applied once; thread-safe.

    One of them runs at a time, so none waits for another one that waits for it.

    Args:
      containers: the state of the session.
      writes: what the step writes.
    """

    def __init__(self, containers: Containers, writes: WritesOfTask) -> None:
        self._containers = containers
        self._writes = writes

    def run(
        self,
        effect: Effect,
        run: Callable[[StepEffect | None], list[Any]],
        deadline: Deadline,
    ) -> list[Any]:
        """Runs an attempt, or returns the results of an earlier one that was applied.

        Args:
          effect: the attempt.
          run: runs the step; what it writes is kept by its argument.
          deadline: of the call.

        Raises:
          AbortedError: if a later attempt was run, or a later epoch of the client.
          DataLossError: if the step was applied, but its results were not kept.
          OpError: as `run`; nothing is applied then, unless the step is a single program that was.
        """
        if not self._writes.n_programs:
            return run(None)
        with deadline.holding(self._containers.once, "waiting for another such step"):
            earlier = self._containers.ledger(Ledger.take_over, effect)
            if earlier.phase is Phase.COMMITTED:
                return repeated(effect, earlier)
            self._containers.ledger(Ledger.begin, effect)
            staging = self._writes.effect(self._containers, effect, is_alone=True, is_wide=False)
            return run_alone(self._containers, effect, staging, lambda: run(staging))


def run_alone(
    containers: Containers, effect: Effect, staging: StepEffect, run: Callable[[], list[Any]]
) -> list[Any]:
    """Runs an attempt that has begun, on the only task that takes part, and applies it."""
    try:
        values = run()
        finish(containers, effect, staging, values)
    except BaseException as error:
        give_up(containers, effect, staging, error)
        raise
    return values


def finish(
    containers: Containers, effect: Effect, staging: StepEffect, values: Sequence[Array]
) -> None:
    """Applies an attempt that no other task takes part in, and keeps its results.

    Raises:
      SupersededError: if a later attempt has taken over, and nothing was applied.
    """
    kept = kept_results(values, is_saved=effect.is_saved)
    containers.ledger(Ledger.finish, effect, kept)
    staging.commit()


def give_up(
    containers: Containers, effect: Effect, staging: StepEffect, error: BaseException
) -> None:
    """An attempt that no other task takes part in has failed."""
    said = error if isinstance(error, OpError) else AbortedError(f"{effect} ended: {error!r}")
    is_applied = containers.ledger(Ledger.finish, effect, None, said)
    if isinstance(error, OpError):
        error.is_rolled_back = not is_applied
    staging.abort()
