"""`DataListener`: accepts the data streams that callers attach to their sessions."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jflow.base.deadline.clock import boot_id
from jflow.base.drivers.loop import TaskSet
from jflow.errors import OpError
from jflow.net.protocol.admission import UnauthenticatedStreams
from jflow.net.protocol.offers import OFFER_NONCE_BYTES, PROOF_BYTES, DataOffer, OpenOffers
from jflow.net.wire import ports, unix_sockets
from jflow.net.wire.attaching import Resumable, encrypt, receive_all, run_on_loop
from jflow.net.wire.connections import DataConnection, SocketConnection
from jflow.net.wire.data_streams import DataStreams
from jflow.net.wire.socket_stream import SocketStream
from jflow.net.wire.tls import Tls
from jflow.net.wire.tls_connection import TlsConnection
from jflow.net.wire.unix_sockets import is_of_this_user

_LOG = logging.getLogger(__name__)

PAUSE_S = 1.0
"""How long no connections are accepted once the process has too many open files, in seconds."""

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@dataclass(frozen=True)
class OpenOffer:
    """An offer of a data stream to one caller.

    Attributes:
      offer: the offer as it is sent to the caller.
      caller_names: the DNS names in the certificate of the caller; None if nothing is encrypted.
      attached: the data stream, once the caller has attached it.
    """

    offer: DataOffer
    caller_names: frozenset[str] | None
    attached: asyncio.Future[SocketStream]


class DataListener:
    """Accepts data streams over a Unix socket and TCP, and makes offers. On the event loop only.

    Args:
      choice: whether it listens at both. Over TCP it listens where other machines reach the server,
        or if nothing else is to be used.
      tls: the certificates of the server; without them, nothing is encrypted.
    """

    def __init__(self, choice: DataStreams, tls: Tls | None = None) -> None:
        self._choice = choice
        self._context = None if tls is None else tls.data_server_context()
        self._listening: list[socket.socket] = []
        self._place = DataOffer("", "", b"")
        self._directory_lock: int | None = None
        self._offers: OpenOffers[OpenOffer] = OpenOffers()
        self._unauthenticated = UnauthenticatedStreams()
        self._proving = TaskSet()

    def start(self, hosts: Sequence[str]) -> None:
        """Starts listening; if it can listen nowhere, no offers are made.

        Args:
          hosts: the numeric addresses of the server.
        """
        if self._choice.has_unix:
            self._listen_near()
        is_far = not ports.are_loopback(hosts)
        if self._choice is DataStreams.TCP or (self._choice.has_tcp and is_far):
            self._listen_far(hosts)
        for listening in self._listening:
            self._accept_from(listening)

    def _listen_near(self) -> None:
        try:
            directory = unix_sockets.socket_directory()
            self._directory_lock = unix_sockets.hold(directory)
            unix_sockets.remove_stale(directory)
            unix_sockets.remove_earlier(directory)
            listening, path = unix_sockets.listen(directory)
        except OpError as error:
            _LOG.info("no data streams are offered over Unix sockets: %s", error.message)
            return
        self._listening.append(listening)
        self._place = replace(self._place, path=path, boot_id=boot_id())

    def _listen_far(self, hosts: Sequence[str]) -> None:
        try:
            listening, port = ports.listen(hosts)
        except OpError as error:
            _LOG.info("no data streams are offered over TCP: %s", error.message)
            return
        self._listening += listening
        self._place = replace(self._place, port=port)

    def stop(self) -> None:
        """Stops listening; attached streams go on."""
        for listening in self._listening:
            asyncio.get_running_loop().remove_reader(listening.fileno())
            listening.close()
        self._listening.clear()
        if self._place.path:
            unix_sockets.remove(self._place.path)
        if self._directory_lock is not None:
            os.close(self._directory_lock)
            self._directory_lock = None
        self._proving.cancel()

    def offer(self, caller_names: frozenset[str] | None = None) -> OpenOffer | None:
        """Makes a new offer; returns None if nothing listens."""
        if not self._listening:
            return None
        loop = asyncio.get_running_loop()
        offer = replace(self._place, nonce=os.urandom(OFFER_NONCE_BYTES))
        opened = OpenOffer(offer, caller_names, loop.create_future())
        self._offers.add(opened.offer, opened, loop.time())
        return opened

    def cancel(self, opened: OpenOffer) -> None:
        """Cancels an offer, and ends the stream that was attached by it, if any."""
        self._offers.cancel(opened.offer)
        if opened.attached.done():
            if not opened.attached.cancelled():
                opened.attached.result().end(None)
        else:
            opened.attached.cancel()

    def _accept_from(self, listening: socket.socket) -> None:
        if listening in self._listening:  # it may have been stopped in a pause
            loop = asyncio.get_running_loop()
            loop.add_reader(listening.fileno(), self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        try:
            connected, _ = listening.accept()
        except OSError as error:
            if error.errno in _EXHAUSTED:  # it would be called again at once
                _LOG.warning("no data streams are accepted for %g s: %s", PAUSE_S, error)
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening.fileno())
                loop.call_later(PAUSE_S, self._accept_from, listening)
            return
        is_near = connected.family == socket.AF_UNIX
        if is_near and not is_of_this_user(connected):
            connected.close()
            return
        if is_near or self._context is None:
            self._proving.start(self._prove(SocketConnection(connected)))
        else:
            self._proving.start(self._prove(TlsConnection(connected, self._context, None)))

    async def _prove(self, connection: SocketConnection | TlsConnection) -> None:
        """Attaches a connection to the session whose offer it proves, or closes it."""
        is_taken = False
        try:
            async with self._unauthenticated.reading():
                proof = await run_on_loop(_proof(connection))
            is_taken = self._attach(connection, proof)
        except (OSError, OpError):  # the caller is gone, or is no caller
            pass
        finally:
            if not is_taken:
                connection.close()

    def _attach(self, connection: SocketConnection | TlsConnection, proof: bytes) -> bool:
        """Attaches a connection by its proof; returns False if no offer has that proof."""
        made = self._offers.pop(proof, asyncio.get_running_loop().time())
        if made is None or made.attached.done():
            return False
        if isinstance(connection, TlsConnection) and connection.peer_names != made.caller_names:
            return False
        # Never too much for a buffer in which nothing is.
        connection.send([made.offer.server_proof])
        made.attached.set_result(SocketStream(connection))
        return True


def _proof(connection: DataConnection) -> Resumable[bytes]:
    """Receives the proof of a caller; performs the TLS handshake first if there is one."""
    if isinstance(connection, TlsConnection):
        yield from encrypt(connection)
    return (yield from receive_all(connection, PROOF_BYTES))
