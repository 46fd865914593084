"""The client's side of callbacks: a running step calls functions of the client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jflow.base.values import Array, SentArray
from jflow.errors import InvalidArgumentError, OpError, UnknownError
from jflow.net.protocol.codec import error_to_status
from jflow.net.protocol.rpcs import CALLED_BACK
from jflow.net.protocol.v1 import service_pb2 as pb

CallbackFunction = Callable[[Sequence[Array]], Sequence[Array]]
"""A function of the client that steps may call: takes operands, returns results."""


class Callbacks:
    """The callbacks of one running step; thread-safe.

    Args:
      functions: the functions of the step by number.
      send: sends a message with tensors under the id of the step's call.

    Attributes:
      error: the exception that a function raised. The step fails with it, and no other function
        is called.
    """

    def __init__(
        self,
        functions: Sequence[CallbackFunction],
        send: Callable[[int, pb.Envelope, Sequence[SentArray]], None],
    ) -> None:
        self._functions = functions
        self._send = send
        self.error: Exception | None = None

    def answer(self, message: pb.Envelope, operands: Sequence[Array]) -> None:
        """Calls the function that a message names, and sends its results.

        Raises:
          BaseException: what the function raises other than an Exception, such as
            KeyboardInterrupt.
        """
        call, number = message.id, message.call_back.number
        results: Sequence[Array] = ()
        failed: Exception | None = None
        if self.error is not None:
            return
        try:
            if number >= len(self._functions):
                raise InvalidArgumentError(f"the step has no callback {number}")
            results = self._functions[number](operands)
        except Exception as error:
            failed = self.error = error
        reply, values = CALLED_BACK.envelope(call, number, results)
        if failed is not None:
            reply.status.CopyFrom(error_to_status(_callback_error(failed), ""))
        self._send(call, reply, values)


def _callback_error(error: Exception) -> OpError:
    """Returns the error that reports a function's exception to other tasks."""
    notes: list[Any] = getattr(error, "__notes__", [])
    words = " ".join(map(str, (f"{type(error).__name__}: {error}", *notes)))
    return UnknownError(f"a callback of the client failed: {words}")
