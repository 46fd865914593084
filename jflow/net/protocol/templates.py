"""Templates: envelopes of repeated messages, encoded once by one end and decoded once by the other.

The messages of a registered step differ from one run to the next in a few numbers only. In a
control part with a template these stand in front of the envelope, which is the same bytes every
time:

    0 | call id u64 | remaining f64 | number u64 | number u64 | number u64 | envelope

An envelope itself never begins with 0, so a control part of either form says which one it has. Both
forms of a message mean the same (`TemplateMessage.envelope`): a transport, and whatever takes the
message apart, may use either. What the numbers are depends on the body of the envelope
(`_RENUMBER`).

Invariant: a template is decoded once and shared by all messages with the same bytes, so nothing may
change it. The shapes of its tensors were checked then; that they fit the payload is checked for
each message.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from jflow.base.values import NUMBERS, Array, SentArray
from jflow.errors import InvalidArgumentError
from jflow.net.protocol.codec import NAMES, checked_shape, open_control, open_tensors
from jflow.net.protocol.credits import ReplySize
from jflow.net.protocol.frame import Message, aligned, new_tuple
from jflow.net.protocol.v1 import service_pb2 as pb

MARK = 0
MAX_BYTES = 2048
"""Larger envelopes are not kept, so they have the other form."""
MAX_TENSORS = MAX_BYTES // 4
"""More tensors never fit: each takes some bytes of the envelope."""
MAX_KEPT = 512
"""How many envelopes one end of a stream keeps; then it begins anew."""

_VARYING = struct.Struct("<BQdQQQ")
NO_NUMBERS = (0, 0, 0)

CallNumbers = tuple[int, int, int]


class Varying(NamedTuple):
    """The fields that differ between messages with the same template.

    Attributes:
      id: the call; 0 for messages without a reply.
      remaining_s: what is left of the time that the caller allowed, in seconds; 0 for no limit.
      numbers: depend on the body.
    """

    id: int
    remaining_s: float = 0.0
    numbers: CallNumbers = NO_NUMBERS


class TemplateReply(NamedTuple):
    """A reply to a request that has a template.

    Attributes:
      tensors: its tensors.
      key: identifies its envelope among those of the same tensors.
      make: makes the envelope, with nothing but a body.
    """

    tensors: Sequence[SentArray]
    key: Hashable = None
    make: Callable[[], pb.Envelope] = pb.Envelope


Rest = Callable[[], Awaitable[TemplateReply | tuple[pb.Envelope, Sequence[Array]]]]
"""Completes a call that has begun and has to wait, with a reply that may have no template."""


class _Slot(NamedTuple):
    """The shape, the dtype and the offset of a tensor in the payload."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int


class EnvelopeTemplate:
    """An envelope that many messages share; it must not be changed.

    Args:
      envelope: the envelope, without the fields that vary.

    Attributes:
      envelope: the same.
      name: the field of its body; "" if it has none.
      is_plain: whether it has no body, so that the message is only its tensors.
      is_error: whether it reports the failure of a call.

    Raises:
      InvalidArgumentError: if one of its tensors is malformed, has no elements or is not numbers.
    """

    def __init__(self, envelope: pb.Envelope) -> None:
        self.envelope = envelope
        self.name: str = envelope.WhichOneof("body") or ""
        self.is_error = envelope.HasField("status")
        self.is_plain = not self.name and not self.is_error
        self._slots: list[_Slot] = []
        self._n_bytes = 0
        start = 0
        for meta in envelope.tensors:
            shape, dtype = checked_shape(meta), NUMBERS.get(meta.dtype)
            n_bytes = 0 if dtype is None else dtype.itemsize * math.prod(shape)
            if dtype is None or not n_bytes:
                raise InvalidArgumentError(
                    "malformed control message: one with a template has a tensor "
                    f"{meta.dtype}{shape}"
                )
            self._slots.append(_Slot(shape, dtype, start))
            self._n_bytes = start + n_bytes
            start += aligned(n_bytes)

    def tensors(self, payload: Array) -> list[Array]:
        """Decodes the tensors of a message; InvalidArgumentError if they do not fit its payload."""
        if self._n_bytes > len(payload):
            return open_tensors(self.envelope, payload)
        tensors = []
        for shape, dtype, start in self._slots:  # no comprehension, which would be a call
            tensors.append(np.ndarray(shape, dtype, payload, start))
        return tensors


class TemplateMessage:
    """A received message that has a template.

    Attributes:
      template: the template.
      varying: the fields that differ from other messages with this template.
      tensors: its tensors.
      early_result: of a call that was begun before a task took the message: its reply or error,
        or what completes it; None if it was not begun.
      size: the size of the last reply to such a call, once begun; None if it takes no credits.
    """

    __slots__ = ("__dict__", "early_result", "size", "template", "tensors", "varying")

    early_result: TemplateReply | Rest | Exception | None
    size: ReplySize | None

    def __init__(self, template: EnvelopeTemplate, varying: Varying, tensors: list[Array]) -> None:
        self.template = template
        self.varying = varying
        self.tensors = tensors
        self.early_result = self.size = None

    @cached_property
    def envelope(self) -> pb.Envelope:
        """An envelope of its own for this message, with what varies filled in."""
        whole = pb.Envelope()
        whole.CopyFrom(self.template.envelope)
        whole.id, whole.remaining_s, numbers = self.varying
        name = self.template.name
        if name in _RENUMBER:
            _RENUMBER[name](getattr(whole, name), numbers)
        return whole

    @property
    def common(self) -> tuple[pb.Envelope, list[Array]]:
        """The message in its common form: its envelope and its tensors."""
        return self.envelope, self.tensors


