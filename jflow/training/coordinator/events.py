"""What the scheduler of closures takes and gives: closures, and actions for the engine."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

WorkerIndex = int
"""The index of a worker task."""


class Keeping(Enum):
    """Where the result of a closure is stored when it has ended."""

    NOT = "not"
    """At the coordinator."""
    COPY = "copy"
    """At the coordinator, and on the worker for closures that take it as argument."""
    ALONE = "alone"
    """On the worker only."""


class Closure(NamedTuple):
    """A scheduled function, as the scheduler sees it.

    Attributes:
      number: its place in the order of `schedule` calls; no other closure has it.
      kind: closures of equal kind run the same program in the same mode, so they take about the
        same time and can run as one step.
      priority: those of a higher priority run first; those of one priority, in order.
      worker: the only worker that may run it; None for any.
      expires: when it fails with a deadline error, by the clock of the events; None for never.
      inputs: the closures whose results are arguments of it.
      is_exactly_once: whether the runtime applies its writes once however many attempts it has.
      is_repeatable: whether a second attempt, concurrent with the first, does no harm.
      batch_size: how many of its kind can run as one step; 1 for no batches.
      needs_latest: whether what it writes depends on what it has read of the same variables. A
        worker has one such closure at a time, or others would compute with old values.
      keeping: where its result stays; it is `ALONE` only if the closure gives the same again.
    """

    number: int
    kind: Hashable = None
    priority: int = 0
    worker: WorkerIndex | None = None
    expires: float | None = None
    inputs: tuple[int, ...] = ()
    is_exactly_once: bool = False
    is_repeatable: bool = False
    batch_size: int = 1
    needs_latest: bool = False
    keeping: Keeping = Keeping.NOT


@dataclass(frozen=True)
class Dispatch:
    """Action: start closures on a worker as one attempt.

    Attributes:
      attempt: a number that no other attempt has.
      worker: where.
      closures: the closures; more than one for a batch.
      ordinal: the first closure's number of attempts with this one.
      places: the inputs that workers have, by their closures, and which worker has each.
    """

    attempt: int
    worker: WorkerIndex
    closures: tuple[int, ...]
    ordinal: int = 1
    places: tuple[tuple[int, WorkerIndex], ...] = ()


@dataclass(frozen=True)
class CancelAttempt:
    """Action: cancel an attempt, whose end is still reported to the scheduler."""

    attempt: int


@dataclass(frozen=True)
class Complete:
    """Action: a closure succeeded with the results of an attempt, at a position in a batch."""

    closure: int
    attempt: int
    position: int


@dataclass(frozen=True)
class FailClosure:
    """Action: a closure failed."""

    closure: int
    error: BaseException


@dataclass(frozen=True)
class Expire:
    """Action: a closure failed because its deadline passed."""

    closure: int


@dataclass(frozen=True)
class FailInput:
    """Action: a closure failed because one of its inputs failed.

    Attributes:
      closure: the closure.
      source: the closure whose result it would have taken.
    """

    closure: int
    source: int


@dataclass(frozen=True)
class Drop:
    """Action: a closure was cancelled.

    Attributes:
      closure: the closure.
      by_user: whether its own `cancel` was called; else an error of another one is the cause.
    """

    closure: int
    by_user: bool


@dataclass(frozen=True)
class Reopen:
    """Action: run a closure again, because its result was lost with a worker."""

    closure: int


@dataclass(frozen=True)
class PrepareBatch:
    """Action: compile batches of a closure's kind for a worker (`ClosureScheduler.batch_ready`)."""

    worker: WorkerIndex
    closure: int


Action = (
    Dispatch
    | CancelAttempt
    | Complete
    | FailClosure
    | Expire
    | FailInput
    | Drop
    | Reopen
    | PrepareBatch
)


@dataclass(frozen=True)
class Forget:
    """The engine's own action: drop an attempt that is not needed any more."""

    attempt: int
