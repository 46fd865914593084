"""`UnixListener`: where callers attach data streams to their sessions, on a server's event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from dataclasses import dataclass

from jflow.errors import OpError
from jflow.protocol import settings
from jflow.protocol.offers import OFFER_NONCE_BYTES, PROOF_BYTES, DataOffer, OpenOffers
from jflow.protocol.tasks import TaskSet
from jflow.wire.machine import boot_id
from jflow.wire.unix_sockets import (
    is_of_this_user,
    listen,
    remove,
    remove_stale,
    socket_directory,
)
from jflow.wire.unix_stream import UnixStream

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenOffer:
    """An offer to one caller.

    Attributes:
      offer: what the caller is told.
      attached: the data stream, once the caller has attached it.
    """

    offer: DataOffer
    attached: asyncio.Future[UnixStream]


class UnixListener:
    """Listens at a path of its own; makes offers for it. Use it on the event loop only."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._path = ""
        self._offers: OpenOffers[asyncio.Future[UnixStream]] = OpenOffers()
        self._proving = TaskSet()
        self._n_proving = 0

    def start(self) -> None:
        """Starts listening; without a place for a socket, no offers are made."""
        try:
            directory = socket_directory()
            remove_stale(directory)
            self._socket, self._path = listen(directory)
        except OpError as error:
            _LOG.info("no data streams are offered: %s", error.message)
            return
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._accept)

    def stop(self) -> None:
        """Stops listening; streams that are attached are not ended by that."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            remove(self._path)
            self._socket.close()
            self._socket = None
        self._proving.cancel()

    def offer(self) -> OpenOffer | None:
        """A new offer; None if nothing listens."""
        if self._socket is None:
            return None
        loop = asyncio.get_running_loop()
        made = OpenOffer(
            DataOffer(self._path, boot_id(), os.urandom(OFFER_NONCE_BYTES)), loop.create_future()
        )
        self._offers.add(made.offer, made.attached, loop.time())
        return made

    def cancel(self, made: OpenOffer) -> None:
        """Ends an offer, and the stream that was attached by it and has no owner."""
        self._offers.cancel(made.offer)
        if made.attached.done():
            if not made.attached.cancelled():
                made.attached.result().end(None)
        else:
            made.attached.cancel()

    def _accept(self) -> None:
        assert self._socket is not None
        try:
            connected, _ = self._socket.accept()
        except OSError:  # none is left, or there are too many open files
            return
        if self._n_proving >= settings.MAX_UNPROVEN or not is_of_this_user(connected):
            connected.close()
            return
        connected.setblocking(False)
        self._proving.start(self._prove(connected))

    async def _prove(self, connected: socket.socket) -> None:
        """Attaches a connection to the session whose offer it proves to have, or closes it."""
        self._n_proving += 1
        is_taken = False
        try:
            async with asyncio.timeout(settings.HELLO_S):
                proof = await _received(connected, PROOF_BYTES)
            is_taken = self._attach(connected, proof)
        except (OSError, TimeoutError):  # the caller is gone, or is no caller
            pass
        finally:
            self._n_proving -= 1
            if not is_taken:
                connected.close()

    def _attach(self, connected: socket.socket, proof: bytes) -> bool:
        """Makes a connection the stream of an offer; False if there is none of that proof."""
        found = self._offers.take(proof, asyncio.get_running_loop().time())
        if found is None or found[1].done():
            return False
        offer, attached = found
        connected.send(offer.server_proof)  # never too much for a buffer in which nothing is
        attached.set_result(UnixStream(connected))
        return True


async def _received(connected: socket.socket, n_bytes: int) -> bytes:
    """So many bytes, fewer at the end of the stream."""
    data = b""
    while len(data) < n_bytes:
        more = await asyncio.get_running_loop().sock_recv(connected, n_bytes - len(data))
        if not more:
            break
        data += more
    return data
