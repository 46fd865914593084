"""A client's gRPC stream, on threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import grpc

from jflow.base.cluster import Target, certified_name, split_address
from jflow.base.deadline import Deadline
from jflow.net.protocol.frame import Message
from jflow.net.protocol.offers import DataOffer
from jflow.net.protocol.transport import BrokenStreamError
from jflow.net.wire.attaching import WITHOUT, Dialler
from jflow.net.wire.grpc_channels import client_channel, method_of
from jflow.net.wire.grpc_stream import broken
from jflow.net.wire.machine import machine_at
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
        address, name = target.address, _certified_name(target)
        self._dialler = replace(dialler, addresses=addresses, name=name, is_direct=not target.at)
        self._ended = ended
        self._refusal: str | None = None
        self._is_decided = threading.Event()
        self._channel = client_channel(address, tls, name)
        # Frames are taken in gRPC's deserializer, on a thread of gRPC. So callers are woken one
        # thread switch earlier than by the thread that iterates over the stream.
        try:
            method: Any = self._channel.stream_stream(
                method_of(service), response_deserializer=received
            )
            self._stream = method(outgoing, wait_for_ready=True)
            refusal = look_for_refusal(tls, address, name, self._is_decided, _PATIENCE_S)
            refusal.add_done_callback(self._give_up)
            threading.Thread(target=self._read, name=f"jflow {address}", daemon=True).start()
        except BaseException:  # for example, no thread can be started
            self.close()
            raise

    def attach(
        self,
        offer: DataOffer | None,
        limit: Deadline,
        received: Callable[[Message], object],
        ended: Callable[[Exception | None], object],
    ) -> SocketClient | None:
        connection = self._dialler.attach_here(offer, limit)
        return None if connection is None else SocketClient(connection, received, ended)

    def close(self) -> None:
        self._is_decided.set()
        self._channel.close()

    def _read(self) -> None:
        """Iterates over the stream, whose frames the deserializer has taken."""
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
            self._ended(cause)

    def _give_up(self, found: Future[str | None]) -> None:
        """Ends the stream if the two ends do not agree on encryption: gRPC would go on trying."""
        refusal = found.result()
        if refusal is not None:
            self._refusal = refusal
            self._stream.cancel()


def _certified_name(target: Target) -> str:
    """The name that the certificate of a server must have: of its task, else of its host."""
    if target.task is not None:
        return certified_name(target.task)
    return split_address(target.own_address)[0]
