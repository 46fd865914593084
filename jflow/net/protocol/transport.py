"""The interface of transports: streams of frames between two addresses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from jflow.base.cluster import Target, Task
from jflow.base.deadline import Deadline
from jflow.base.values import SentArray
from jflow.errors import OpError, UnauthenticatedError, UnavailableError
from jflow.net.protocol.frame import Message
from jflow.net.protocol.framing import Framing
from jflow.net.protocol.interrupts import Interrupts
from jflow.net.protocol.offers import DataOffer

T = TypeVar("T")


class BrokenStreamError(Exception):
    """A stream failed.

    Args:
      details: the reason, as part of a sentence.
      is_refused: whether the other end refused the caller's token.
      is_untrusted: whether one end refused the other's certificate; the details say which.
    """

    def __init__(
        self, details: str, *, is_refused: bool = False, is_untrusted: bool = False
    ) -> None:
        super().__init__(details)
        self.is_refused = is_refused
        self.is_untrusted = is_untrusted


class EndedStreamError(BrokenStreamError):
    """A stream had ended before a frame was written; no part of the frame was sent."""


class FrameStream(Protocol):
    """One end of a stream on an event loop. One read and one write may be pending at a time.

    `read` and `write` are attributes, so that they can be the functions of the library that a
    transport uses, without a coroutine around each frame.

    Attributes:
      read: returns the next frame, or `eof` at the end.
      write: sends a frame.
      eof: what `read` returns at the end of the stream.
      errors: the exceptions that `read` and `write` raise; see `broken`.
      caller_names: of a server's end, the names in the certificate of the caller; None if it has
        none.
      machine: of a caller's end, the machine that the server must be on; "" if the address that it
        has connected to names a machine itself.
      kind: "grpc", "unix", "tcp" or "inproc".
    """

    kind: str

    @property
    def read(self) -> Callable[[], Awaitable[Any]]: ...

    @property
    def write(self) -> Callable[[bytes], Awaitable[None]]: ...

    @property
    def eof(self) -> object: ...

    @property
    def errors(self) -> tuple[type[Exception], ...]: ...

    @property
    def caller_names(self) -> frozenset[str] | None: ...

    @property
    def machine(self) -> str: ...

    def broken(self, error: Exception) -> BrokenStreamError:
        """Converts one of `errors` to a BrokenStreamError."""

    def offer(self) -> Upgrade | None:
        """Offers a data stream, at a server's end; returns None if there can be none."""

    async def attach(self, offer: DataOffer | None) -> DataStream | None:
        """Attaches the data stream that was offered, at a caller's end.

        Returns:
          The stream that carries the messages from now on; None if this one does.

        Raises:
          UnavailableError: if there can be no data stream, and there must be one.
        """

    async def close(self) -> None:
        """Ends the stream and frees its connection."""


class DataStream(FrameStream, Protocol):
    """A stream that carries the messages of a session instead of the one of its handshake.

    It ends with that one, and closes it.

    Attributes:
      framing: the form of its frames.
    """

    @property
    def framing(self) -> Framing: ...


class Upgrade(Protocol):
    """An offer of a data stream, at the server's end of the stream of a handshake.

    Attributes:
      offer: for the caller; None if it has it already.
    """

    @property
    def offer(self) -> DataOffer | None: ...

    async def chosen(self) -> tuple[FrameStream, Framing | None]:
        """Waits for the caller's first message, and returns the stream that it has chosen."""


class ClientData(Protocol):
    """A client's end of a data stream, which the threads that wait for replies read.

    Attributes:
      kind: "unix", "tcp" or "inproc".
    """

    @property
    def kind(self) -> str: ...

    def send(self, key: int, control: bytes, tensors: Sequence[SentArray]) -> None:
        """Sends a message; messages of one key are sent in order. Never blocks.

        Raises:
          ResourceExhaustedError: if it is too large.
        """

    def send_now(self, control: bytes, tensors: Sequence[SentArray]) -> bool:
        """Sends a message if it can leave at once; otherwise does nothing.

        Call it in a block of `deferred_interrupts`.

        Returns:
          Whether it is sent; otherwise nothing was done.
        """

    def get(self, answers: SimpleQueue[T], timeout: float | None, interrupts: Interrupts) -> T:
        """Waits for an item of a queue that `received` fills, and reads the stream meanwhile.

        Call it in a block of `deferred_interrupts`, which `interrupts` is of.

        Raises:
          Empty: if there is none within `timeout` seconds.
        """

    def expect(self, n: int) -> None:
        """Adds `n` to the number of expected messages for which no thread waits."""

    def complete(self, function: Callable[[], object]) -> None:
        """Calls a function on a thread of the stream, and expects one message less.

        What is done when a future completes must not run in a thread that waits for something else.
        """

    def tick(self) -> None:
        """Reads what has arrived, if no thread is reading; call it periodically."""

    @property
    def n_signs(self) -> int:
        """A number that grows when something is received or a large frame was sent."""

    def close(self) -> None:
        """Ends the stream and frees its connection; thread-safe."""


