"""Both sides of the handshake on an event loop, and the limit on unauthenticated streams."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

from google.protobuf.message import DecodeError

from jflow.errors import InternalError, ResourceExhaustedError, UnauthenticatedError
from jflow.net.protocol import settings
from jflow.net.protocol.codec import error_of, error_to_status
from jflow.net.protocol.handshake import (
    INFO_ID,
    NONCE_BYTES,
    CallerHandshake,
    ServerHandshake,
    refusal_of_version,
)
from jflow.net.protocol.identity import ServerIdentity, certificate_refusal
from jflow.net.protocol.records import ServerInfo, info_from_proto, info_to_proto
from jflow.net.protocol.rpcs import WORKER
from jflow.net.protocol.stream import MessageStream
from jflow.net.protocol.tokens import Secret, Users
from jflow.net.protocol.transport import EndedStreamError, FrameStream
from jflow.net.protocol.v1 import service_pb2 as pb


def new_nonce() -> bytes:
    """Returns 32 random bytes, the nonce of one handshake."""
    return secrets.token_bytes(NONCE_BYTES)


async def enter(
    stream: FrameStream, handshake: CallerHandshake
) -> tuple[MessageStream, ServerInfo]:
    """Performs the caller's side of a handshake.

    Raises:
      OpError: if the server refuses the caller, or does not prove itself.
      BrokenStreamError: if the stream breaks or ends.
    """
    await _write(stream, handshake.first_frame(stream.machine))
    await _write(stream, handshake.prove(await _read(stream)))
    info = admitted_info(answer_in(await _read(stream), handshake), handshake)
    data = await stream.attach(info.data_offer)
    messages = MessageStream(stream) if data is None else MessageStream(data, data.framing)
    return messages, info


def answer_in(frame: bytes, handshake: CallerHandshake) -> pb.Envelope:
    """Returns the reply in a server's last handshake frame, after checking its mac.

    Raises:
      UnauthenticatedError: if the server has not proven it.
    """
    try:
        return pb.Envelope.FromString(handshake.opened(frame))
    except DecodeError as error:
        raise InternalError(f"the server's introduction is malformed: {error}") from None


def admitted_info(answer: pb.Envelope, handshake: CallerHandshake) -> ServerInfo:
    """Returns the server info in the last reply of a handshake.

    Raises:
      OpError: if it refuses the caller.
    """
    if answer.status.code:
        raise error_of(answer.status)
    handshake.check_meant()
    if answer.WhichOneof("body") != "server_info":
        raise InternalError("the server did not introduce itself")
    handshake.check_version(answer.server_info.newest_version)
    return info_from_proto(answer.server_info)


async def admit(
    stream: FrameStream, secret: Secret, users: Users, service: str, identity: ServerIdentity
) -> ServerHandshake | None:
    """Performs the server's side of a handshake, up to the proof of the caller.

    Returns:
      The handshake; None if the caller is gone, or was sent the reason of its refusal.

    Raises:
      UnauthenticatedError: if the caller does not prove that it has the token.
    """
    hello_frame = await _read(stream)
    other_version = refusal_of_version(hello_frame)
    if other_version is not None:
        await _write(stream, other_version)
        return None
    handshake = ServerHandshake(secret, users, service, hello_frame)
    refusal = identity.refusal(handshake.hello)
    await _write(stream, handshake.challenge(new_nonce(), is_other=refusal is not None))
    handshake.check(await _read(stream))
    is_of_servers = service == WORKER.name
    if refusal is None and is_of_servers and handshake.user_token is not None:
        refusal = UnauthenticatedError(
            f"calls between servers need the token of the cluster, and not that of the user "
            f"{handshake.user_token.user!r}; start every task with the same token"
        )
    if refusal is None:
        refusal = certificate_refusal(
            stream.caller_names, handshake.hello, is_of_servers=is_of_servers
        )
    if refusal is None:
        return handshake
    await _send_reply(stream, handshake, pb.Envelope(status=error_to_status(refusal, "")))
    return None


async def introduce(stream: FrameStream, handshake: ServerHandshake, info: ServerInfo) -> None:
    """Sends the server info to a caller that was admitted."""
    await _send_reply(stream, handshake, pb.Envelope(server_info=info_to_proto(info)))


async def _send_reply(stream: FrameStream, handshake: ServerHandshake, answer: pb.Envelope) -> None:
    answer.id = INFO_ID
    await _write(stream, handshake.seal(answer.SerializeToString()))


async def _read(stream: FrameStream) -> bytes:
    try:
        frame: Any = await stream.read()
    except stream.errors as error:
        raise stream.broken(error) from error
    if frame is stream.eof:
        raise EndedStreamError("it closed the connection")
    return bytes(frame)


async def _write(stream: FrameStream, frame: bytes) -> None:
    try:
        await stream.write(frame)
    except stream.errors as error:
        raise stream.broken(error) from error


class UnauthenticatedStreams:
    """Limits the streams whose callers have not authenticated yet. On the event loop only.

    At most `MAX_UNAUTHENTICATED` of them are read, because each can make the server keep a frame;
    at most `MAX_WAITING` others wait, unread, in the order in which they came. Each has `HELLO_S`.
    For each that waits, the oldest of those that are read has `READ_S` only, so that silent ones
    do not keep out those that speak.
    """

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(settings.MAX_UNAUTHENTICATED)
        self._n_waiting = 0
        self._ends: dict[asyncio.Timeout, float] = {}

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Context manager that waits until a stream may be read, then limits the handshake's time.

        Raises:
          ResourceExhaustedError: if too many others wait, or for too long.
          UnauthenticatedError: if the handshake takes too long.
        """
        clock = asyncio.get_running_loop().time
        is_read = False
        try:
            async with asyncio.timeout(settings.HELLO_S) as limit:
                await self._wait()
                is_read = True
                self._ends[limit] = clock() + settings.READ_S
                self._shorten()
                try:
                    yield
                finally:
                    del self._ends[limit]
                    self._free.release()
        except TimeoutError:
            raise _timeout_error() if is_read else _crowding_error() from None

    async def _wait(self) -> None:
        if self._n_waiting >= settings.MAX_WAITING:
            raise _crowding_error()
        self._n_waiting += 1
        self._shorten()
        try:
            await self._free.acquire()
        finally:
            self._n_waiting -= 1

    def _shorten(self) -> None:
        """Shortens the deadlines of the oldest handshakes, one for each stream that waits."""
        if self._n_waiting and self._free.locked():
            for limit, end in islice(self._ends.items(), self._n_waiting):
                if not limit.expired() and end < (limit.when() or end):
                    limit.reschedule(end)


def _timeout_error() -> UnauthenticatedError:
    return UnauthenticatedError(
        f"the handshake was not complete within {settings.HELLO_S:g} s, "
        f"or {settings.READ_S:g} s while others waited"
    )


def _crowding_error() -> ResourceExhaustedError:
    return ResourceExhaustedError(
        f"more than {settings.MAX_UNAUTHENTICATED} other streams are in the handshake; "
        "try again later"
    )
