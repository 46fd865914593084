"""`Rpc` and `Service`: the entries of the table in `rpcs.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

from jflow.base.cluster import Task
from jflow.base.deadline import FOREVER, Deadline
from jflow.base.roles import AccessRole
from jflow.base.values import Array, SentArray
from jflow.base.versions import OLDEST_VERSION, VERSION
from jflow.errors import InternalError, InvalidArgumentError, UnimplementedError
from jflow.net.protocol.client_functions import ClientFunctions
from jflow.net.protocol.codec import control_of
from jflow.net.protocol.credits import ReplySize
from jflow.net.protocol.frame import new_tuple
from jflow.net.protocol.rights import Rights
from jflow.net.protocol.templates import (
    CallNumbers,
    Rest,
    TemplateEncoder,
    TemplateMessage,
    TemplateReply,
    Varying,
)
from jflow.net.protocol.v1 import service_pb2 as pb

P = ParamSpec("P")
S_contra = TypeVar("S_contra", contravariant=True)
R = TypeVar("R")


class Incoming(NamedTuple):
    """A received request; `functions` are those of the client that sent it."""

    envelope: pb.Envelope
    tensors: list[Array]
    functions: ClientFunctions

    @property
    def deadline(self) -> Deadline:
        """The deadline of the call, by the clock of this machine."""
        return deadline_of(self.envelope.timeout_s, self.envelope.remaining_s)


def deadline_of(timeout_s: float, remaining_s: float) -> Deadline:
    """Returns the deadline of a call by this machine's clock; 0 remaining seconds are no limit."""
    return Deadline(timeout_s, remaining_s) if remaining_s > 0 else FOREVER


Outgoing = tuple[Any, Sequence[SentArray]]
"""A message, None if there is nothing but tensors, and its tensors."""

DONE: Outgoing = (None, ())
"""The reply of an RPC that returns nothing."""


class RepeatedCall(NamedTuple):
    """The template key of a request's message, and the values that vary between such messages.

    Attributes:
      key: identifies the template among those of the RPC.
      numbers: see `templates`.
      tensors: its tensors.
    """

    key: Hashable
    numbers: CallNumbers
    tensors: Sequence[SentArray]


class CallRequest:
    """A request to send.

    Args:
      name: the field of `Envelope` that holds its message.
      make: makes its envelope and tensors, which are the same each time.
      repeated: see `RepeatedCall`; None if its message cannot have a template.
    """

    __slots__ = ("_built", "_make", "_name", "_repeated", "tensors")

    def __init__(
        self,
        name: str,
        make: Callable[[], tuple[pb.Envelope, Sequence[SentArray]]],
        repeated: RepeatedCall | None,
    ) -> None:
        self._name = name
        self._make = make
        self._built: pb.Envelope | None = None
        self._repeated = repeated
        if repeated is None:
            self._built, self.tensors = make()
        else:
            self.tensors = repeated.tensors

    @property
    def body(self) -> Any:
        """The request message."""
        return getattr(self._envelope(), self._name)

    def _envelope(self) -> pb.Envelope:
        if self._built is None:
            self._built, _ = self._make()
        return self._built

    def control(
        self,
        encoder: TemplateEncoder,
        call: int,
        incarnation: int,
        timeout_s: float = 0.0,
        remaining_s: float = 0.0,
    ) -> bytes:
        """Encodes the control part of the request's message.

        Args:
          encoder: the encoder of the stream.
          call: the id of the call; 0 if it has no reply.
          incarnation: the expected incarnation of the server.
          timeout_s, remaining_s: the caller's timeout and the rest of it; 0 for no limit.
        """

        def common() -> pb.Envelope:
            envelope = self._envelope()
            envelope.incarnation, envelope.timeout_s = incarnation, timeout_s
            return envelope

        if self._repeated is not None:
            key, numbers, tensors = self._repeated
            varying = new_tuple(Varying, (call, remaining_s, numbers))
            whole = (self._name, key, incarnation, timeout_s)
            control = encoder.control(whole, varying, tensors, common)
            if control is not None:
                return control
        envelope = common()
        envelope.id, envelope.remaining_s = call, remaining_s
        return control_of(envelope, self.tensors)


def nothing(_: Any, __: list[Array]) -> None:
    """Decodes the result of an RPC that returns nothing."""


def _no_method(*_: Any, **__: Any) -> Any:
    raise AssertionError("servers do not call it")


