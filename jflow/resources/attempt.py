"""Resources as state machines, and the attempts that steps make on them.

A resource takes attempts and returns those that complete. It never wakes what waits for them: its
cell does (`cell.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from jflow.errors import OpError


class Attempt:
    """An action of a step on a resource, which may have to wait for other steps.

    It completes once, with values or with an error.

    Attributes:
      can_roll_back: whether its effect can be rolled back after it has succeeded.
      values: its results, once it has succeeded.
      error: why it failed, None if it did not.
      is_complete: whether it has completed.
      then: called with the attempt by the cell of the resource when it has completed and the lock
        is free again; the resource never calls it.
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
        """The values of a completed attempt. Raises its error if it failed."""
        if self.error is not None:
            # Several attempts may fail with one error, and each adds its own operation to it.
            raise type(self.error)(self.error.message, op=self.error.op, task=self.error.task)
        return self.values


class Resource(ABC):
    """State that steps share; the lock of its cell guards every call."""

    @abstractmethod
    def submit(self, attempt: Attempt) -> list[Attempt]:
        """Begins an attempt, unless it has completed already.

        Returns:
          All attempts that this completed, in order; the given one is among them unless it has to
          wait.
        """

    @abstractmethod
    def cancel(self, attempt: Attempt, error: OpError) -> list[Attempt]:
        """Cancels an attempt: it fails with `error`, and what it had taken goes back.

        Returns:
          All attempts that this completed, in order, because others may proceed now; none if the
          given one had completed already.
        """

    def unread(self, attempt: Attempt) -> list[Attempt]:
        """Takes the values of a completed attempt back, because nothing has read them.

        Returns:
          All attempts that this completed, in order.
        """
        return []

    def reason(self, attempt: Attempt) -> str:
        """What an attempt waits for, as the end of a sentence; "" if that is not known."""
        return ""

    @abstractmethod
    def close(self, error: OpError) -> list[Attempt]:
        """Empties the resource for good: waiting and later attempts fail with `error`.

        Returns:
          All attempts that this completed, in order.
        """
