"""Tokens: the shared secret of a cluster, and those of its users, which are made of it. No I/O.

The token of a user is `jflow:USER:SERIAL:MAC`, where the mac is HMAC-SHA256 of user and serial with
the cluster's token as its key. So a server keeps no token of a user: it computes it from the user
and the serial that a caller names, if its list of users has them. A serial is random and never used
again: a token that was revoked stays so if its user gets another one.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol, Self

from jflow.base.roles import AccessRole

_SEPARATOR = ":"
_PREFIX = "jflow"
_MAC_DIGITS = 64

USER = re.compile(r"[a-z][a-z0-9_.-]{0,62}", re.ASCII)
"""What the name of a user may be."""

SERIAL = re.compile(r"[0-9a-f]{16}", re.ASCII)
"""The form of a serial: 64 random bits in hexadecimal."""


class TokenId(NamedTuple):
    """Which token of which user one is.

    Attributes:
      user: the name of the user.
      serial: tells the tokens of a user apart.
    """

    user: str
    serial: str

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Returns the id that a text such as "ann:0123456789abcdef" is; None for any other text."""
        user, _, serial = text.partition(_SEPARATOR)
        return cls(user, serial) if USER.fullmatch(user) and SERIAL.fullmatch(serial) else None

    def __str__(self) -> str:
        return f"{self.user}{_SEPARATOR}{self.serial}"


class Secret:
    """A token, as one key for each service.

    Args:
      token: the token of a cluster or of a user.

    Attributes:
      id: which token it is, if it is of a user; None for that of a cluster.
    """

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self.id = _id_of(token)

    def key(self, service: str) -> bytes:
        """Returns the key, u8[32], of all proofs on streams to a service."""
        return hmac.digest(self._token, b"jflow key for " + service.encode(), "sha256")

    def token_of(self, token_id: TokenId) -> str:
        """Returns the token of a user, which is made of this one."""
        mac = hmac.digest(self._token, b"jflow token of " + str(token_id).encode(), "sha256")
        return _SEPARATOR.join((_PREFIX, *token_id, mac.hex()))

    def no_token_of(self, token_id: TokenId) -> str:
        """Returns what takes the place of a user's token that is not accepted; no caller has it."""
        return hmac.digest(self._token, b"no token of " + str(token_id).encode(), "sha256").hex()

    def __repr__(self) -> str:
        return f"<jflow.net.protocol.Secret{f' of {self.id.user}' if self.id else ''}>"


class Users(Protocol):
    """The users of a cluster, as a server knows them at this moment."""

    def accept(self, token_id: TokenId) -> bool:
        """Whether a user has such a token, which was not revoked and has not expired."""

    def roles(self) -> Mapping[str, AccessRole] | None:
        """Returns the role of each user, the same object until a change; None if it is unknown."""


class _NoUsers:
    def accept(self, _: TokenId) -> bool:
        return False

    def roles(self) -> Mapping[str, AccessRole]:
        return MappingProxyType({})


NO_USERS: Users = _NoUsers()
"""The users of a cluster whose callers all have the token of the cluster."""


def is_token_of_user(token: str) -> bool:
    """Whether a token begins as that of a user."""
    return token.startswith(_PREFIX + _SEPARATOR)


def _id_of(token: str) -> TokenId | None:
    prefix, _, rest = token.partition(_SEPARATOR)
    name, _, mac = rest.rpartition(_SEPARATOR)
    if prefix != _PREFIX or len(mac) != _MAC_DIGITS:
        return None
    return TokenId.parse(name)
