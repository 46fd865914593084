"""The handshake that begins every stream: the server that is meant, proof of the token; no I/O.

    caller → server   prefix | Hello             a nonce, and the server that is meant
    server → caller   prefix | Challenge | mac   a nonce, whether it is the one that is meant
    caller → server   mac

The prefix is the same in all versions, so that unlike ones refuse each other in words. A mac is
HMAC-SHA256 over all bytes of the first frame and those before the mac of the second one, hence over
both nonces, the version, and the cluster, task, incarnation and address that were dialled. Its key
is derived from the token and the service, so that proofs for one service are worth nothing for
another one; a byte in front says which end it is of. The token itself is never sent.

Why both ends can be sure (docs/security.md says of what):

- A recorded frame proves nothing later, because each end's mac is over a nonce that the other end
  has just drawn.
- The server proves itself first. What listens at the address of a server without having the token
  gets a nonce and names, nothing else.
- A server that is not meant says so in what it proves (`is_other`), so its proof cannot be passed
  on as that of the server which was dialled.
- Neither end parses anything but these messages, of at most `MAX_BYTES`, before the other's mac
  was compared.
"""

from __future__ import annotations

import hmac
import struct
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from jflow.cluster import Target, Task
from jflow.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    OpError,
    RestartedError,
    UnauthenticatedError,
    UnavailableError,
)
from jflow.protocol.v1 import handshake_pb2 as pb

VERSION = 1
"""Of everything that streams carry. It grows with each change that the other end must know of."""
MAX_BYTES = 4096
NONCE_BYTES = 32
MAC_BYTES = 32
INFO_ID = 1
"""The id of the envelope that a server sends when the handshake is done."""

_MAGIC = b"jflow\0"
_PREFIX = struct.Struct("<6sH")
_OF_CALLER, _OF_SERVER = b"\x01", b"\x02"
_SAME_TOKEN = "both ends need the same ~/.jflow/token, JFLOW_TOKEN_FILE or JFLOW_TOKEN"

M = TypeVar("M", bound=Message)


class Secret:
    """The token of a cluster, as one key for each service.

    Args:
      token: what both ends have.
    """

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def key(self, service: str) -> bytes:
        """The key, u8[32], of all proofs on streams to a service."""
        return hmac.digest(self._token, b"jflow key for " + service.encode(), "sha256")

    def __repr__(self) -> str:
        return "<jflow.protocol.Secret>"


class CallerHandshake:
    """The caller's side of one handshake.

    Args:
      secret: the token.
      service: the service that the stream leads to.
      target: the server that is meant.
      nonce: 32 random bytes, used for nothing else.
      task, address: those of the caller, if it is a server.

    Attributes:
      hello: the first frame to send.

    Raises:
      InvalidArgumentError: if the names are too long for a frame.
    """

    def __init__(
        self,
        secret: Secret,
        service: str,
        target: Target,
        nonce: bytes,
        task: Task | None = None,
        address: str = "",
    ) -> None:
        self._key = secret.key(service)
        self._target = target
        self._nonce = nonce
        self._server = _named(target)
        self._is_other = False
        message = pb.Hello(
            nonce=nonce,
            cluster=target.cluster,
            task=str(target.task or ""),
            incarnation=target.incarnation,
            address=target.own_address,
            caller=str(task or ""),
            caller_address=address,
        )
        self.hello = _frame(message)
        if len(self.hello) > MAX_BYTES:
            raise InvalidArgumentError(
                f"the names of {self._server} and of its caller need {len(self.hello)} bytes in "
                f"the handshake; at most {MAX_BYTES} are allowed"
            )

    def prove(self, frame: bytes) -> bytes:
        """Checks the answer to `hello`; returns the frame that proves the caller.

        Raises:
          UnauthenticatedError: if the server does not prove that it has the token.
          FailedPreconditionError: if it has another version of the protocol.
          UnavailableError: if it is not a jflow server.
        """
        found = version_of(frame)
        if found is None:
            raise self._error(UnavailableError, "does not answer as a jflow server does")
        if found != VERSION:
            raise self._error(
                FailedPreconditionError,
                f"speaks version {found} of jflow's protocol and this end version {VERSION}; "
                "install the same version of jflow on both",
            )
        signed, mac = frame[:-MAC_BYTES], frame[-MAC_BYTES:]
        if not hmac.compare_digest(mac, _mac(self._key, _OF_SERVER, self.hello, signed)):
            raise self._error(
                UnauthenticatedError, f"does not have the token of its caller; {_SAME_TOKEN}"
            )
        challenge = _message(pb.Challenge, signed)
        if challenge is None or len(challenge.nonce) != NONCE_BYTES:
            raise self._error(UnavailableError, "sent a malformed challenge")
        self._is_other = challenge.is_other
        return _mac(self._key, _OF_CALLER, self.hello, signed)

    def check_meant(self) -> None:
        """Checks, after the server's answer to the proof, that it has said it is the one meant.

        Raises:
          UnavailableError: if it has not, and its answer was no error nevertheless.
        """
        if self._is_other:
            raise self._error(UnavailableError, "is not the one that was meant")

    def refusal(self, error: OpError) -> OpError:
        """The error to raise for the one with which the server refuses the caller.

        Nothing proves what comes after the handshake. A process at a stale address can pass on that
        a live server is not the one that is meant, and then say what it likes. So such an error is
        only that the server which is meant is not there, or no longer, whatever its class.
        """
        if not self._is_other:
            return error
        is_restarted = isinstance(error, RestartedError) and self._target.incarnation
        kind = RestartedError if is_restarted else UnavailableError
        return kind(error.message, task=str(self._target.task or "") or None)

    def _error(self, kind: type[OpError], text: str) -> OpError:
        return kind(f"{self._server} {text}", task=str(self._target.task or "") or None)


