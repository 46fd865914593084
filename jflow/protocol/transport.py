"""What the protocol needs of a transport: streams of frames between two addresses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Protocol

from jflow.cluster import Task
from jflow.deadline import Deadline
from jflow.errors import OpError, UnauthenticatedError, UnavailableError


class BrokenStreamError(Exception):
    """A stream failed.

    Args:
      details: how, as a part of a sentence.
      is_refused: whether the other end refused the token of the caller.
    """

    def __init__(self, details: str, *, is_refused: bool = False) -> None:
        super().__init__(details)
        self.is_refused = is_refused


class EndedStreamError(BrokenStreamError):
    """A stream had ended before a frame was written; nothing of the frame was sent."""


class FrameStream(Protocol):
    """One end of a stream on an event loop. One read and one write may be under way.

    `read` and `write` may be those of the library below: no coroutine of a transport's own is
    needed around every frame.

    Attributes:
      read: gives the next frame, or `eof` at the end.
      write: sends a frame.
      eof: what `read` gives at the end.
      errors: what `read` and `write` raise; see `broken`.
    """

    @property
    def read(self) -> Callable[[], Awaitable[Any]]: ...

    @property
    def write(self) -> Callable[[bytes], Awaitable[None]]: ...

    @property
    def eof(self) -> object: ...

    @property
    def errors(self) -> tuple[type[Exception], ...]: ...

    def broken(self, error: Exception) -> BrokenStreamError:
        """What one of the errors says."""

    async def close(self) -> None:
        """Ends the stream and frees its connection."""


class ClientStream(Protocol):
    """A client's end of a stream, which runs on threads of its own."""

    def close(self) -> None:
        """Ends the stream and frees its connection; any thread may call it."""


Services = Mapping[str, Callable[[FrameStream], Awaitable[None]]]
"""What serves the streams of each service, by the service's name."""


class Listener(Protocol):
    """Listens on an address. Every method must be called on the event loop."""

    async def start(self, host: str, port: int) -> int:
        """Listens; returns the port, which the system chooses if `port` is 0.

        Raises:
          UnknownError: if the address cannot be bound, for example because it is in use.
        """

    async def stop(self) -> None:
        """Ends every stream; calls under way are cancelled, and their callers see them end."""


class Transport(Protocol):
    """Carries frames to and from the servers of one user."""

    def open(
        self,
        service: str,
        address: str,
        limit: Deadline,
        outgoing: Iterator[bytes],
        received: Callable[[bytes], bool],
        ended: Callable[[BrokenStreamError | None], object],
    ) -> ClientStream:
        """Opens a client's stream to a server, which need not be up yet.

        Args:
          service: the name of the service.
          address: "host:port".
          limit: by when the host's name must be known.
          outgoing: the frames to send; to be read on one thread, which may block in it.
          received: takes each frame as soon as it is read; False if no further one is wanted.
          ended: called once at the end of the stream, with the error if it broke.

        Raises:
          UnavailableError: if the address cannot be resolved.
          DeadlineExceededError: if that is not known at the limit.
        """

    async def connect(self, service: str, task: Task, address: str) -> FrameStream:
        """Connects to a service of a task as soon as the task is up.

        Raises:
          UnavailableError: if the address cannot be resolved.
        """

    def listener(self, services: Services) -> Listener:
        """A listener that is not bound to an address yet."""


def stream_error(cause: object, server: str, caller: str, task: str | None) -> OpError:
    """The error that a caller gets for a stream that failed.

    Args:
      cause: what the transport raised, or a sentence.
      server: the other end, for the message.
      caller: this end, likewise.
      task: the task at the other end.
    """
    if isinstance(cause, BrokenStreamError) and cause.is_refused:
        return UnauthenticatedError(f"{server} refused the token of {caller}: {cause}", task=task)
    return UnavailableError(f"{server} cannot be reached ({cause})", task=task)
