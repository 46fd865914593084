"""Both ends of a gRPC stream, on an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Protocol

import grpc

from jflow.base.cluster import Task, certified_name
from jflow.base.text import printable
from jflow.errors import UnauthenticatedError, UnavailableError
from jflow.net.protocol.framing import Framing
from jflow.net.protocol.offers import DataOffer
from jflow.net.protocol.transport import BrokenStreamError, EndedStreamError, FrameStream
from jflow.net.wire.attaching import WITHOUT, Dialler, run_on_loop
from jflow.net.wire.data_listener import DataListener, OpenOffer
from jflow.net.wire.grpc_channels import aio_channel, method_of
from jflow.net.wire.machine import machine_at
from jflow.net.wire.names import looked_up, unresolved
from jflow.net.wire.socket_stream import PairedStream, SocketStream
from jflow.net.wire.tls import Tls
from jflow.net.wire.tls_refusal import look_for_refusal


class _Call(Protocol):
    """The part of gRPC's interface that both ends of a stream have."""

    async def read(self) -> Any: ...

    async def write(self, message: Any) -> None: ...


class GrpcStream:
    """One end of a gRPC stream; see `protocol.transport.FrameStream`.

    Args:
      call: gRPC's object for this end.
      channel: closed with the stream.
      caller_names, machine: see `FrameStream`.
      dialler: how a caller's end attaches data streams.
      listener: accepts the data streams that a server's end offers.
    """

    kind = "grpc"
    eof: object = grpc.aio.EOF
    errors: tuple[type[Exception], ...] = (grpc.RpcError, asyncio.InvalidStateError)

    def __init__(
        self,
        call: _Call,
        channel: grpc.aio.Channel | None = None,
        caller_names: frozenset[str] | None = None,
        dialler: Dialler = WITHOUT,
        listener: DataListener | None = None,
        machine: str = "",
    ) -> None:
        self.caller_names = caller_names
        self.machine = machine
        self._dialler = dialler
        self._listener = listener
        self._upgrade: GrpcUpgrade | None = None
        self.read: Callable[[], Awaitable[Any]] = call.read
        self.write: Callable[[bytes], Awaitable[None]] = call.write
        self._channel = channel

    def broken(self, error: Exception) -> BrokenStreamError:
        if isinstance(error, grpc.RpcError):
            return broken(error)
        return EndedStreamError(str(error))

    def unread(self, reading: asyncio.Future[Any]) -> None:
        """Pushes back a pending read, whose result the next `read` returns."""
        read = self.read

        def again() -> Awaitable[Any]:
            self.read = read
            return reading

        self.read = again

    def offer(self) -> GrpcUpgrade | None:
        offer = None if self._listener is None else self._listener.offer(self.caller_names)
        if offer is not None and self._listener is not None:
            self._upgrade = GrpcUpgrade(self, self._listener, offer)
        return self._upgrade

    async def attach(self, offer: DataOffer | None) -> PairedStream | None:
        connection = await run_on_loop(self._dialler.attach(offer))
        return None if connection is None else PairedStream(SocketStream(connection), self)

    def end_data(self) -> None:
        """Ends the data stream that a server's end has offered, if any."""
        if self._upgrade is not None:
            self._upgrade.end()

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()


