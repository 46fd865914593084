"""`Outcome`: the future of a call that a client has started without waiting for it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from jflow.errors import OpError
from jflow.protocol.v1 import service_pb2 as pb
from jflow.values import Array

Reply = tuple[pb.Envelope, list[Array]]
CallAnswer = Reply | OpError
"""What answers a call: a message with its tensors, or an error."""


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
