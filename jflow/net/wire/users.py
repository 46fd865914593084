"""The file of users: whose tokens the servers of a cluster accept beside the cluster's own.

It has names, serials and dates, and no token (`jflow.net.protocol.tokens`). Every server of the
cluster reads it, again whenever it has changed, so all machines need the same one.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec

from jflow.base.files import is_without_room, replace_file
from jflow.base.logs import event
from jflow.base.roles import AccessRole
from jflow.base.versions import prepared
from jflow.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    PermissionDeniedError,
    ResourceExhaustedError,
)
from jflow.net.protocol.tokens import SERIAL, USER, TokenId
from jflow.net.wire.private_files import MAX_BYTES, make_private_directory, read_private

_LOG = logging.getLogger(__name__)

RETRY_S = 1.0
"""How long a file that could not be read is not read again, in seconds."""

_VARIABLE = "JFLOW_USERS_FILE"
_WRITABLE_BY_OTHERS = 0o022

_Serial = Annotated[str, msgspec.Meta(pattern=f"^{SERIAL.pattern}$")]
_Name = Annotated[str, msgspec.Meta(pattern=f"^{USER.pattern}$")]
_Role = Literal["read", "use", "operate"]


class TokenEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A token of a user.

    Attributes:
      made: when it was made, in seconds since 1970.
      until: when it expires, in the same form; None for never.
    """

    made: float
    until: float | None = None

    @property
    def has_expired(self) -> bool:
        """Whether it is no longer accepted."""
        return self.until is not None and self.until <= time.time()


class UserEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user.

    Attributes:
      tokens: their tokens by serial. Without any, what is theirs by its name is still theirs.
      role: what they may do.
    """

    tokens: Mapping[_Serial, TokenEntry] = {}
    role: _Role = "operate"


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    users: Mapping[_Name, UserEntry] = {}


def users_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Returns the path of the file of users: JFLOW_USERS_FILE, else ~/.jflow/users.json."""
    file_name = environ.get(_VARIABLE)
    return Path(file_name or os.path.join(os.path.expanduser("~"), ".jflow", "users.json"))


def read_users(path: Path) -> Mapping[str, UserEntry]:
    """Reads a file of users; there are none if it does not exist.

    Raises:
      PermissionDeniedError: if it cannot be read, is another user's, or others may replace it.
      InvalidArgumentError: if it is malformed.
    """
    try:
        content = read_private(path, _WRITABLE_BY_OTHERS)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise PermissionDeniedError(f"cannot read the file of users {path}: {error}") from error
    try:
        return msgspec.json.decode(content, type=prepared(_File)).users
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(
            f"the file of users {path} is malformed: {error}; correct it, or delete it and give "
            "every user a new token (`jflow token make`)"
        ) from None


