"""Errors of closures that have no status of their own."""

from __future__ import annotations

from jflow.errors import CancelledError


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
    """The error of a closure that was cancelled."""
    if by_user:
        return CancelledError(f"{name} is cancelled: cancel() of its RemoteValue was called")
    return CancelledError(
        f"{name} is cancelled, because another closure had failed. Please reschedule it if it is "
        "still wanted"
    )