class GrpcUpgrade:
    """An offer of a data stream, at a server's end; see `protocol.transport.Upgrade`."""

    def __init__(self, stream: GrpcStream, listener: DataListener, offer: OpenOffer) -> None:
        self.offer = offer.offer
        self._stream = stream
        self._listener = listener
        self._offer = offer
        self._paired: PairedStream | None = None

    async def chosen(self) -> tuple[FrameStream, Framing | None]:
        reading = asyncio.ensure_future(self._stream.read())
        attached = self._offer.attached
        try:
            await asyncio.wait([reading, attached], return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            reading.cancel()
            raise
        # A caller that has attached a data stream was told that, and uses no other one.
        if attached.done():
            self._paired = PairedStream(attached.result(), self._stream, reading)
            return self._paired, self._paired.framing
        self._listener.cancel(self._offer)
        self._stream.unread(reading)
        return self._stream, None

    def end(self) -> None:
        """Ends the data stream, or cancels its offer."""
        if self._paired is not None:
            self._paired.end()
        else:
            self._listener.cancel(self._offer)


async def connect(
    service: str,
    task: Task,
    address: str,
    refused_s: float | None = None,
    tls: Tls | None = None,
    dialler: Dialler = WITHOUT,
) -> GrpcStream:
    """Opens a stream to a service of a task; see `protocol.transport.Transport.connect`."""
    addresses = await _resolve(task, address)
    name = certified_name(task)
    channel = aio_channel(address, tls, name)
    try:
        await _wait_until_ready(channel, task, address, refused_s, tls)
        method: Any = channel.stream_stream(method_of(service))
        dialler = replace(dialler, addresses=addresses, name=name)
        return GrpcStream(method(), channel, dialler=dialler, machine=machine_at(addresses))
    except BaseException:
        await channel.close()
        raise


async def _wait_until_ready(
    channel: grpc.aio.Channel,
    task: Task,
    address: str,
    refused_s: float | None,
    tls: Tls | None,
) -> None:
    """Waits until a channel is connected; gives up after `refused_s` of refused attempts."""
    states = grpc.ChannelConnectivity
    clock = asyncio.get_running_loop().time
    refused_until = None
    over = threading.Event()
    refusal: asyncio.Future[str | None] | None = None
    try:
        while (state := channel.get_state(try_to_connect=True)) is not states.READY:
            if refusal is None and state is states.TRANSIENT_FAILURE:
                found = look_for_refusal(tls, address, certified_name(task), over)
                refusal = asyncio.wrap_future(found)
            # gRPC goes on trying in this state, and leaves it only when it has connected.
            if refused_s is None or state is not states.TRANSIENT_FAILURE:
                refused_until = None
            elif refused_until is None:
                refused_until = clock() + refused_s
            elif clock() >= refused_until:
                raise UnavailableError(
                    f"{task} was lost: nothing answers at {address} any more", task=str(task)
                )
            left_s = None if refused_until is None else refused_until - clock()
            await _wait_for_change(channel, state, refusal, left_s)
            if refusal is not None and refusal.done():
                found_wrong = f"{task} at {address} {refusal.result()}"
                raise UnauthenticatedError(found_wrong, task=str(task))
    finally:
        over.set()


async def _wait_for_change(
    channel: grpc.aio.Channel,
    state: grpc.ChannelConnectivity,
    refusal: asyncio.Future[str | None] | None,
    seconds: float | None,
) -> None:
    """Waits until a channel changes its state, or the reason is found why it cannot connect."""
    change = asyncio.ensure_future(channel.wait_for_state_change(state))
    try:
        awaited: set[asyncio.Future[Any]] = {change} if refusal is None else {change, refusal}
        await asyncio.wait(awaited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        change.cancel()


def broken(error: grpc.RpcError) -> BrokenStreamError:
    """Converts the error of a stream that gRPC ended to a BrokenStreamError."""
    code, details = error.code(), printable(error.details() or "")
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return BrokenStreamError(details, is_refused=True)
    return BrokenStreamError(f"{code.name.lower()}: {details}")


async def _resolve(task: Task, address: str) -> tuple[str, ...]:
    """Resolves the host of an address to numeric addresses."""
    try:
        return await asyncio.wrap_future(looked_up(address))
    except (OSError, UnicodeError) as error:
        raise UnavailableError(
            f"{task} cannot be reached at {address!r}, its address in the cluster: "
            f"{unresolved(address, error)}; correct the address, or make the name known to the "
            "machine that calls it",
            task=str(task),
        ) from None
