"""Exceptions raised by graphs, sessions and clusters.

There is one class for each gRPC status code. The names are TensorFlow's, so code that catches
`errors.UnavailableError` needs no change. A message says what happened, where, what was expected
and how to repair it; `op` and `task` hold the location for programs.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, overload


class Code(IntEnum):
    """gRPC status codes; the values are their numbers on the wire."""

    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


# TensorFlow's names, to compare `error_code` with.
OK = 0
CANCELLED = Code.CANCELLED
UNKNOWN = Code.UNKNOWN
INVALID_ARGUMENT = Code.INVALID_ARGUMENT
DEADLINE_EXCEEDED = Code.DEADLINE_EXCEEDED
NOT_FOUND = Code.NOT_FOUND
ALREADY_EXISTS = Code.ALREADY_EXISTS
PERMISSION_DENIED = Code.PERMISSION_DENIED
RESOURCE_EXHAUSTED = Code.RESOURCE_EXHAUSTED
FAILED_PRECONDITION = Code.FAILED_PRECONDITION
ABORTED = Code.ABORTED
OUT_OF_RANGE = Code.OUT_OF_RANGE
UNIMPLEMENTED = Code.UNIMPLEMENTED
INTERNAL = Code.INTERNAL
UNAVAILABLE = Code.UNAVAILABLE
DATA_LOSS = Code.DATA_LOSS
UNAUTHENTICATED = Code.UNAUTHENTICATED


class OpError(Exception):
    """Base class of the errors of a running graph or a cluster.

    The constructor takes a message, `OutOfRangeError("the end")`, or TensorFlow's arguments: a
    node, an operation and a message, `OutOfRangeError(None, None, "the end")`. With TensorFlow's
    arguments, `OpError` itself takes the status code as the fourth one.

    Attributes:
      message: what happened.
      op: name of the operation that failed, or None if the error has no single operation. In an
        error that user code made: the `op` argument.
      node_def: the `node_def` argument of an error that user code made, otherwise None.
      task: full name of the task where it failed, such as "/job:ps/task:0", or None.
      error_code: the status code.
      is_rolled_back: of a step, whether it is certain that nothing of it was applied, nor will be;
        False if that is not known, or the step was not to be applied once and has begun.
    """

    error_code = Code.UNKNOWN
    is_rolled_back = False

    @overload
    def __init__(
        self, message: str, /, *, op: str | None = None, task: str | None = None
    ) -> None: ...

    @overload
    def __init__(
        self, node_def: Any, op: Any, message: str, error_code: int = ..., /, *, task: Any = None
    ) -> None: ...

    @overload
    def __init__(
        self, *, message: str, node_def: Any = None, op: Any = None, task: str | None = None
    ) -> None: ...

    def __init__(self, *args: Any, task: str | None = None, **named: Any) -> None:
        names = ("message",) if len(args) == 1 else ("node_def", "op", "message", "error_code")
        fields = {**dict(zip(names, args, strict=False)), **named}
        is_valid = len(args) + len(named) == len(fields) and fields.keys() <= _ARGUMENTS
        if not is_valid or not isinstance(fields.get("message"), str):
            raise TypeError(
                f"{type(self).__name__} takes (message, op=None, task=None), or "
                f"(node_def, op, message) as in TensorFlow; got {args!r:.80} and {[*named]}"
            )
        super().__init__(fields["message"])
        self.message: str = fields["message"]
        self.op: Any = fields.get("op")
        self.node_def: Any = fields.get("node_def")
        self.task = task
        if "error_code" in fields:
            self.error_code = Code(fields["error_code"])

    def with_context(
        self, *, op: str | None = None, task: str | None = None, doing: str = "", made_at: str = ""
    ) -> None:
        """Adds where the error happened, while it propagates.

        The code nearest to the failure knows best, so `op` and `task` are not replaced once set.

        Args:
          op: name of the operation that failed.
          task: full name of the task where it failed.
          doing: what failed because of this error; the message begins with it.
          made_at: the user's file and line where the operation was made; the message ends with it.
        """
        self.op = self.op or op
        self.task = self.task or task
        if doing:
            self.message = f"{doing}: {self.message}"
        if made_at and made_at not in self.message:
            self.message += f" [{self.op!r} was made at {made_at}]"
        self.args = (self.message,)

    def add(self, what: str) -> None:
        """Adds to the end of the message."""
        self.message += f"; {what}"
        self.args = (self.message,)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), {**vars(self)}))


_ARGUMENTS = {"node_def", "op", "message", "error_code"}


def _rebuild(kind: type[OpError], state: dict[str, Any]) -> OpError:
    error = kind.__new__(kind)
    OpError.__init__(error, message=state["message"])
    vars(error).update(state)
    return error


class CancelledError(OpError):
    """The step was cancelled by the caller, by the end of its session or by a reset."""

    error_code = Code.CANCELLED


class UnknownError(OpError):
    """No more specific class: a port in use (as in TensorFlow), or a bug in user code."""

    error_code = Code.UNKNOWN


class InvalidArgumentError(OpError):
    """The request can never succeed: an invalid device, a missing feed, a shape mismatch."""

    error_code = Code.INVALID_ARGUMENT


class NotANumberError(InvalidArgumentError, FloatingPointError):
    """A program produced NaN under `jax_debug_nans`; also a FloatingPointError, as JAX raises."""

    def __init__(self, op: str, dtype: object, shape: tuple[int, ...]) -> None:
        sizes = ",".join(map(str, shape))
        super().__init__(
            f"invalid value (nan) encountered in {op!r}, which gave {dtype}[{sizes}]", op=op
        )


class DeadlineExceededError(OpError):
    """The timeout expired; the step was cancelled and the session remains usable."""

    error_code = Code.DEADLINE_EXCEEDED


class NotFoundError(OpError):
    """The named object does not exist."""

    error_code = Code.NOT_FOUND


class AlreadyExistsError(OpError):
    """An object with that name already exists."""

    error_code = Code.ALREADY_EXISTS


class PermissionDeniedError(OpError):
    """The caller is authenticated but not allowed to do this."""

    error_code = Code.PERMISSION_DENIED


class ResourceExhaustedError(OpError):
    """A limit on memory, size or count was reached."""

    error_code = Code.RESOURCE_EXHAUSTED


class FailedPreconditionError(OpError):
    """The state does not allow the operation yet, for example an uninitialized variable."""

    error_code = Code.FAILED_PRECONDITION


class AbortedError(OpError):
    """The state that the call relied on was lost, for example because a task restarted."""

    error_code = Code.ABORTED


class RestartedError(AbortedError):
    """A task has restarted, or was cut off, since what the call relies on was made there."""


class FencedError(AbortedError):
    """Another program has claimed what this one works under; this one can change nothing more."""


class OutOfRangeError(OpError):
    """The end of the data or the limit of a counter was reached."""

    error_code = Code.OUT_OF_RANGE


class UnimplementedError(OpError, NotImplementedError):
    """The operation is not supported here; also a NotImplementedError, as JAX raises."""

    error_code = Code.UNIMPLEMENTED


class InternalError(OpError):
    """An invariant of jflow was violated; please report it."""

    error_code = Code.INTERNAL


class UnavailableError(OpError):
    """A task cannot be reached; a later retry may succeed."""

    error_code = Code.UNAVAILABLE


class DataLossError(OpError):
    """Data was lost or corrupted and cannot be recovered."""

    error_code = Code.DATA_LOSS


class UnauthenticatedError(OpError):
    """The token is missing or does not match the server's."""

    error_code = Code.UNAUTHENTICATED


_BY_CODE: dict[int, type[OpError]] = {kind.error_code: kind for kind in OpError.__subclasses__()}
"""The class of each status code; users may have made others since."""

_REFINED: dict[str, type[OpError]] = {
    kind.__name__: kind for kind in (FencedError, NotANumberError, RestartedError)
}
"""Classes that share their status code with another class, by name."""


def class_name(error: OpError) -> str:
    """The name of an error's class if the status code does not imply it, otherwise ""."""
    name = type(error).__name__
    return name if _REFINED.get(name) is type(error) else ""


def from_code(
    code: int,
    message: str,
    *,
    op: str | None = None,
    task: str | None = None,
    class_name: str = "",
) -> OpError:
    """The error for a status received over the wire; unknown codes become `UnknownError`.

    Args:
      code, message, op, task: the attributes of the error.
      class_name: name of the error's class if the code does not imply it.
    """
    kind = _BY_CODE.get(code, UnknownError)
    refined = _REFINED.get(class_name, kind)
    if issubclass(refined, kind):
        kind = refined
    return _rebuild(kind, {"message": message, "op": op, "task": task})
