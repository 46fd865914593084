"""`Rpc` and `Service`: the entries of the table in `rpcs.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

from jflow.cluster import Task
from jflow.deadline import FOREVER, Deadline
from jflow.errors import InternalError
from jflow.protocol.client_functions import ClientFunctions
from jflow.protocol.credits import ReplySize
from jflow.protocol.v1 import service_pb2 as pb
from jflow.values import Array

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
        if not self.envelope.remaining_s > 0:
            return FOREVER
        return Deadline(self.envelope.timeout_s, self.envelope.remaining_s)


Outgoing = tuple[Any, Sequence[Array]]
"""A message, None if there is nothing but tensors, and its tensors."""


@dataclass(frozen=True, eq=False)
class Rpc(Generic[S_contra, P, R]):
    """A remote procedure of a service S, which takes arguments P and returns an R.

    Attributes:
      name: the field of `Envelope` that holds the request.
      request: makes the request message and its tensors from the arguments.
      serve: calls the method of the service; returns the reply message and its tensors.
      result: decodes the reply message and its tensors.
      reply: the field of `Envelope` that holds the reply message; empty if there is none.
      doing: describes a request, for messages about deadlines.
      reply_size: gives the size of the last reply to such a request; None if it takes no credits.
    """

    name: str
    request: Callable[P, Outgoing]
    serve: Callable[[S_contra, Incoming], Awaitable[Outgoing]]
    result: Callable[[Any, list[Array]], R]
    reply: str = ""
    doing: Callable[[Any], str] = lambda _: "a call"
    reply_size: Callable[[Any, pb.Envelope], ReplySize | None] = lambda _, __: None

    def envelope(self, *args: P.args, **kwargs: P.kwargs) -> tuple[pb.Envelope, Sequence[Array]]:
        """The request with its tensors."""
        message, tensors = self.request(*args, **kwargs)
        return pb.Envelope(**{self.name: message}), tensors

    def read(self, envelope: pb.Envelope, tensors: list[Array]) -> R:
        """The result in a reply. Raises InternalError if the reply is malformed."""
        try:
            return self.result(getattr(envelope, self.reply) if self.reply else None, tensors)
        except (TypeError, ValueError) as error:
            raise InternalError(f"malformed reply to {self.name!r}: {error}") from None


@dataclass(frozen=True, eq=False)
class Service(Generic[S_contra]):
    """A service that a server offers, on streams of its own.

    Attributes:
      name: the name that transports use.
      role: the role of the server that serves it, for messages.
      open: opens a session of the service on a server, for the task that calls, if it is one.
      rpcs: its RPCs, by the fields of `Envelope` that hold their requests.
    """

    name: str
    role: str
    open: Callable[[Any, Task | None], S_contra]
    rpcs: Mapping[str, Rpc[S_contra, ..., Any]]
