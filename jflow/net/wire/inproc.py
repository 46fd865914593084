"""`InprocTransport`: keeps sessions on servers of this process in it; delegates all others.

Whether a server is one of this process is never what anything says: it is looked up by the numeric
addresses at which listeners of this process have bound their ports. What listens there is no other
process (`ports.py`), so a connection to such an address would lead to that server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from jflow.base.cluster import Target, Task, split_address
from jflow.base.deadline import Deadline
from jflow.base.drivers.loop import TaskSet
from jflow.errors import OpError, UnauthenticatedError
from jflow.net.protocol.transport import (
    BrokenStreamError,
    ClientStream,
    FrameStream,
    Listener,
    Services,
    Transport,
)
from jflow.net.wire.data_streams import log_once
from jflow.net.wire.inproc_stream import InprocClient, InprocStream
from jflow.net.wire.names import resolve

_SERVED: Final[dict[tuple[str, int], InprocListener]] = {}
"""The listeners of this process, by each of the addresses and ports that they have bound."""


class InprocTransport:
    """Carries the messages of sessions within this process; see `protocol.transport.Transport`.

    Args:
      other: carries everything else.
      is_encrypted: whether that encrypts. Both ends must agree, as elsewhere.
    """

    def __init__(self, other: Transport, *, is_encrypted: bool) -> None:
        self._other = other
        self._is_encrypted = is_encrypted

    def open(
        self,
        service: str,
        target: Target,
        limit: Deadline,
        outgoing: Iterator[bytes],
        received: Callable[[bytes], bool],
        ended: Callable[[BrokenStreamError | None], object],
    ) -> ClientStream:
        listener = self._listener_of(target, limit)
        if listener is None:
            return self._other.open(service, target, limit, outgoing, received, ended)
        log_once("messages stay in this process: the server is one of it")
        return listener.open(service, outgoing, received, ended)

    async def connect(
        self, service: str, task: Task, address: str, refused_s: float | None = None
    ) -> FrameStream:
        return await self._other.connect(service, task, address, refused_s)

    def listener(
        self, services: Services, is_serving: Callable[[], bool] = lambda: True
    ) -> InprocListener:
        other = self._other.listener(services, is_serving)
        return InprocListener(services, other, is_encrypted=self._is_encrypted)

    def _listener_of(self, target: Target, limit: Deadline) -> InprocListener | None:
        """Returns this process's listener to which a target leads; None if there is none.

        A target that leads through a tunnel is never short-circuited.
        """
        if target.at or not _SERVED:
            return None
        _, port = split_address(target.address)
        services = {_SERVED.get((host, port)) for host in resolve(target.address, limit)}
        listener = services.pop()
        if services or listener is None or listener.is_encrypted != self._is_encrypted:
            return None
        return listener


class InprocListener:
    """Serves sessions within this process; another listener serves all others.

    Args:
      services: the functions that serve the streams of each service.
      other: the other listener.
      is_encrypted: whether that encrypts.
    """

    def __init__(self, services: Services, other: Listener, *, is_encrypted: bool) -> None:
        self.is_encrypted = is_encrypted
        self._services = services
        self._other = other
        self._bound: list[tuple[str, int]] = []
        self._streams = TaskSet()

    async def start(self, hosts: Sequence[str], port: int) -> int:
        self._loop = asyncio.get_running_loop()
        bound = await self._other.start(hosts, port)
        self._bound = [(host, bound) for host in hosts]
        _SERVED.update(dict.fromkeys(self._bound, self))
        return bound

    async def stop(self) -> None:
        for address in self._bound:
            del _SERVED[address]
        self._bound.clear()
        self._streams.cancel()
        await self._other.stop()

    def open(
        self,
        service: str,
        outgoing: Iterator[bytes],
        received: Callable[[bytes], bool],
        ended: Callable[[BrokenStreamError | None], object],
    ) -> InprocClient:
        """Opens a client's stream; see `Transport.open`. Call it off the event loop."""
        client = InprocClient(self._loop, received, ended)
        self._loop.call_soon_threadsafe(self._begin, service, client, outgoing)
        return client

    def _begin(self, service: str, client: InprocClient, outgoing: Iterator[bytes]) -> None:
        if self._bound:
            self._streams.start(self._serve(service, client, outgoing))
        else:
            client.end(BrokenStreamError("it has stopped"))

    async def _serve(self, service: str, client: InprocClient, outgoing: Iterator[bytes]) -> None:
        """Serves a stream until it ends, and passes the reason to the client."""
        cause: BrokenStreamError | None = None
        try:
            await self._services[service](InprocStream(client, outgoing))
        except BrokenStreamError as broken:
            cause = broken
        except OpError as error:
            is_refused = isinstance(error, UnauthenticatedError)
            cause = BrokenStreamError(error.message, is_refused=is_refused)
        finally:
            client.end(cause)
