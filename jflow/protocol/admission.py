"""Both ends of the handshake on an event loop: streams of frames become streams of messages."""

from __future__ import annotations

import secrets
from typing import Any

from jflow.errors import InternalError, OpError
from jflow.protocol.codec import error_of, error_to_status
from jflow.protocol.handshake import (
    INFO_ID,
    NONCE_BYTES,
    CallerHandshake,
    Secret,
    ServerHandshake,
    refusal_of_version,
)
from jflow.protocol.identity import ServerIdentity, certificate_refusal
from jflow.protocol.records import ServerInfo, info_from_proto, info_to_proto
from jflow.protocol.rpcs import WORKER
from jflow.protocol.stream import MessageStream
from jflow.protocol.transport import EndedStreamError, FrameStream
from jflow.protocol.v1 import service_pb2 as pb


def new_nonce() -> bytes:
    """32 random bytes for one handshake."""
    return secrets.token_bytes(NONCE_BYTES)


async def enter(
    stream: FrameStream, handshake: CallerHandshake
) -> tuple[MessageStream, ServerInfo]:
    """Performs the caller's side of a handshake.

    Raises:
      OpError: if the server refuses the caller, or does not prove itself.
      BrokenStreamError: if the stream breaks or ends.
    """
    await _write(stream, handshake.hello)
    await _write(stream, handshake.prove(await _read(stream)))
    messages = MessageStream(stream)
    received = await messages.receive()
    if received is None:
        raise EndedStreamError("it closed the connection")
    info = admitted(received[0], handshake)
    data = await stream.attach(info.data_offer)
    return (messages if data is None else MessageStream(data, data.framing)), info


def admitted(envelope: pb.Envelope, handshake: CallerHandshake) -> ServerInfo:
    """What a server says about itself once the handshake is done.

    Raises:
      OpError: if it refuses the caller.
    """
    if envelope.status.code:
        raise handshake.refusal(error_of(envelope.status))
    handshake.check_meant()
    if envelope.WhichOneof("body") != "server_info":
        raise InternalError("the server did not introduce itself")
    return info_from_proto(envelope.server_info)


async def admit(
    stream: FrameStream, secret: Secret, service: str, identity: ServerIdentity
) -> MessageStream | None:
    """Performs the server's side of a handshake, up to the proof of the caller.

    Returns:
      The stream of messages; None if the caller is gone, or was told that it means another server.

    Raises:
      UnauthenticatedError: if the caller does not prove that it has the token.
    """
    first = await _read(stream)
    other_version = refusal_of_version(first)
    if other_version is not None:
        await _write(stream, other_version)
        return None
    handshake = ServerHandshake(secret, service, first)
    refusal = identity.refusal(handshake.hello)
    await _write(stream, handshake.challenge(new_nonce(), is_other=refusal is not None))
    handshake.check(await _read(stream))
    messages = MessageStream(stream)
    if refusal is None:
        is_of_servers = service == WORKER.name
        refusal = certificate_refusal(
            stream.caller_names, handshake.hello, is_of_servers=is_of_servers
        )
    if refusal is None:
        return messages
    await messages.send(_refused(refusal, identity))
    return None


async def introduce(messages: MessageStream, info: ServerInfo) -> None:
    """Tells a caller that was admitted about the server."""
    await messages.send(pb.Envelope(id=INFO_ID, server_info=info_to_proto(info)))


def _refused(refusal: OpError, identity: ServerIdentity) -> pb.Envelope:
    return pb.Envelope(id=INFO_ID, status=error_to_status(refusal, str(identity.task)))


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
