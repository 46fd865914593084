"""The gRPC transport, and a client's end of a gRPC stream, on threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import grpc

from jflow.base.cluster import Target, Task, certified_name, split_address
from jflow.base.deadline import Deadline
from jflow.net.protocol.frame import Message
from jflow.net.protocol.interrupts import deferred_interrupts
from jflow.net.protocol.offers import DataOffer
from jflow.net.protocol.transport import BrokenStreamError, Services
from jflow.net.wire.attaching import WITHOUT, Dialler, run_in_thread
from jflow.net.wire.data_streams import DataStreams
from jflow.net.wire.grpc_channels import client_channel, method_of
from jflow.net.wire.grpc_server import GrpcServer
from jflow.net.wire.grpc_stream import GrpcStream, broken, connect
from jflow.net.wire.machine import machine_at
from jflow.net.wire.names import resolve
from jflow.net.wire.socket_client import SocketClient
from jflow.net.wire.tls import Tls
from jflow.net.wire.tls_refusal import look_for_refusal

_PATIENCE_S = 0.2
"""How long gRPC may take to connect before the reason is looked for, in seconds."""


class GrpcClientStream:
    """A client's stream to a service; see `protocol.transport.Transport.open`.

    Args:
      dialler: how the session attaches a data stream.
      addresses: the numeric ones of the server's host.
    """

    def __init__(
        self,
        service: str,
        target: Target,
        outgoing: Iterator[bytes],
        received: Callable[[bytes], bool],
        ended: Callable[[BrokenStreamError | None], object],
        tls: Tls | None = None,
        dialler: Dialler = WITHOUT,
        addresses: Sequence[str] = (),
    ) -> None:
        self.machine = machine_at(addresses)
        self._address, name = target.address, _certified_name(target)
        self._dialler = replace(dialler, addresses=addresses, name=name, is_direct=not target.at)
        self._on_end = ended
        self._refusal: str | None = None
        self._is_decided = threading.Event()
        self._channel = client_channel(self._address, tls, name)
        # gRPC waits for ever to close a channel with a call that Ctrl-C has kept from having its
        # thread, so until all of them run an interrupt waits.
        try:
            with deferred_interrupts():
                self._begin(service, tls, outgoing, received)
        except BaseException:  # for example, no thread can be started
            self.close()
            raise

    def _begin(
        self,
        service: str,
        tls: Tls | None,
        outgoing: Iterator[bytes],
        received: Callable[[bytes], bool],
    ) -> None:
        # Frames are taken in gRPC's deserializer, on a thread of gRPC. So callers are woken one
        # thread switch earlier than by the thread that iterates over the stream.
        method: Any = self._channel.stream_stream(
            method_of(service), response_deserializer=received
        )
        self._stream = method(outgoing, wait_for_ready=True)
        refusal = look_for_refusal(
            tls, self._address, self._dialler.name, self._is_decided, _PATIENCE_S
        )
        refusal.add_done_callback(self._give_up)
        threading.Thread(target=self._read, name=f"jflow {self._address}", daemon=True).start()

    def attach(
        self,
        offer: DataOffer | None,
        limit: Deadline,
        received: Callable[[Message], object],
        ended: Callable[[Exception | None], object],
    ) -> SocketClient | None:
        connection = run_in_thread(self._dialler.attach(offer), limit)
        return None if connection is None else SocketClient(connection, received, ended)

    def close(self) -> None:
        self._is_decided.set()
        self._channel.close()

    def _read(self) -> None:
        """Iterates over the stream until it ends; its deserializer receives the frames."""
        cause: BrokenStreamError | None = None
        try:
            is_wanted = next(self._stream, False)
            self._is_decided.set()
            while is_wanted:
                is_wanted = next(self._stream, False)
        except grpc.RpcError as error:
            refusal = self._refusal
            cause = (
                broken(error) if refusal is None else BrokenStreamError(refusal, is_untrusted=True)
            )
        finally:
            self._is_decided.set()
            self._on_end(cause)

    def _give_up(self, found: Future[str | None]) -> None:
        """Ends the stream if the ends disagree on encryption; gRPC would retry forever."""
        refusal = found.result()
        if refusal is not None:
            self._refusal = refusal
            self._stream.cancel()


def _certified_name(target: Target) -> str:
    """Returns the name that a server's certificate must have: its task, or else its host."""
    if target.task is not None:
        return certified_name(target.task)
    return split_address(target.own_address)[0]


class GrpcTransport:
    """Carries frames over gRPC; see `protocol.transport.Transport`.

    Args:
      tls: the certificates of this end; without them, nothing is encrypted.
      data_streams: whether sessions use data streams beside their gRPC streams.
    """

    def __init__(
        self, tls: Tls | None = None, data_streams: DataStreams = DataStreams.NEVER
    ) -> None:
        self._tls = tls
        self._data_streams = data_streams
        # Made here, because it reads the files of the certificates again.
        context = None if tls is None else tls.data_client_context()
        self._dialler = Dialler(data_streams, context)

    def open(
        self,
        service: str,
        target: Target,
        limit: Deadline,
        outgoing: Iterator[bytes],
        received: Callable[[bytes], bool],
        ended: Callable[[BrokenStreamError | None], object],
    ) -> GrpcClientStream:
        addresses = resolve(target.address, limit)
        return GrpcClientStream(
            service, target, outgoing, received, ended, self._tls, self._dialler, addresses
        )

    async def connect(
        self, service: str, task: Task, address: str, refused_s: float | None = None
    ) -> GrpcStream:
        return await connect(service, task, address, refused_s, self._tls, self._dialler)

    def listener(
        self, services: Services, is_serving: Callable[[], bool] = lambda: True
    ) -> GrpcServer:
        return GrpcServer(services, self._tls, self._data_streams, is_serving)
