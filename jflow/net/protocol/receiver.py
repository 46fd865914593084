"""`Receiver`: decodes what a client receives, from the handshake on; no I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from jflow.base.values import Array
from jflow.errors import OpError
from jflow.net.protocol.admission import answer_in
from jflow.net.protocol.codec import error_of, open_message
from jflow.net.protocol.frame import Assembler, Message, new_tuple
from jflow.net.protocol.handshake import CallerHandshake
from jflow.net.protocol.templates import TemplateDecoder
from jflow.net.protocol.v1 import service_pb2 as pb

Reply = tuple[pb.Envelope, list[Array]]
CallAnswer = Reply | OpError
"""The reply to a call: a message with its tensors, or an error."""


class Answered(NamedTuple):
    """A reply to a call.

    Attributes:
      call: the id of the call.
      answer: the result of the call, or the error with which it failed.
      is_final: whether no other answer to that call follows.
    """

    call: int
    answer: CallAnswer
    is_final: bool = True


class Receiver:
    """Decodes what a server sends, in order: its challenge, its reply to the proof, then messages.

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
        """Decodes a frame of the first stream; returns the reply that it completes, or None.

        Raises:
          OpError: if the frame must not come now; the session cannot go on.
        """
        return self._next(frame)

    def message(self, message: Message) -> Answered:
        """Decodes a message. Raises as `frame`."""
        opened = self._decoder.open(message)
        if opened is not None and opened.template.is_plain:
            reply = opened.template.envelope, opened.tensors
            return new_tuple(Answered, (opened.varying.id, reply, True))
        return _reply_in(*(open_message(message) if opened is None else opened.common))

    def _challenge(self, frame: bytes) -> None:
        self._next = self._introduction
        self._prove(self._handshake.prove(frame))

    def _introduction(self, frame: bytes) -> Answered:
        self._next = self._chunk
        return _reply_in(answer_in(frame, self._handshake), [])

    def _chunk(self, frame: bytes) -> Answered | None:
        message = self._assembler.feed(frame)
        return None if message is None else self.message(message)


def _reply_in(envelope: pb.Envelope, tensors: list[Array]) -> Answered:
    code = envelope.status.code
    reply = error_of(envelope.status) if code else (envelope, tensors)
    return Answered(envelope.id, reply, is_final=not envelope.HasField("call_back"))
