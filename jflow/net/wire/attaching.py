"""Attaches data streams to sessions: both ends, on an event loop and on threads.

What both ends do is written once, as generators that yield what they wait for (`Wait`).
`run_on_loop` runs them on an event loop, `run_in_thread` in a thread that may block.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import os
import select
import socket
import ssl
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from jflow.base.deadline import Deadline
from jflow.base.deadline.clock import boot_id, now
from jflow.errors import UnavailableError
from jflow.net.protocol import settings
from jflow.net.protocol.frame import Buffers
from jflow.net.protocol.offers import PROOF_BYTES, DataOffer
from jflow.net.wire.connections import DataConnection, SocketConnection, close_in_thread
from jflow.net.wire.data_streams import DataStreams, log_once, without_data_stream
from jflow.net.wire.socket_stream import unsent
from jflow.net.wire.tls import DATA_PROTOCOL
from jflow.net.wire.tls_connection import TlsConnection
from jflow.net.wire.unix_sockets import is_of_this_user

T = TypeVar("T")

CONNECT_S = 2.0
"""How long one address may take to accept a connection, in seconds. A firewall that lets only
gRPC's port through may leave attempts without an answer."""


class UnattachedError(Exception):
    """No data stream can be attached; the reason is part of a sentence."""


class Wait(NamedTuple):
    """A wait for a socket, as a generator yields it; it is resumed with whether that is ready.

    Attributes:
      descriptor: of a socket.
      events: of `select.poll`, POLLIN or POLLOUT.
      seconds: how long it waits.
    """

    descriptor: int
    events: int
    seconds: float = settings.HELLO_S


Resumable = Generator[Wait, bool, T]
"""A generator that yields what it waits for, and returns a T."""


async def run_on_loop(waiting: Resumable[T]) -> T:
    """Runs a `Resumable` generator on the event loop; returns its result."""
    is_ready = False
    try:
        wait = next(waiting)
        while True:
            is_ready = await _is_ready(wait)
            wait = waiting.send(is_ready)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        waiting.close()


