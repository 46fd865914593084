"""`Outcome`: the future of a call that a client has started without waiting for it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeGuard

from jflow.base.deadline import Deadline
from jflow.base.values import Array
from jflow.errors import OpError
from jflow.net.protocol import settings
from jflow.net.protocol.v1 import service_pb2 as pb

Reply = tuple[pb.Envelope, list[Array]]
CallAnswer = Reply | OpError
"""What answers a call: a message with its tensors, or an error."""


class Answers(Protocol):
    """The receiver of one call's answer."""

    def put(self, answer: CallAnswer, /) -> None:
        """Takes an answer, on any thread."""


def calls_back(answer: CallAnswer) -> TypeGuard[Reply]:
    """Whether an answer is a call of one of this client's functions instead of the final one."""
    return isinstance(answer, tuple) and answer[0].HasField("call_back")


def answer_timeout(deadline: Deadline) -> float | None:
    """How long to wait for the answer to a call with a deadline, in seconds; None for no limit."""
    return None if deadline.timeout is None else (deadline.remaining() or 0.0) + settings.GRACE_S


class Outcome(Future[list[Array]]):
    """Receives the values of a step for which no thread waits."""

    def __init__(self, cancel_call: Callable[[int], None]) -> None:
        super().__init__()
        self._cancel_call = cancel_call
        self.key = 0

    def put(self, answer: CallAnswer) -> None:
        if not self.set_running_or_notify_cancel():
            return
        if isinstance(answer, OpError):
            self.set_exception(answer)
        else:
            self.set_result(answer[1])

    def stop(self) -> None:  # see `stop_step`
        self._cancel_call(self.key)

    def cancel(self) -> bool:
        if is_cancelled := super().cancel():
            self._cancel_call(self.key)
        return is_cancelled
