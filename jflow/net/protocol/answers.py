"""Answers to the calls of a client: what receives them, and the futures of started calls."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple, Protocol, TypeGuard

from jflow.base.deadline import Deadline
from jflow.base.values import Array
from jflow.errors import OpError
from jflow.net.protocol import settings
from jflow.net.protocol.admission import answer_in
from jflow.net.protocol.codec import error_of, open_message
from jflow.net.protocol.frame import Assembler, Message, new_tuple
from jflow.net.protocol.handshake import CallerHandshake
from jflow.net.protocol.templates import TemplateDecoder
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


class Answered(NamedTuple):
    """An answer to a call.

    Attributes:
      call: its id.
      answer: what it returns, or the error with which it failed.
      is_final: whether no other answer to that call follows.
    """

    call: int
    answer: CallAnswer
    is_final: bool = True


class Receiver:
    """The challenge of the server, its answer, and then messages, in the order in which they come.

    Args:
      handshake: of the client.
      prove: sends the proof, when the challenge has come.
    """

    def __init__(self, handshake: CallerHandshake, prove: Callable[[bytes], object]) -> None:
        self._handshake = handshake
        self._prove = prove
        self._next: Callable[[bytes], Answered | None] = self._challenge
        self._assembler = Assembler()
        self._decoder = TemplateDecoder()

    def frame(self, frame: bytes) -> Answered | None:
        """Takes a frame of the first stream; returns the answer that it completes, or None.

        Raises:
          OpError: if the frame is not what may come now; the session cannot go on.
        """
        return self._next(frame)

    def message(self, message: Message) -> Answered:
        """Takes a message. Raises as `frame`."""
        opened = self._decoder.open(message)
        if opened is not None and opened.template.is_plain:
            answer = opened.template.envelope, opened.tensors
            return new_tuple(Answered, (opened.varying.id, answer, True))
        return _answered(*(open_message(message) if opened is None else opened.common))

    def _challenge(self, frame: bytes) -> None:
        self._next = self._introduction
        self._prove(self._handshake.prove(frame))

    def _introduction(self, frame: bytes) -> Answered:
        self._next = self._chunk
        return _answered(answer_in(frame, self._handshake), [])

    def _chunk(self, frame: bytes) -> Answered | None:
        message = self._assembler.feed(frame)
        return None if message is None else self.message(message)


def _answered(envelope: pb.Envelope, tensors: list[Array]) -> Answered:
    failed = envelope.status.code
    answer = error_of(envelope.status) if failed else (envelope, tensors)
    return Answered(envelope.id, answer, is_final=not envelope.HasField("call_back"))
