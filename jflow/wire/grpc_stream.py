"""Both ends of a gRPC stream, on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import grpc

from jflow.cluster import Task
from jflow.errors import UnavailableError
from jflow.protocol.transport import BrokenStreamError, EndedStreamError
from jflow.wire.grpc_channels import aio_channel, method_of
from jflow.wire.names import looked_up, unresolved


class _Call(Protocol):
    """The interface that both ends of a gRPC stream have."""

    async def read(self) -> Any: ...

    async def write(self, message: Any) -> None: ...


class GrpcStream:
    """One end of a stream; see `protocol.transport.FrameStream`.

    Args:
      call: gRPC's object for this end.
      channel: closed with the stream.
    """

    eof: object = grpc.aio.EOF
    errors: tuple[type[Exception], ...] = (grpc.RpcError, asyncio.InvalidStateError)

    def __init__(self, call: _Call, channel: grpc.aio.Channel | None = None) -> None:
        self.read: Callable[[], Awaitable[Any]] = call.read
        self.write: Callable[[bytes], Awaitable[None]] = call.write
        self._channel = channel

    def broken(self, error: Exception) -> BrokenStreamError:
        if isinstance(error, grpc.RpcError):
            return broken(error)
        return EndedStreamError(str(error))

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()


async def connect(service: str, task: Task, address: str) -> GrpcStream:
    """Opens a stream to a service of a task; waits until the task is up."""
    await _resolve(task, address)
    channel = aio_channel(address)
    try:
        await channel.channel_ready()
        method: Any = channel.stream_stream(method_of(service))
        return GrpcStream(method(), channel)
    except BaseException:
        await channel.close()
        raise


def broken(error: grpc.RpcError) -> BrokenStreamError:
    """The error for a stream that gRPC ended."""
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return BrokenStreamError(details, is_refused=True)
    return BrokenStreamError(f"{code.name.lower()}: {details}")


async def _resolve(task: Task, address: str) -> None:
    """Checks that the host of an address resolves."""
    try:
        await asyncio.wrap_future(looked_up(address))
    except (OSError, UnicodeError) as error:
        raise UnavailableError(
            f"{task} cannot be reached at {address!r}, its address in the cluster: "
            f"{unresolved(address, error)}; correct the address, or make the name known to the "
            "machine that calls it",
            task=str(task),
        ) from None
