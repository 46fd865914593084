"""Which lost task, if any, the error of a closure points to; errors of closures. Pure.

Errors name the task that was lost (`OpError.task`); nothing is read from their text.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from jflow.base.cluster import Task
from jflow.errors import (
    CancelledError,
    FailedPreconditionError,
    FencedError,
    NotFoundError,
    OpError,
    RestartedError,
    UnavailableError,
)


class LossKind(Enum):
    """The kind of task that was lost, if any."""

    WORKER = "worker"
    """The worker that ran the closure, or another one; the closure can run elsewhere."""

    STATE = "state"
    """A parameter server, with its variables."""

    VALUES = "values"
    """Perhaps a parameter server with its variables: one has no value there."""

    CLAIM = "claim"
    """The claim of this program, because another one has taken over."""


@dataclass(frozen=True)
class Loss:
    """What was lost, according to the error of a closure: a task, its state or the claim.

    Attributes:
      kind: what was lost.
      task: the lost task; of `CLAIM`, the one that said so, if that is known.
    """

    kind: LossKind
    task: Task | None


def loss_of(error: BaseException, worker: Task, servers: Collection[Task]) -> Loss | None:
    """Returns the loss that an attempt's error points to; None if the closure itself failed.

    Args:
      error: how the attempt ended.
      worker: the worker that ran it.
      servers: the tasks that keep the variables.
    """
    if isinstance(error, FencedError):
        return Loss(LossKind.CLAIM, _task(error))
    if isinstance(error, FailedPreconditionError) and (task := _task(error)) in servers:
        return Loss(LossKind.VALUES, task)
    if not isinstance(error, UnavailableError | RestartedError):
        return None
    task = _task(error)
    return Loss(LossKind.STATE, task) if task in servers else Loss(LossKind.WORKER, task or worker)


def is_input_lost(error: BaseException, loss: Loss | None, worker: Task) -> bool:
    """Returns whether a failed attempt has found a result that it reads to be lost.

    Args:
      error: how the attempt ended.
      loss: what that says about the cluster.
      worker: the worker that ran it.
    """
    if isinstance(error, NotFoundError | CancelledError):
        return True
    return loss is not None and loss.kind is LossKind.WORKER and loss.task != worker


def is_rolled_back(error: BaseException) -> bool:
    """Returns whether an attempt failed by itself and is known to have applied nothing.

    False if the error is one of a loss, which other attempts would meet as well.
    """
    is_loss = isinstance(error, UnavailableError | RestartedError | FencedError)
    return isinstance(error, OpError) and error.is_rolled_back and not is_loss


def unavailable(error: BaseException, task: Task | None) -> UnavailableError:
    """Returns the error of a closure that used a task which was lost."""
    if isinstance(error, UnavailableError):
        return error
    unavailable_error = UnavailableError(
        f"{task} was lost, with what it kept: {error}", task=str(task)
    )
    unavailable_error.__cause__ = error
    return unavailable_error


class Tolerance:
    """Ignores a limited number of successive loss reports about parameter servers that respond.

    A worker that cannot reach a server says the same as one whose server has died. So it is asked
    from elsewhere; if it is there, in the same life, the closure runs again. A connection that
    breaks again and again is a loss in the end.

    Args:
      n_ignored: how many reports of one server are ignored before a closure succeeds again.
    """

    def __init__(self, n_ignored: int) -> None:
        self._n_ignored = n_ignored
        self._reports: dict[Task, int] = {}

    def reported(self, task: Task) -> bool:
        """Counts a report that a responsive server was lost; returns whether to ignore it."""
        count = self._reports[task] = self._reports.get(task, 0) + 1
        return count <= self._n_ignored

    def succeeded(self) -> None:
        """Records that a closure succeeded, so that the servers are up."""
        self._reports.clear()


def _task(error: OpError) -> Task | None:
    try:
        return None if error.task is None else Task.parse(error.task)
    except ValueError:
        return None


class ClosureInputError(Exception):
    """A closure could not run because one of its inputs failed: a dataset, or another closure.

    Args:
      original_exception: what happened to the input.

    Attributes:
      original_exception: as given.
    """

    def __init__(self, original_exception: BaseException) -> None:
        super().__init__(
            f"an input of the closure has failed: {type(original_exception).__name__}: "
            f"{original_exception}"
        )
        self.original_exception = original_exception
        self.__cause__ = original_exception

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.original_exception,)


def cancelled(name: str, *, by_user: bool) -> CancelledError:
    """Returns the error of a closure that was cancelled."""
    if by_user:
        return CancelledError(f"{name} is cancelled: cancel() of its RemoteValue was called")
    return CancelledError(
        f"{name} is cancelled, because another closure had failed. Please reschedule it if it is "
        "still wanted"
    )