async def _is_ready(wait: Wait) -> bool:
    """Waits on the event loop for a socket; False if that takes too long."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    is_input = wait.events == select.POLLIN
    add, remove = (
        (loop.add_reader, loop.remove_reader) if is_input else (loop.add_writer, loop.remove_writer)
    )

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    add(wait.descriptor, wake)
    try:
        async with asyncio.timeout(wait.seconds):
            await ready
    except TimeoutError:
        return False
    finally:
        remove(wait.descriptor)
    return True


def run_in_thread(waiting: Resumable[T], limit: Deadline) -> T:
    """Runs a `Resumable` generator in this thread; returns its result.

    Raises:
      OpError: if the limit passes.
    """
    try:
        wait = next(waiting)
        while True:
            poll = select.poll()
            poll.register(wait.descriptor, wait.events)
            until = now() + wait.seconds
            remaining_s = limit.remaining()
            seconds = wait.seconds if remaining_s is None else min(wait.seconds, remaining_s)
            is_ready = bool(poll.poll(seconds * 1000))
            if not is_ready and now() < until:
                # Not without the data stream then: the server may have attached it.
                raise limit.error("attaching the data stream of a session")
            wait = waiting.send(is_ready)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        waiting.close()


def connect_socket(connecting: socket.socket, address: str | tuple[object, ...]) -> Resumable[None]:
    """Connects a non-blocking socket. Raises OSError."""
    error = connecting.connect_ex(address)
    if error == errno.EINPROGRESS:
        if not (yield Wait(connecting.fileno(), select.POLLOUT, CONNECT_S)):
            raise TimeoutError(errno.ETIMEDOUT, f"no answer within {CONNECT_S:g} s")
        error = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))


def encrypt(connection: TlsConnection) -> Resumable[None]:
    """Performs the TLS handshake. Raises OSError."""
    handshake = connection.handshake()
    for events in handshake:
        if not (yield Wait(connection.fileno(), events)):
            handshake.close()
            raise TimeoutError(errno.ETIMEDOUT, "the handshake of TLS takes too long")
    if connection.protocol != DATA_PROTOCOL:
        raise ConnectionAbortedError("the other end is no data stream")


def send_all(connection: DataConnection, data: bytes) -> Resumable[None]:
    """Sends bytes. Raises OSError."""
    rest: Buffers = [data]
    while rest or connection.has_unsent:
        try:
            rest = unsent(rest, connection.send(rest))
        except BlockingIOError:
            if not (yield Wait(connection.fileno(), select.POLLOUT)):
                raise _timeout_error() from None


def receive_all(connection: DataConnection, n_bytes: int) -> Resumable[bytes]:
    """Receives `n_bytes`, or fewer at the end of the stream. Raises OSError."""
    buffer = memoryview(bytearray(n_bytes))
    n_received = 0
    while n_received < n_bytes:
        try:
            n_more = connection.receive_into(buffer[n_received:], close_in_thread)
        except BlockingIOError:
            if not (yield Wait(connection.fileno(), select.POLLIN)):
                raise _timeout_error() from None
            continue
        if not n_more:
            break
        n_received += n_more
    return bytes(buffer[:n_received])


def _timeout_error() -> TimeoutError:
    return TimeoutError(errno.ETIMEDOUT, f"no answer within {settings.HELLO_S:g} s")


class _Candidate(NamedTuple):
    """An address at which a server may accept a data stream.

    Attributes:
      family: of the socket.
      address: the address to connect to.
      name: of the place, for messages.
    """

    family: int
    address: str | tuple[object, ...]
    name: str


@dataclass(frozen=True)
class Dialler:
    """Attaches data streams to a caller's sessions with one server.

    Attributes:
      choice: whether it does, and over what.
      context: for TLS; without it, nothing is encrypted.
      addresses: the numeric addresses of the server's host.
      name: the name that the server's certificate must have.
      is_direct: whether the address is that of the server, and not the near end of a tunnel.
    """

    choice: DataStreams = DataStreams.NEVER
    context: ssl.SSLContext | None = None
    addresses: Sequence[str] = ()
    name: str = ""
    is_direct: bool = True

    def attach(self, offer: DataOffer | None) -> Resumable[DataConnection | None]:
        """Attaches the offered data stream; returns None if gRPC carries the messages.

        Raises:
          UnavailableError: if there can be none and there must be one, or the server may have
            attached it and does not say so.
        """
        if self.choice is DataStreams.NEVER:
            return None
        try:
            return (yield from self.attaching(offer))
        except UnattachedError as error:
            without_data_stream(self.choice, str(error))
            return None

    def attaching(self, offer: DataOffer | None) -> Resumable[DataConnection]:
        """Attaches the offered data stream; a generator that yields its waits.

        Raises:
          UnattachedError: if there can be none.
          UnavailableError: if the server may have attached it and does not say so.
        """
        if not self.is_direct:  # what passes a tunnel is meant to pass it
            raise UnattachedError("the target leads through a tunnel")
        if offer is None:
            raise UnattachedError("the server offers none")
        reasons = self._reasons(offer)
        for candidate in self._candidates(offer):
            connecting = socket.socket(candidate.family, socket.SOCK_STREAM)
            try:
                connection = yield from self._open_connection(connecting, candidate)
            except OSError as error:
                connecting.close()
                why = error.strerror or error
                reasons.append(f"{candidate.name} cannot be reached ({why})")
                continue
            except BaseException:
                connecting.close()
                raise
            yield from _prove_offer(connection, offer, candidate)
            _log_choice(connection, reasons, self.choice)
            return connection
        raise UnattachedError("; ".join(reasons) or "the server's host has no address")

    def _reasons(self, offer: DataOffer) -> list[str]:
        """Returns why some of the allowed kinds of data streams cannot be used."""
        reasons = []
        if self.choice.has_unix and not _is_near(offer):
            elsewhere = "the server is on another machine"
            reasons.append(elsewhere if offer.path else "the server has no Unix socket")
        if self.choice.has_tcp and not offer.port:
            reasons.append("the server takes none over TCP")
        return reasons

    def _candidates(self, offer: DataOffer) -> Iterator[_Candidate]:
        """Yields the addresses to try, the best one first."""
        if self.choice.has_unix and _is_near(offer):
            yield _Candidate(socket.AF_UNIX, offer.path, "its socket")
        if self.choice.has_tcp and offer.port:
            for address in self.addresses:
                addresses = socket.getaddrinfo(
                    address, offer.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
                )
                for family, *_, where in addresses:
                    yield _Candidate(family, where, f"port {offer.port} of {address}")

    def _open_connection(
        self, connecting: socket.socket, candidate: _Candidate
    ) -> Resumable[DataConnection]:
        """Connects a socket, with TLS unless it is local or TLS is off. Raises OSError."""
        connecting.setblocking(False)
        yield from connect_socket(connecting, candidate.address)
        is_near = candidate.family == socket.AF_UNIX
        if is_near and not is_of_this_user(connecting):
            raise PermissionError(errno.EPERM, "a process of another user listens there")
        if is_near or self.context is None:
            return SocketConnection(connecting)
        connection = TlsConnection(connecting, self.context, self.name)
        yield from encrypt(connection)
        return connection


WITHOUT = Dialler()
"""Attaches none."""


def _is_near(offer: DataOffer) -> bool:
    """Whether the Unix socket of an offer is on this machine."""
    return bool(offer.path and boot_id()) and offer.boot_id == boot_id()


def _prove_offer(
    connection: DataConnection, offer: DataOffer, candidate: _Candidate
) -> Resumable[None]:
    """Sends the proof of the offer, and checks the server's proof.

    No other candidate is tried then: the server may have attached this one, and a process that
    listens in its place has got the proof.
    """
    try:
        yield from send_all(connection, offer.caller_proof)
        proof = yield from receive_all(connection, PROOF_BYTES)
        if not proof:
            raise UnattachedError("the server has refused the data stream")
        if not hmac.compare_digest(proof, offer.server_proof):
            raise UnattachedError(f"another process listens at {candidate.name}")
    except TimeoutError as error:
        connection.close()
        raise UnavailableError(
            f"the server does not answer at {candidate.name}, where its data stream was to be "
            f"attached: {error.strerror}"
        ) from None
    except OSError as error:
        connection.close()
        raise UnattachedError(
            f"{candidate.name} cannot be used ({error.strerror or error})"
        ) from None
    except BaseException:
        connection.close()
        raise


def _log_choice(connection: DataConnection, reasons: Sequence[str], choice: DataStreams) -> None:
    """Logs which kind of data stream is used, and why."""
    what = "a Unix socket" if connection.kind == "unix" else "TCP"
    if connection.is_encrypted:
        what += " with TLS"
    why = "both ends are on this machine" if connection.kind == "unix" else "; ".join(reasons)
    if choice is not DataStreams.WHERE_POSSIBLE:
        why = f"JFLOW_TRANSPORT={choice.value}"
    log_once(f"messages go over {what}: {why}")
