"""Serves the streams that clients and other servers open."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from jflow.protocol import settings
from jflow.protocol.dispatcher import Dispatcher
from jflow.protocol.records import info_to_proto
from jflow.protocol.rpc import Service
from jflow.protocol.rpcs import MASTER, WORKER
from jflow.protocol.services import ServerRoles
from jflow.protocol.stream import MessageStream
from jflow.protocol.tasks import TaskSet
from jflow.protocol.transport import FrameStream, Services
from jflow.protocol.v1 import service_pb2 as pb

_LOG = logging.getLogger(__name__)


class Endpoint:
    """Serves the streams of one server. Every method must be called on the event loop."""

    def __init__(self, server: ServerRoles) -> None:
        self._server = server
        self._closing = TaskSet()

    def services(self) -> Services:
        """The function that serves a stream, by the service's name."""

        def serving(service: Service[Any]) -> Any:
            return lambda stream: self._serve(service, stream)

        return {service.name: serving(service) for service in (MASTER, WORKER)}

    async def _serve(self, service: Service[Any], stream: FrameStream) -> None:
        """Serves one stream: the handshake, then calls on a session of its own."""
        messages = MessageStream(stream)
        try:
            async with asyncio.timeout(settings.HELLO_S):
                is_accepted = await self._handshake(messages)
        except TimeoutError:
            _LOG.warning("a stream did not begin within %g s and was closed", settings.HELLO_S)
            return
        if not is_accepted:
            return
        session = service.open(self._server)
        dispatcher = Dispatcher(self._server.info(), messages, service, session)
        try:
            await dispatcher.serve()
        finally:
            self._closing.start(dispatcher.end(session.close))

    async def _handshake(self, stream: MessageStream) -> bool:
        """Answers the first message of a stream; False if it is not Hello."""
        received = await stream.receive()
        if received is None:
            return False
        hello, _ = received
        if hello.WhichOneof("body") != "hello":
            _LOG.warning("a stream did not begin with Hello and was closed")
            return False
        await stream.send(pb.Envelope(id=hello.id, server_info=info_to_proto(self._server.info())))
        return True
