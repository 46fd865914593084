"""`UserStreams`: bounds the streams of users, and ends those whose rights have become less."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from jflow.base.logs import event
from jflow.base.roles import AccessRole
from jflow.errors import AbortedError, OpError, ResourceExhaustedError, UnauthenticatedError
from jflow.net.protocol.rights import ALL_RIGHTS, Rights
from jflow.net.protocol.tokens import TokenId, Users

_LOG = logging.getLogger(__name__)

MAX_STREAMS_OF_USER = 1024
"""How many streams, each of a session or a watcher, one user may have to a server."""

LOOK_S = 1.0
"""How often to look whether the tokens of open streams are still accepted, in seconds."""


@dataclass(frozen=True)
class AdmittedCaller:
    """What the caller of a stream has proven of itself.

    Attributes:
      token_id: the token of a user; None for the server's own token.
      limit: the highest role that its certificate allows.
    """

    token_id: TokenId | None = None
    limit: AccessRole = AccessRole.CLUSTER


@dataclass(eq=False)
class UserStream:
    """An open stream whose caller has a role of users.

    Attributes:
      caller: its caller.
      rights: those that the caller has now.
      refuse: ends it.
      allow: gives the caller other rights, of a role that is not lower.
    """

    caller: AdmittedCaller
    rights: Rights
    refuse: Callable[[OpError], None]
    allow: Callable[[Rights], None]


class UserStreams:
    """The open streams whose callers have a role of users. On the event loop only.

    Args:
      users: those whose tokens are accepted.
    """

    def __init__(self, users: Users) -> None:
        self._users = users
        self._open: set[UserStream] = set()
        self._timer: asyncio.TimerHandle | None = None

    def rights_of(self, caller: AdmittedCaller) -> Rights:
        """Returns the rights that a caller has now.

        Raises:
          UnauthenticatedError: if its token is not accepted any more.
        """
        token_id, limit = caller.token_id, caller.limit
        if token_id is not None:
            is_accepted = self._users.accept(token_id)
            roles = self._users.roles() or {}
            if not is_accepted or token_id.user not in roles:
                raise _revoked(token_id)
            return Rights(min(limit, roles[token_id.user]), token_id.user, roles)
        if limit == AccessRole.CLUSTER:
            return ALL_RIGHTS
        known = self._users.roles()
        if known is None:  # so it is not known what belongs to them
            raise UnauthenticatedError(
                "the file of users cannot be read at the moment, so callers whose certificate has "
                "a role are refused; correct it (the event `users_unreadable` has the reason)"
            )
        return Rights(limit, "", known)

    @contextmanager
    def following(self, stream: UserStream) -> Iterator[None]:
        """Context manager in which a stream is open, whose rights follow the users.

        It ends when its token is not accepted any more, or when its role is a lower one: what runs
        has begun under the former one.
        """
        if stream.rights.role == AccessRole.CLUSTER:
            yield
            return
        user = stream.rights.user
        if user and sum(one.rights.user == user for one in self._open) >= MAX_STREAMS_OF_USER:
            stream.refuse(
                ResourceExhaustedError(
                    f"the user {user!r} has {MAX_STREAMS_OF_USER} streams to this server, which "
                    "takes no more of them; end sessions that are not needed"
                )
            )
            yield  # in which the stream ends
            return
        self._open.add(stream)
        try:
            self._look()  # it may have been revoked since the handshake
            yield
        finally:
            self._open.discard(stream)

    def _look(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        try:
            for stream in [*self._open]:
                self._follow(stream)
        finally:  # whatever an error of one look is, the next one is not left out
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LOOK_S, self._look) if self._open else None

    def _follow(self, stream: UserStream) -> None:
        former = stream.rights
        try:
            rights = self.rights_of(stream.caller)
        except UnauthenticatedError as error:
            token_id = stream.caller.token_id or TokenId("", "")
            event(_LOG, logging.INFO, "token_refused", user=token_id.user, token=token_id.serial)
            self._end(stream, error)
            return
        if rights.role != former.role:
            event(_LOG, logging.INFO, "role_changed", user=rights.user, role=str(rights.role))
        if rights.role < former.role:
            reason = f"{rights}, and had {str(former.role)!r} before, so this session has ended"
            self._end(stream, AbortedError(f"{reason}; open a new one"))
        elif rights.role != former.role or rights.users is not former.users:
            stream.rights = rights
            stream.allow(rights)

    def _end(self, stream: UserStream, error: OpError) -> None:
        self._open.discard(stream)
        stream.refuse(error)


def _revoked(token_id: TokenId) -> UnauthenticatedError:
    user, serial = token_id
    return UnauthenticatedError(
        f"the token {serial} of the user {user!r} was revoked or has expired, so their sessions "
        "have ended"
    )