@dataclass(frozen=True, eq=False)
class Rpc(Generic[S_contra, P, R]):
    """A remote procedure of a service S, which takes arguments P and returns an R.

    Attributes:
      name: identifies the RPC among those of its service.
      needs: the least role that may call it.
      request: makes the request message and its tensors from the arguments.
      serve: calls the method of the service; returns the reply message and its tensors.
      result: decodes the reply message and its tensors.
      reply: the field of `Envelope` that holds the reply message; empty if there is none.
      doing: describes a request, for messages about deadlines.
      reply_size: gives the size of the last reply to such a request; None if it takes no credits.
      repeated: returns the template key and the rest of a request; None if it has no template.
      begin: as `serve`, for a request that has a template: begins the call in a plain
        function, maybe outside of tasks. Returns the reply, or what completes the call if it has to
        wait; await that in a task. None for a request that it cannot begin, nothing of which is
        done then.
      watch: waits, while a long request comes, until it can only fail, and raises its error; None
        if nothing is known that would make it fail.
      method: gives the method of the service that it calls, for `OwnTask.call`.
      body: the field of `Envelope` that holds the request, if it is not the name.
      deadline_of: finds the deadline among the arguments of a call.
      since: the version of the protocol that it came with.
      of_version: gives the same RPC as a version carries it; None if that is the same in all.
    """

    name: str
    needs: AccessRole = field(kw_only=True)
    request: Callable[P, Outgoing]
    serve: Callable[[S_contra, Incoming], Awaitable[Outgoing]]
    result: Callable[[Any, list[Array]], R]
    reply: str = ""
    doing: Callable[[Any], str] = lambda _: "a call"
    reply_size: Callable[[Any, pb.Envelope], ReplySize | None] = lambda _, __: None
    repeated: Callable[P, RepeatedCall | None] = lambda *_, **__: None
    begin: Callable[[S_contra, TemplateMessage, ClientFunctions], TemplateReply | Rest | None] = (
        lambda *_: None
    )
    watch: Callable[[S_contra, pb.Envelope], Awaitable[None] | None] = lambda *_: None
    method: Callable[[S_contra], Callable[P, Awaitable[R]]] = lambda _: _no_method
    body: str = ""
    deadline_of: Callable[[Sequence[Any], Mapping[str, Any]], Deadline] = _no_method
    since: int = OLDEST_VERSION
    of_version: Callable[[int], Rpc[S_contra, P, R]] | None = None

    def in_version(self, version: int, server: str) -> Rpc[S_contra, P, R]:
        """Returns the RPC as streams of a version of the protocol carry it.

        Args:
          version: the version of the stream.
          server: the server at its other end, for the message.

        Raises:
          UnimplementedError: if there is no such RPC in it; nothing was sent then.
        """
        if self.since > version:
            raise UnimplementedError(
                f"the call {self.name!r} came with version {self.since} of jflow's protocol, and "
                f'{server} speaks version {version}; upgrade it (docs/operating.md, "Upgrading a '
                'cluster")'
            )
        return self if version == VERSION or self.of_version is None else self.of_version(version)

    def prepared(self, *args: P.args, **kwargs: P.kwargs) -> CallRequest:
        """Returns the request for these arguments."""
        make = partial(self.envelope, *args, **kwargs)
        return CallRequest(self.body or self.name, make, self.repeated(*args, **kwargs))

    def envelope(
        self, *args: P.args, **kwargs: P.kwargs
    ) -> tuple[pb.Envelope, Sequence[SentArray]]:
        """Returns the envelope of the request for these arguments, and its tensors."""
        message, tensors = self.request(*args, **kwargs)
        return pb.Envelope(**{self.body or self.name: message}), tensors

    def read(self, envelope: pb.Envelope, tensors: list[Array]) -> R:
        """Decodes the result in a reply. Raises InternalError if the reply is malformed."""
        try:
            return self.result(getattr(envelope, self.reply) if self.reply else None, tensors)
        except (TypeError, ValueError, InvalidArgumentError) as error:
            raise InternalError(f"malformed reply to {self.name!r}: {error}") from None


def name_of(envelope: pb.Envelope) -> str:
    """Returns the name of the RPC that a request is for; "" if it is none."""
    body: str | None = envelope.WhichOneof("body")
    return envelope.method_call.name if body == "method_call" else body or ""


@dataclass(frozen=True, eq=False)
class Service(Generic[S_contra]):
    """A service that a server offers, on streams of its own.

    Attributes:
      name: the name that transports use.
      role: the role of the server that serves it, for messages.
      open: opens a session of the service on a server, for the task that calls, if it is one, with
        the rights of the caller.
      rpcs: its RPCs by name.
    """

    name: str
    role: str
    open: Callable[[Any, Task | None, Rights], S_contra]
    rpcs: Mapping[str, Rpc[S_contra, ..., Any]]

    def in_version(self, version: int) -> Service[S_contra]:
        """Returns the service as streams of a version of the protocol carry it."""
        if version == VERSION:
            return self
        rpcs = {
            name: rpc.in_version(version, self.role)
            for name, rpc in self.rpcs.items()
            if rpc.since <= version
        }
        return replace(self, rpcs=rpcs)
