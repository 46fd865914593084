"""Resources as state machines, and the attempts that steps make on them.

A resource accepts attempts and returns those that complete. It never wakes the steps that wait for
them; its cell does (`cell.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from jflow.errors import OpError


class Attempt:
    """An action of a step on a resource, which may have to wait for other steps.

    It completes once, with values or with an error.

    Attributes:
      can_roll_back: whether its effect can be rolled back after success.
      values: the results, after success.
      error: the error it failed with; None if it has not failed.
      is_complete: whether it has succeeded or failed.
      then: a function that the cell calls with the attempt after it has completed and the lock has
        been released; the resource never calls it.
    """

    __slots__ = ("error", "is_complete", "then", "values")
    can_roll_back: ClassVar[bool] = True

    def __init__(self) -> None:
        self.values: tuple[Any, ...] = ()
        self.error: OpError | None = None
        self.is_complete = False
        self.then: Callable[[Attempt], None] | None = None

    def succeed(self, values: tuple[Any, ...] = ()) -> None:
        """Completes the attempt with values."""
        self.values = values
        self.is_complete = True

    def fail(self, error: OpError) -> None:
        """Completes the attempt with an error."""
        self.error = error
        self.is_complete = True

    def result(self) -> tuple[Any, ...]:
        """Returns the values of a completed attempt, or raises its error."""
        if self.error is not None:
            # Several attempts may fail with the same error, and each adds its own operation.
            raise type(self.error)(self.error.message, op=self.error.op, task=self.error.task)
        return self.values


class Resource(ABC):
    """State shared between steps. Every call must hold the lock of its cell."""

    @abstractmethod
    def submit(self, attempt: Attempt) -> list[Attempt]:
        """Starts an attempt; does nothing if it has already completed.

        Returns:
          All attempts that this completed, in order. The given one is among them unless it waits.
        """

    @abstractmethod
    def cancel(self, attempt: Attempt, error: OpError) -> list[Attempt]:
        """Cancels an attempt: it fails with `error`, and whatever it had taken is put back.

        Returns:
          All attempts that this completed, in order, because others may now proceed. Empty if the
          given attempt had already completed.
        """

    def unread(self, attempt: Attempt) -> list[Attempt]:
        """Puts back the values of a completed attempt whose caller will not read them.

        Returns:
          All attempts that this completed, in order.
        """
        return []

    def reason(self, attempt: Attempt) -> str:
        """Describes what an attempt waits for, as "waited for ..."; "" if that is unknown."""
        return ""

    def waiting(self) -> Iterable[Attempt]:
        """The attempts that were submitted and have not completed, each once."""
        return ()
