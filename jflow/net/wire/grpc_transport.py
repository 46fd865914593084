"""Streams of frames over gRPC: each service is one bidirectional streaming method."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jflow.base.cluster import Target, Task
from jflow.base.deadline import Deadline
from jflow.net.protocol.transport import BrokenStreamError, Services
from jflow.net.wire.attaching import Dialler
from jflow.net.wire.data_streams import DataStreams
from jflow.net.wire.grpc_client import GrpcClientStream
from jflow.net.wire.grpc_server import GrpcServer
from jflow.net.wire.grpc_stream import GrpcStream, connect
from jflow.net.wire.names import resolve
from jflow.net.wire.tls import Tls


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
