"""What steps want of the resources they share, and what such a resource is.

A resource is a plain state machine: it is told of attempts and says which of them are settled. Who
waits for an attempt, and how he is woken, is the affair of those who hold the resource.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from jflow.errors import OpError


class Attempt:
    """Something that a step wants of a resource, which may have to wait for what others do.

    It settles once, with values or with an error.

    Attributes:
      can_be_undone: whether what it did can be taken back once it has succeeded.
      values: what it brought, once it succeeded.
      error: why it failed, if it did.
      is_settled: whether it is over.
      then: what the holder of the resource calls, with the attempt, when it is over and the
        resource is free again; the resource itself never calls it.
    """

    __slots__ = ("error", "is_settled", "then", "values")
    can_be_undone: ClassVar[bool] = True

    def __init__(self) -> None:
        self.values: tuple[Any, ...] = ()
        self.error: OpError | None = None
        self.is_settled = False
        self.then: Callable[[Attempt], None] | None = None

    def succeed(self, values: tuple[Any, ...] = ()) -> None:
        """It is over, and this is what it brought."""
        self.values = values
        self.is_settled = True

    def fail(self, error: OpError) -> None:
        """It is over and came to nothing."""
        self.error = error
        self.is_settled = True

    def result(self) -> tuple[Any, ...]:
        """What a settled attempt brought. Raises its error if it failed."""
        if self.error is not None:
            # Others may have failed with the same one, and each says where it was.
            raise type(self.error)(self.error.message, op=self.error.op, task=self.error.task)
        return self.values


class Resource(ABC):
    """State that steps share; its holder's lock guards every call."""

    @abstractmethod
    def submit(self, attempt: Attempt) -> list[Attempt]:
        """Takes an attempt in.

        Returns:
          All attempts that this settled, in order; the given one is among them if it need not
          wait. An attempt that had settled before is not taken in.
        """

    @abstractmethod
    def withdraw(self, attempt: Attempt, error: OpError) -> list[Attempt]:
        """Gives an attempt up: it fails with `error`, and what it had taken goes back.

        Returns:
          All attempts that this settled, in order, for others may go on now; none if the given one
          had settled already.
        """

    def restore(self, attempt: Attempt) -> list[Attempt]:
        """Takes back what an attempt brought that has settled, for nobody came to have it.

        Returns:
          All attempts that this settled, in order.
        """
        return []

    def reason(self, attempt: Attempt) -> str:
        """What an attempt waits for, as the end of a sentence; "" if there is nothing to say."""
        return ""

    @abstractmethod
    def abandon(self, error: OpError) -> list[Attempt]:
        """Empties the resource for ever: what waits, and what comes later, fails with `error`.

        Returns:
          All attempts that this settled, in order.
        """
