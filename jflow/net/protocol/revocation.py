"""`UserStreams`: bounds the streams of users, and ends those whose tokens are not accepted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jflow.base.logs import event
from jflow.errors import OpError, ResourceExhaustedError, UnauthenticatedError
from jflow.net.protocol.tokens import TokenId, Users

_LOG = logging.getLogger(__name__)

MAX_STREAMS_OF_USER = 1024
"""How many streams, each of a session or a watcher, one user may have to a server."""

LOOK_S = 1.0
"""How often to look whether the tokens of open streams are still accepted, in seconds."""


class UserStreams:
    """The open streams of callers that have the token of a user. On the event loop only.

    Args:
      users: those whose tokens are accepted.
    """

    def __init__(self, users: Users) -> None:
        self._users = users
        self._open: dict[Callable[[OpError], None], TokenId] = {}
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def ending(self, token_id: TokenId | None, refuse: Callable[[OpError], None]) -> Iterator[None]:
        """Context manager in which a stream is open that ends when its token is not accepted.

        Args:
          token_id: with which its caller has proven itself; None for the server's own token, which
            is always accepted.
          refuse: ends the stream.
        """
        if token_id is None:
            yield
            return
        if sum(one.user == token_id.user for one in self._open.values()) >= MAX_STREAMS_OF_USER:
            refuse(
                ResourceExhaustedError(
                    f"the user {token_id.user!r} has {MAX_STREAMS_OF_USER} streams to this server, "
                    "which takes no more of them; end sessions that are not needed"
                )
            )
        self._open[refuse] = token_id
        try:
            self._look()  # it may have been revoked since the handshake
            yield
        finally:
            self._open.pop(refuse, None)

    def _look(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        try:
            self._refuse_revoked()
        finally:  # whatever an error of one look is, the next one is not left out
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LOOK_S, self._look) if self._open else None

    def _refuse_revoked(self) -> None:
        for refuse, token_id in [*self._open.items()]:
            if not self._users.accept(token_id):
                del self._open[refuse]
                user, serial = token_id
                event(_LOG, logging.INFO, "token_refused", user=user, token=serial)
                refuse(
                    UnauthenticatedError(
                        f"the token {serial} of the user {user!r} was revoked or has expired, so "
                        "their sessions have ended"
                    )
                )
