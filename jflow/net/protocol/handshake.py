"""The handshake that begins every stream: proves the token and which server it is; no I/O.

    caller → server   prefix | Hello             a nonce, and the server that is meant
    server → caller   prefix | Challenge | mac   a nonce
    caller → server   mac
    server → caller   prefix | answer | mac      an introduction, or why the caller is refused

The prefix, which has the version, is the same in all versions, so that unlike ones refuse each
other in words. A caller says its newest version first. A server that speaks it, because it is its
own or the one before, answers in it; any other server answers with its own prefix, and a caller
that speaks that version, too, begins again in it, once, on a new stream. A mac is
HMAC-SHA256 over the bytes of Hello, of Challenge and, in the last frame, of the answer, each with
its prefix: hence over both nonces, the version, the token that is meant, and the cluster, task,
incarnation, address and machine that were dialled. Its key is derived from the token and the
service, so that proofs for one service are worth nothing for another one. A byte in front says
which of the frames it is of. The token itself is never sent; a caller with that of a user says
which one it is (`tokens.py`).

Why both ends can be sure (docs/security.md says of what):

- A recorded frame proves nothing later, because each end's mac is over a nonce that the other end
  has just drawn.
- The server proves itself first. What listens at the address of a server without having the token
  gets a nonce and names, nothing else.
- A server that is not meant says so by another byte in front of what it proves. So its proof
  cannot be passed on as that of the server which was dialled, and without the token nothing is
  learned from it.
- The answer is proven, too: no relay can alter an introduction or the reason of a refusal.
- A server that does not accept the token of a user makes its proof with a key that no caller can
  have: callers without a token do not learn which users there are.
- The prefix that makes a caller begin again is not proven. So an attacker on the way can make it
  speak the version before, and no older one. The introduction, which is proven, says what the
  server's newest version is, and the caller does not go on if both could speak a higher one. The
  rights of a caller do not depend on the version: before version 12 there are no tokens of users,
  and a caller that has one, and a server whose caller names one, refuse such a stream.
- Neither end parses anything but these messages before the other's mac was compared; those that
  come before a mac have at most `MAX_BYTES`.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass, field
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from jflow.base.cluster import Target, Task
from jflow.base.versions import OLDEST_VERSION, VERSION, versions_text
from jflow.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    OpError,
    UnauthenticatedError,
    UnavailableError,
)
from jflow.net.protocol.tokens import Secret, TokenId, Users
from jflow.net.protocol.v1 import handshake_pb2 as pb

MAX_BYTES = 4096
"""The largest size of a Hello, and of a Challenge with its mac."""
NONCE_BYTES = 32
MAC_BYTES = 32
ANY_MACHINE = "*"
"""Matches every machine; for targets that lead through a tunnel to another one."""
N_ANSWERS = 2
"""How many frames a server sends in the handshake."""
INFO_ID = 1
"""The id of the envelope that a server sends when the handshake is done."""

_MAGIC = b"jflow\0"
_PREFIX = struct.Struct("<6sH")
_USERS_VERSION = 12
"""The version in which the tokens of users came."""
_FROM_CALLER, _FROM_SERVER, _FROM_OTHER_SERVER, _OF_REPLY = b"\x01", b"\x02", b"\x03", b"\x04"
_SAME_TOKEN = "both ends need the same ~/.jflow/token, JFLOW_TOKEN_FILE or JFLOW_TOKEN"

M = TypeVar("M", bound=Message)


class OtherVersionError(FailedPreconditionError):
    """A server speaks an earlier version, which this end speaks as well if it is asked to.

    Attributes:
      version: that version.
    """

    def __init__(self, message: str, version: int, **names: Any) -> None:
        super().__init__(message, **names)
        self.version = version


@dataclass(frozen=True)
class Caller:
    """The claims of a caller in its handshakes.

    Attributes:
      secret: its token.
      service: the service that its streams lead to.
      target: the server that it means.
      task, address: the task and the address of the caller, if it is a server.
      version: the version of the protocol that it speaks on the stream.
    """

    secret: Secret = field(repr=False)
    service: str
    target: Target
    task: Task | None = None
    address: str = ""
    version: int = VERSION


class CallerHandshake:
    """The caller's side of one handshake.

    Args:
      caller: the caller, and the server that it means.
      nonce: 32 random bytes, used for nothing else.

    Attributes:
      version: the version of the stream.
      hello: the first frame, once it has begun.
    """

    def __init__(self, caller: Caller, nonce: bytes) -> None:
        target = caller.target
        self._caller = caller
        self._nonce = nonce
        self._key = caller.secret.key(caller.service)
        self._target = target
        self._server = _server_text(target)
        self._is_other = False
        self._challenge = b""
        self.version = caller.version
        self.hello = b""

    def first_frame(self, machine: str) -> bytes:
        """Returns the first frame to send.

        Args:
          machine: the machine that the server must be on; "" if its address names one itself.

        Raises:
          InvalidArgumentError: if the names are too long for a frame.
        """
        caller, target = self._caller, self._target
        message = pb.Hello(
            nonce=self._nonce,
            cluster=target.cluster,
            task=str(target.task or ""),
            incarnation=target.incarnation,
            address=target.own_address,
            caller=str(caller.task or ""),
            caller_address=caller.address,
            machine=ANY_MACHINE if target.at else machine,
            token=str(caller.secret.id or ""),
        )
        self.hello = _frame(message, self.version)
        if len(self.hello) > MAX_BYTES:
            raise InvalidArgumentError(
                f"the names of {self._server} and of its caller need {len(self.hello)} bytes in "
                f"the handshake; at most {MAX_BYTES} are allowed"
            )
        return self.hello

    def prove(self, frame: bytes) -> bytes:
        """Checks the server's challenge; returns the frame that proves the caller.

        Raises:
          UnauthenticatedError: if the server does not prove that it has the token.
          OtherVersionError: if it speaks an earlier version, in which it can be called again.
          FailedPreconditionError: if it speaks a version in which it cannot.
          UnavailableError: if it is not a jflow server.
        """
        version = version_of(frame) if self.hello else None
        if version is None:
            raise self._error(UnavailableError, "does not answer as a jflow server does")
        if version != self.version:
            raise self._other_version(version)
        signed, mac = frame[:-MAC_BYTES], frame[-MAC_BYTES:]
        is_meant = self._is_mac(mac, _FROM_SERVER, signed)
        self._is_other = self._is_mac(mac, _FROM_OTHER_SERVER, signed)
        if not (is_meant or self._is_other):
            raise self._error(UnauthenticatedError, _unknown_token_text(self._caller.secret))
        challenge = _message(pb.Challenge, signed)
        if challenge is None or len(challenge.nonce) != NONCE_BYTES:
            raise self._error(UnavailableError, "sent a malformed challenge")
        self._challenge = signed
        return _mac(self._key, _FROM_CALLER, self.hello, signed)

    def opened(self, frame: bytes) -> bytes:
        """Checks the mac of the server's last frame; returns the reply in it.

        Raises:
          UnauthenticatedError: if the frame is not one of this handshake by an owner of the token.
        """
        signed, mac = frame[:-MAC_BYTES], frame[-MAC_BYTES:]
        is_whole = bool(self._challenge) and version_of(frame, len(frame)) == self.version
        if not (is_whole and self._is_mac(mac, _OF_REPLY, self._challenge, signed)):
            raise self._error(
                UnauthenticatedError,
                "answered the handshake with what it has not proven: something on the way changes "
                "or inserts messages",
            )
        return signed[_PREFIX.size :]

    def check_meant(self) -> None:
        """Checks that the server is the intended one, once its reply was no error.

        Raises:
          UnavailableError: if it has proven that it is not.
        """
        if self._is_other:
            raise self._error(UnavailableError, "is not the one that was meant")

    def check_version(self, newest: int) -> None:
        """Checks that the stream has the highest version that both ends speak.

        Args:
          newest: the newest version of the server, as its proven introduction says.

        Raises:
          UnavailableError: if it could have a higher one.
        """
        if self.version < min(VERSION, newest):
            raise self._error(
                UnavailableError,
                f"speaks version {newest} of jflow's protocol and has answered that it speaks "
                f"version {self.version}: it was upgraded meanwhile, or something on the way "
                "changes messages; try again",
            )

    def _other_version(self, version: int) -> OpError:
        speaks = f"speaks version {version} of jflow's protocol"
        if not OLDEST_VERSION <= version < self.version:
            return self._error(
                FailedPreconditionError,
                f"{speaks} and this end {versions_text()}; install the same version of jflow on "
                'both, or upgrade them in steps of one version (docs/operating.md, "Upgrading a '
                'cluster")',
            )
        if version < _USERS_VERSION and self._caller.secret.id is not None:
            return self._error(
                FailedPreconditionError,
                f"{speaks}, which has no tokens of users, and this end has one; upgrade the "
                f"server to version {VERSION}, or use the token of the cluster",
            )
        task = str(self._target.task or "") or None
        return OtherVersionError(f"{self._server} {speaks}", version, task=task)

    def _is_mac(self, mac: bytes, end: bytes, *frames: bytes) -> bool:
        return hmac.compare_digest(mac, _mac(self._key, end, self.hello, *frames))

    def _error(self, kind: type[OpError], text: str) -> OpError:
        return kind(f"{self._server} {text}", task=str(self._target.task or "") or None)


class ServerHandshake:
    """The server's side of one handshake.

    Args:
      secret: the token of the server.
      users: those whose tokens are accepted beside it.
      service: the service of the stream.
      hello_frame: the first frame that came.

    Attributes:
      version: the version of the stream, which the caller has chosen.
      hello: what the caller says in it. Nothing of it is proven before `check`.
      user_token: the token of a user, with which the caller has to prove itself; None if it has to
        have the server's own.

    Raises:
      UnauthenticatedError: if the frame is not one of the handshake, or of no version that is
        spoken.
    """

    def __init__(self, secret: Secret, users: Users, service: str, hello_frame: bytes) -> None:
        version = version_of(hello_frame)
        hello = _message(pb.Hello, hello_frame) if _is_spoken(version) else None
        if version is None or hello is None or len(hello.nonce) != NONCE_BYTES:
            raise UnauthenticatedError(
                f"the stream did not begin with the handshake of {versions_text()} of jflow's "
                "protocol"
            )
        if version < _USERS_VERSION and hello.token:
            raise UnauthenticatedError(
                f"the caller names a token and speaks version {version}, in which there is none"
            )
        self.version = version
        self.user_token = None if hello.token == str(secret.id or "") else _token_id(hello.token)
        self._key = _key_for(self.user_token, secret, users).key(service)
        self._hello_frame = hello_frame
        self.hello = hello
        self._challenge = b""

    def challenge(self, nonce: bytes, *, is_other: bool) -> bytes:
        """Returns the frame that replies to the hello.

        Args:
          nonce: 32 random bytes, used for nothing else.
          is_other: whether the caller means another server.
        """
        end = _FROM_OTHER_SERVER if is_other else _FROM_SERVER
        signed = self._challenge = _frame(pb.Challenge(nonce=nonce), self.version)
        return signed + _mac(self._key, end, self._hello_frame, signed)

    def check(self, frame: bytes) -> None:
        """Checks the caller's proof.

        Raises:
          UnauthenticatedError: if it is not one of this handshake by an owner of the token.
        """
        expected = _mac(self._key, _FROM_CALLER, self._hello_frame, self._challenge)
        if not self._challenge or not hmac.compare_digest(frame, expected):
            raise UnauthenticatedError(
                f"the caller did not prove that it has the token; {_SAME_TOKEN}"
            )

    def seal(self, answer: bytes) -> bytes:
        """Returns the frame with the reply to a caller that has proven itself."""
        signed = _prefix(self.version) + answer
        return signed + _mac(self._key, _OF_REPLY, self._hello_frame, self._challenge, signed)


def version_of(frame: bytes, max_bytes: int = MAX_BYTES) -> int | None:
    """Returns the protocol version of a handshake frame; None if it is something else."""
    if not _PREFIX.size <= len(frame) <= max_bytes:
        return None
    magic, version = _PREFIX.unpack_from(frame)
    return int(version) if magic == _MAGIC else None


def refusal_of_version(frame: bytes) -> bytes | None:
    """Returns the frame that refuses a hello of another version; None for any other frame.

    It names this version, in which a caller of the next one calls again.
    """
    version = version_of(frame)
    return None if version is None or _is_spoken(version) else _prefix(VERSION)


def _is_spoken(version: int | None) -> bool:
    return version is not None and OLDEST_VERSION <= version <= VERSION


def _prefix(version: int) -> bytes:
    return _PREFIX.pack(_MAGIC, version)


def _token_id(text: str) -> TokenId:
    token_id = TokenId.parse(text)
    if token_id is None:
        raise UnauthenticatedError(
            "the caller names a token that is none of a user, or has that of the cluster, and this "
            "server that of a user"
        )
    return token_id


def _key_for(token_id: TokenId | None, secret: Secret, users: Users) -> Secret:
    """Returns what a caller has to have: the server's token, or one of a user."""
    if token_id is None:
        return secret
    # Both are computed in any case, so that the time to answer hardly tells which users there are.
    accepted, refused = secret.token_of(token_id), secret.no_token_of(token_id)
    return Secret(accepted if users.accept(token_id) else refused)


def _unknown_token_text(secret: Secret) -> str:
    if secret.id is None:
        return f"does not have the token of its caller; {_SAME_TOKEN}"
    return (
        f"does not accept the token {secret.id.serial} of the user {secret.id.user!r}, which may "
        "have been revoked or have expired, or is one of another cluster: ask for another one "
        "(`jflow token rotate`, where the servers run), and set JFLOW_TOKEN or JFLOW_TOKEN_FILE"
    )


def _mac(key: bytes, end: bytes, *frames: bytes) -> bytes:
    """Returns the mac, u8[32], of one end over frames, each prefixed with its length."""
    parts = [part for frame in frames for part in (len(frame).to_bytes(4, "little"), frame)]
    return hmac.digest(key, b"".join((end, *parts)), "sha256")


def _frame(message: Message, version: int) -> bytes:
    return _prefix(version) + message.SerializeToString()


def _message(kind: type[M], frame: bytes) -> M | None:
    """Parses the message behind the prefix of a frame; None if it is malformed."""
    message = kind()
    try:
        message.ParseFromString(frame[_PREFIX.size :])
    except DecodeError:
        return None
    return message


def _server_text(target: Target) -> str:
    return f"{target.task or 'the server'} at {target.address}"