class UsersFile:
    """The users that a file has at each moment; see `jflow.net.protocol.tokens.Users`.

    If it cannot be read any more, no token of a user is accepted.

    Args:
      path: of the file.

    Raises:
      OpError: as `read_users`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = self._look()
        self._read_at, self._has_failed = time.monotonic(), False
        # Without a file it does not matter where one could be; one that appears is checked.
        self._users = {} if self._stamp is None else read_users(path)
        self._roles = _roles_of(self._users)

    def accept(self, token_id: TokenId) -> bool:
        """See `Users.accept`."""
        self._read_again()
        user = self._users.get(token_id.user)
        token = None if user is None else user.tokens.get(token_id.serial)
        return token is not None and not token.has_expired

    def roles(self) -> Mapping[str, AccessRole] | None:
        """See `Users.roles`."""
        self._read_again()
        return None if self._has_failed else self._roles

    def _read_again(self) -> None:
        """Reads the file if it has changed."""
        stamp = self._look()
        if stamp == self._stamp or (
            self._has_failed and time.monotonic() < self._read_at + RETRY_S
        ):
            return
        # Nothing of a former state is in force while this one is not known.
        self._users, self._has_failed = {}, True
        self._stamp, self._read_at = stamp, time.monotonic()
        try:
            self._users = {} if stamp is None else read_users(self._path)
            self._roles, self._has_failed = _roles_of(self._users), False
        except OpError as error:
            self._stamp = None  # it is read again: the error may pass without a change of the file
            event(_LOG, logging.ERROR, "users_unreadable", reason=error.message)

    def _look(self) -> tuple[int, ...] | None:
        """Returns numbers that tell whether the file is another one, or was changed."""
        try:
            one = self._path.stat()
        except OSError:
            return None
        return one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns


def make_token(path: Path, user: str, role: AccessRole | None = None) -> TokenId:
    """Adds a user to a file, with a token.

    Args:
      path: of the file.
      user: the name.
      role: theirs; if None, the one that they had before their tokens were revoked, else the
        highest one.

    Raises:
      AlreadyExistsError: if there is such a user, with a token.
      InvalidArgumentError: if the name is not valid, or the file malformed.
      PermissionDeniedError: if the file cannot be read or written.
      ResourceExhaustedError: if the disk is full; the former file is kept.
    """
    if not USER.fullmatch(user):
        raise InvalidArgumentError(
            f"{user!r} cannot be the name of a user; expected a small letter, and up to 62 small "
            "letters, digits and '_.-' behind it"
        )
    with _changing(path) as users:
        if user in users and users[user].tokens:
            raise AlreadyExistsError(
                f"there is a user {user!r} in {path}; `jflow token rotate {user}` gives them "
                "another token"
            )
        if role is not None:
            users[user] = UserEntry(role=_text_of(role))
        return _add(users, user)


def rotate_token(path: Path, user: str, keep_s: float = 0.0) -> TokenId:
    """Gives a user another token.

    Args:
      path: of the file.
      user: the name.
      keep_s: how long their former tokens are still accepted, in seconds.

    Raises:
      NotFoundError: if there is no such user.
      InvalidArgumentError, PermissionDeniedError, ResourceExhaustedError: as `make_token`.
    """

    def shortened(token: TokenEntry) -> TokenEntry:
        end = time.time() + keep_s
        until = end if token.until is None else min(token.until, end)
        return msgspec.structs.replace(token, until=until)

    with _changing(path) as users:
        entry = _known(users, user, path)
        kept = {serial: shortened(token) for serial, token in entry.tokens.items()}
        users[user] = msgspec.structs.replace(
            entry, tokens={serial: one for serial, one in kept.items() if not one.has_expired}
        )
        return _add(users, user)


def revoke_tokens(path: Path, user: str) -> None:
    """Removes the tokens of a user. Raises as `rotate_token`.

    The user stays in the file, so that what belongs to them by its name is not shared from then on.
    """
    with _changing(path) as users:
        users[user] = msgspec.structs.replace(_known(users, user, path), tokens={})


def set_role(path: Path, user: str, role: AccessRole) -> None:
    """Gives a user another role. Raises as `rotate_token`."""
    with _changing(path) as users:
        users[user] = msgspec.structs.replace(_known(users, user, path), role=_text_of(role))


def _roles_of(users: Mapping[str, UserEntry]) -> Mapping[str, AccessRole]:
    return {user: AccessRole.of_user(entry.role) for user, entry in users.items()}


def _text_of(role: AccessRole) -> _Role:
    return next(text for text in get_args(_Role) if text == str(role))


def _known(users: Mapping[str, UserEntry], user: str, path: Path) -> UserEntry:
    if user not in users:
        raise NotFoundError(
            f"there is no user {user!r} in {path}; there are {', '.join(sorted(users)) or 'none'}"
        )
    return users[user]


def _add(users: dict[str, UserEntry], user: str) -> TokenId:
    token_id = TokenId(user, secrets.token_hex(8))
    entry = users.get(user, UserEntry())
    tokens = {**entry.tokens, token_id.serial: TokenEntry(float(int(time.time())))}
    users[user] = msgspec.structs.replace(entry, tokens=tokens)
    return token_id


@contextmanager
def _changing(path: Path) -> Iterator[dict[str, UserEntry]]:
    """Context manager that gives the users of a file, and writes them; one process at a time."""
    path = path.resolve()  # of a link, the file changes that other machines may read
    try:
        make_private_directory(path.parent)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            users = dict(read_users(path))
            yield users
            content = msgspec.json.format(msgspec.json.encode(_File(users))) + b"\n"
            if len(content) > MAX_BYTES:
                raise ResourceExhaustedError(
                    f"the file of users {path} would have {len(content)} bytes; at most "
                    f"{MAX_BYTES} are read: revoke users that need no token any more"
                )
            replace_file(path, content, mode=0o600)
        finally:
            os.close(folder)
    except OSError as error:
        kind = ResourceExhaustedError if is_without_room(error) else PermissionDeniedError
        raise kind(f"cannot change the file of users {path}: {error}") from error