class ServerHandshake:
    """The server's side of one handshake.

    Args:
      secret: the token.
      service: the service of the stream.
      hello_frame: the first frame that came.

    Attributes:
      hello: what the caller says in it. Nothing of it is proven before `check`.

    Raises:
      UnauthenticatedError: if the frame is not one of this version of the handshake.
    """

    def __init__(self, secret: Secret, service: str, hello_frame: bytes) -> None:
        found = version_of(hello_frame)
        hello = _message(pb.Hello, hello_frame) if found == VERSION else None
        if hello is None or len(hello.nonce) != NONCE_BYTES:
            raise UnauthenticatedError(
                f"the stream did not begin with the handshake of version {VERSION} of jflow's "
                "protocol"
            )
        self._key = secret.key(service)
        self._hello_frame = hello_frame
        self.hello = hello
        self._expected = b""

    def challenge(self, nonce: bytes, *, is_other: bool) -> bytes:
        """The frame that answers the hello.

        Args:
          nonce: 32 random bytes, used for nothing else.
          is_other: whether the caller means another server.
        """
        signed = _frame(pb.Challenge(nonce=nonce, is_other=is_other))
        self._expected = _mac(self._key, _OF_CALLER, self._hello_frame, signed)
        return signed + _mac(self._key, _OF_SERVER, self._hello_frame, signed)

    def check(self, frame: bytes) -> None:
        """Checks the caller's proof.

        Raises:
          UnauthenticatedError: if it is not one of this handshake by an owner of the token.
        """
        if not self._expected or not hmac.compare_digest(frame, self._expected):
            raise UnauthenticatedError(
                f"the caller did not prove that it has the token; {_SAME_TOKEN}"
            )


def version_of(frame: bytes) -> int | None:
    """The version of the protocol of a frame of the handshake; None if it is something else."""
    if not _PREFIX.size <= len(frame) <= MAX_BYTES:
        return None
    magic, version = _PREFIX.unpack_from(frame)
    return int(version) if magic == _MAGIC else None


def refusal_of_version(frame: bytes) -> bytes | None:
    """What to answer a hello of another version, which cannot go on; None if it is of this one."""
    return None if version_of(frame) in (None, VERSION) else _PREFIX.pack(_MAGIC, VERSION)


def _mac(key: bytes, end: bytes, hello: bytes, challenge: bytes) -> bytes:
    return hmac.digest(key, end + len(hello).to_bytes(4, "little") + hello + challenge, "sha256")


def _frame(message: Message) -> bytes:
    return _PREFIX.pack(_MAGIC, VERSION) + message.SerializeToString()


def _message(kind: type[M], frame: bytes) -> M | None:
    """The message behind a prefix; None if it is malformed."""
    message = kind()
    try:
        message.ParseFromString(frame[_PREFIX.size :])
    except DecodeError:
        return None
    return message


def _named(target: Target) -> str:
    return f"{target.task or 'the server'} at {target.address}"
