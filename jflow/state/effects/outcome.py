"""Outcomes of the earlier attempts of a step, and the decision that follows from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from jflow.base.values import Array
from jflow.errors import AbortedError, OpError


class SupersededError(AbortedError):
    """A later attempt of the same step has taken over, or the step was applied before."""


class ConflictError(AbortedError):
    """An older step has what this one waits for; nothing of it was applied, so run it again."""


class Phase(IntEnum):
    """The phase of an attempt on one task; the values are those on the wire."""

    UNKNOWN = 0
    """It has written nothing here, and will not."""
    RUNNING = 1
    """It is running; what it has written is staged."""
    STAGED = 2
    """It has ended, and waits for the decision whether what it wrote is applied."""
    APPLYING = 3
    """It is being applied and cannot be stopped; its results are not there yet."""
    COMMITTED = 4
    """It is applied."""


@dataclass(frozen=True, eq=False)
class Earlier:
    """A task's report of the latest earlier attempt of a step, when a later one takes over.

    Attributes:
      phase: how far the latest earlier attempt has come. If `STAGED`, it waits for the decision of
        the attempt that takes over, and takes no other.
      attempt: its number; 0 if it is unknown.
      participants: the names of the tasks that have staged what it wrote.
      results: its results, if it is committed and they were kept.
      error: the error that it failed with after it was applied.
    """

    phase: Phase
    attempt: int = 0
    participants: tuple[str, ...] = ()
    results: tuple[Array, ...] | None = None
    error: OpError | None = None


def verdict(reports: Iterable[Earlier]) -> Earlier | None:
    """Returns the earlier attempt to commit on all tasks; None if no task has committed one.

    An attempt is committed on a task only after all tasks have staged it. So if one of them has
    committed it, every other one has staged it, or committed it too.

    Args:
      reports: what each task that takes part knows, all of which have been taken over.
    """
    committed = [one for one in reports if one.phase is Phase.COMMITTED]
    if not committed:
        return None
    return max(committed, key=lambda one: (one.attempt, one.results is not None))
