"""A remote procedure and a service, as entries of the table in `rpcs.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

from jflow.deadline import FOREVER, Deadline
from jflow.errors import InternalError
from jflow.protocol.client_functions import ClientFunctions
from jflow.protocol.v1 import service_pb2 as pb
from jflow.values import Array

P = ParamSpec("P")
S_contra = TypeVar("S_contra", contravariant=True)
R = TypeVar("R")


class Incoming(NamedTuple):
    """A request as a service gets it; `functions` are those of the client that sent it."""

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
"""A message, or None if the tensors say everything, and its tensors."""


@dataclass(frozen=True, eq=False)
class Rpc(Generic[S_contra, P, R]):
    """A procedure that a service S offers: takes arguments P and gives an R.

    Attributes:
      name: the field of `Envelope` that has the request.
      request: the request message and its tensors, from the arguments.
      serve: calls the method of the service; gives the reply message and its tensors.
      result: reads the reply message and its tensors.
      reply: the field of `Envelope` that has the reply message; empty if there is none.
      doing: what a caller waits for, from the request; for messages about deadlines.
    """

    name: str
    request: Callable[P, Outgoing]
    serve: Callable[[S_contra, Incoming], Awaitable[Outgoing]]
    result: Callable[[Any, list[Array]], R]
    reply: str = ""
    doing: Callable[[Any], str] = lambda _: "a call"

    def envelope(self, *args: P.args, **kwargs: P.kwargs) -> tuple[pb.Envelope, Sequence[Array]]:
        """The request with its tensors."""
        message, tensors = self.request(*args, **kwargs)
        return pb.Envelope(**{self.name: message}), tensors

    def read(self, envelope: pb.Envelope, tensors: list[Array]) -> R:
        """The result that a reply has. Raises InternalError if the reply makes no sense."""
        try:
            return self.result(getattr(envelope, self.reply) if self.reply else None, tensors)
        except (TypeError, ValueError) as error:
            raise InternalError(f"the reply to {self.name!r} makes no sense: {error}") from None


@dataclass(frozen=True, eq=False)
class Service(Generic[S_contra]):
    """A service that a server offers on streams of its own.

    Attributes:
      name: as transports address it.
      role: what serves it, for messages.
      open: a session of the service on a server.
      rpcs: its procedures, by the fields of `Envelope` that have their requests.
    """

    name: str
    role: str
    open: Callable[[Any], S_contra]
    rpcs: Mapping[str, Rpc[S_contra, ..., Any]]