class TemplateDecoder:
    """Decodes control parts with templates, for one stream."""

    def __init__(self) -> None:
        self._templates: dict[bytes, EnvelopeTemplate] = {}

    def open(self, message: Message) -> TemplateMessage | None:
        """Decodes a message that has a template; returns None if it has the common form.

        Raises:
          InvalidArgumentError: if the message is malformed.
        """
        content = self._take(message)
        if content is not None:
            tensors = message.tensors
            content.tensors = (
                content.template.tensors(message.payload) if tensors is None else [*tensors]
            )
        return content

    def envelope(self, message: Message) -> pb.Envelope | None:
        """Decodes the envelope of a message whose payload may be missing; otherwise like `open`."""
        content = self._take(message)
        return None if content is None else content.envelope

    def _take(self, message: Message) -> TemplateMessage | None:
        """Like `open`, but without tensors."""
        control = message.control
        if not control or control[0] != MARK:
            return None
        size = _VARYING.size
        if not size <= len(control) <= size + MAX_BYTES:
            raise InvalidArgumentError(
                f"malformed control message: one with a template has {size} to "
                f"{size + MAX_BYTES} bytes, got {len(control)}"
            )
        _, call, remaining_s, *numbers = _VARYING.unpack_from(control)
        varying = new_tuple(Varying, (call, remaining_s, tuple(numbers)))
        encoded = control[size:]
        template = self._templates.get(encoded)
        if template is None:
            template = EnvelopeTemplate(open_control(message._replace(control=encoded)))
            if len(self._templates) >= MAX_KEPT:
                self._templates.clear()
            self._templates[encoded] = template
        return TemplateMessage(template, varying, [])


class TemplateEncoder:
    """Encodes control parts with templates, for one stream; thread-safe."""

    def __init__(self) -> None:
        self._templates: dict[Hashable, bytes] = {}

    def control(
        self,
        key: Hashable,
        varying: Varying,
        tensors: Sequence[SentArray],
        make: Callable[[], pb.Envelope],
    ) -> bytes | None:
        """Encodes the control part of a message; returns None if it cannot have a template.

        Args:
          key: identifies the envelope, among those of the same tensors.
          varying: the fields that differ from other messages with this envelope.
          tensors: the tensors of the message.
          make: makes the envelope, without tensors; it may have the fields that vary.
        """
        if len(tensors) > MAX_TENSORS:
            return None
        whole: Hashable = key
        for tensor in tensors:
            whole = whole, tensor.dtype, tensor.shape
        encoded = self._templates.get(whole)
        if encoded is None:
            if not all(tensor.dtype in NAMES and tensor.size for tensor in tensors):
                return None
            envelope = pb.Envelope()
            envelope.CopyFrom(make())  # which the other form may need, with what varies
            _strip(envelope)
            for tensor in tensors:
                envelope.tensors.add(dtype=NAMES[tensor.dtype], shape=tensor.shape)
            encoded = envelope.SerializeToString()
            if len(encoded) > MAX_BYTES:
                return None
            if len(self._templates) >= MAX_KEPT:
                self._templates = {}
            self._templates[whole] = encoded
        return _VARYING.pack(MARK, varying.id, varying.remaining_s, *varying.numbers) + encoded


# What the numbers are ---------------------------------------------------------------------------


def _strip(envelope: pb.Envelope) -> None:
    """Clears the fields of an envelope that vary between messages."""
    envelope.id, envelope.remaining_s = 0, 0.0
    name = envelope.WhichOneof("body")
    if name in _RENUMBER:
        _RENUMBER[name](getattr(envelope, name), NO_NUMBERS)


def _renumber_step(body: pb.RunStep, numbers: CallNumbers) -> None:
    body.step = numbers[0]
    if body.HasField("effect"):
        _renumber_effect(body.effect, numbers[1:])


def _renumber_plans(body: pb.RunPlans, numbers: CallNumbers) -> None:
    body.step = numbers[0]
    if body.HasField("effect"):
        _renumber_effect(body.effect, numbers[1:])


def _renumber_tensors(body: pb.SendTensors, numbers: CallNumbers) -> None:
    body.step = numbers[0]


def _renumber_effect(effect: pb.Effect, numbers: tuple[int, ...]) -> None:
    effect.sequence, effect.acknowledged = numbers


_RENUMBER: Mapping[str, Callable[[Any, CallNumbers], None]] = {
    "run_step": _renumber_step,
    "run_plans": _renumber_plans,
    "send_tensors": _renumber_tensors,
}
