"""Serves the streams that clients and other servers open."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import Any

from jflow.base.drivers.loop import TaskSet
from jflow.base.logs import event
from jflow.errors import OpError
from jflow.net.protocol.admission import UnauthenticatedStreams, admit, introduce
from jflow.net.protocol.dispatcher import Dispatcher
from jflow.net.protocol.identity import (
    ServerIdentity,
    ServerLocation,
    caller_of,
    certified_role,
)
from jflow.net.protocol.revocation import AdmittedCaller, UserStream, UserStreams
from jflow.net.protocol.rights import Rights
from jflow.net.protocol.rpc import Service
from jflow.net.protocol.rpcs import MASTER, WORKER
from jflow.net.protocol.services import ServerRoles
from jflow.net.protocol.stream import MessageStream
from jflow.net.protocol.tokens import NO_USERS, Secret, Users
from jflow.net.protocol.transport import BrokenStreamError, FrameStream, Services

_LOG = logging.getLogger(__name__)


class Endpoint:
    """Serves the streams of one server. Every method must be called on the event loop.

    Args:
      server: the server.
      secret: the token, which callers must prove to have.
      location: the addresses and the machine by which the server is reached.
      cluster_name: the name of its cluster; "" if it has none.
      users: whose tokens are accepted beside it.
    """

    def __init__(
        self,
        server: ServerRoles,
        secret: Secret,
        location: ServerLocation,
        cluster_name: str = "",
        users: Users = NO_USERS,
    ) -> None:
        self._server = server
        self._secret = secret
        self._users = users
        self._of_users = UserStreams(users)
        self._cluster_name = cluster_name
        self._location = location
        self._unauthenticated = UnauthenticatedStreams()
        self._closing = TaskSet()
        self._dispatchers: set[Dispatcher[Any]] = set()
        self._leaving: OpError | None = None

    def services(self) -> Services:
        """Returns the functions that serve a stream, by the names of the services."""
        return {service.name: partial(self._serve, service) for service in (MASTER, WORKER)}

    def refuse_calls(self, error: OpError) -> None:
        """Fails all unanswered calls of all callers, and those that come, with an error."""
        for dispatcher in self._dispatchers:
            dispatcher.refuse_calls(error)

    def refuse_clients(self, error: OpError) -> None:
        """Fails the calls of clients that come from now on, with an error; others go on."""
        self._leaving = error
        for dispatcher in self._dispatchers:
            if dispatcher.service is MASTER:
                dispatcher.refuse_new_calls(error)

    @property
    def owes_clients(self) -> bool:
        """Whether calls of clients are not answered yet."""
        return any(one.service is MASTER and one.is_working for one in self._dispatchers)

    async def _serve(self, service: Service[Any], stream: FrameStream) -> None:
        """Serves one stream: the handshake, then calls on a session of its own."""
        async with self._unauthenticated.reading():
            handshake = await admit(
                stream, self._secret, self._users, service.name, self._identity()
            )
        if handshake is None:
            return
        of_caller = AdmittedCaller(handshake.user_token, certified_role(stream.caller_names))
        rights = self._of_users.rights_of(of_caller)
        info = self._server.info()
        upgrade = stream.offer()
        if upgrade is not None:
            info = replace(info, data_offer=upgrade.offer)
        # What a user's caller says of itself is not proven, and no task has a user's token.
        caller = None if rights.user else caller_of(handshake.hello)
        session = service.open(self._server, caller, rights)
        try:
            await introduce(stream, handshake, info)
            channel = (stream, None) if upgrade is None else await upgrade.chosen()
        except BaseException:
            session.close()
            raise
        messages = MessageStream(*channel, caller)
        spoken = service.in_version(handshake.version)
        dispatcher = Dispatcher(info, messages, spoken, session, rights)

        def allow(changed: Rights) -> None:
            dispatcher.allow(changed)
            session.limit(changed)

        self._dispatchers.add(dispatcher)
        if self._leaving is not None:
            self.refuse_clients(self._leaving)
        try:
            of_user = UserStream(of_caller, rights, dispatcher.refuse, allow)
            with self._of_users.following(of_user):
                await dispatcher.serve()
        except BrokenStreamError as error:
            caller_name = rights.user if caller is None else str(caller)
            role, reason = service.role, str(error)
            event(_LOG, logging.INFO, "stream_lost", caller=caller_name, role=role, reason=reason)
            raise
        finally:
            self._dispatchers.discard(dispatcher)
            self._closing.start(dispatcher.end(session.close))

    def _identity(self) -> ServerIdentity:
        info = self._server.info()
        return ServerIdentity(
            info.task,
            info.incarnation,
            info.cluster,
            self._cluster_name,
            self._location,
            info.successors,
        )