class ClientStream(Protocol):
    """A client's end of a stream, on threads of its own.

    Attributes:
      machine: see `FrameStream`.
    """

    @property
    def machine(self) -> str: ...

    def attach(
        self,
        offer: DataOffer | None,
        limit: Deadline,
        received: Callable[[Message], object],
        ended: Callable[[Exception | None], object],
    ) -> ClientData | None:
        """Attaches the data stream that this client was offered.

        Args:
          offer: the offer, if there was one.
          limit: when to give up.
          received: takes each message, on a thread that waits for one.
          ended: called once at the end of the data stream, with the error if it broke.

        Returns:
          The stream that carries the messages from now on; None if this one does.

        Raises:
          UnavailableError: if there can be no data stream, and there must be one.
          DeadlineExceededError: if it takes longer than the limit.
        """

    def close(self) -> None:
        """Ends the stream and frees its connection; thread-safe."""


Services = Mapping[str, Callable[[FrameStream], Awaitable[None]]]
"""The function that serves a stream, by the name of its service."""


class Listener(Protocol):
    """Listens on one port. Every method must be called on the event loop."""

    async def start(self, hosts: Sequence[str], port: int) -> int:
        """Starts listening; returns the port, which the system chooses if `port` is 0.

        Args:
          hosts: the numeric addresses to listen at, one or more.
          port: the port, the same at all of them.

        Raises:
          UnknownError: if an address cannot be bound, for example because it is in use.
        """

    async def stop(self) -> None:
        """Ends every stream; pending calls are cancelled, and their callers notice the end."""


class Transport(Protocol):
    """Carries frames between the clients and servers of one user."""

    def open(
        self,
        service: str,
        target: Target,
        limit: Deadline,
        outgoing: Iterator[bytes],
        received: Callable[[bytes], bool],
        ended: Callable[[BrokenStreamError | None], object],
    ) -> ClientStream:
        """Opens a client's stream to a server, which may start later.

        Args:
          service: the name of the service.
          target: the server that is meant.
          limit: the deadline for resolving the host's name.
          outgoing: the frames to send; read on one thread, where it may block.
          received: takes each frame when it is read; returns False to stop reading.
          ended: called once at the end of the stream, with the error if it broke.

        Raises:
          UnavailableError: if the address cannot be resolved.
          DeadlineExceededError: if resolving it takes longer than the limit.
        """

    async def connect(
        self, service: str, task: Task, address: str, refused_s: float | None = None
    ) -> FrameStream:
        """Connects to a service of a task, which may start later.

        Args:
          service: the name of the service.
          task: the task.
          address: "host:port".
          refused_s: how long attempts may fail before it gives up, in seconds; None for ever.

        Raises:
          UnavailableError: if the address cannot be resolved, or attempts have failed for so long.
          UnauthenticatedError: if one end refuses the other's certificate.
        """

    def listener(
        self, services: Services, is_serving: Callable[[], bool] = lambda: True
    ) -> Listener:
        """Makes a listener that is not bound to an address yet.

        Args:
          services: the services for callers that prove themselves.
          is_serving: the health that it reports to other callers, if the transport can.
        """


def stream_error(cause: object, server: str, caller: str, task: str | None) -> OpError:
    """Returns the error that a caller gets when a stream failed.

    Args:
      cause: the error of the transport, or a reason.
      server: the other end, for the message.
      caller: this end, for the message.
      task: the task at the other end.
    """
    if isinstance(cause, BrokenStreamError) and cause.is_refused:
        return UnauthenticatedError(f"{server} refused the token of {caller}: {cause}", task=task)
    if isinstance(cause, BrokenStreamError) and cause.is_untrusted:
        return UnauthenticatedError(f"{server} {cause}", task=task)
    return UnavailableError(f"{server} cannot be reached ({cause})", task=task)
