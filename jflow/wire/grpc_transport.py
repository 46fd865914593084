"""Streams of frames over gRPC: each service is one bidirectional streaming method."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jflow.cluster import Target, Task
from jflow.deadline import Deadline
from jflow.protocol.transport import BrokenStreamError, Services
from jflow.wire.grpc_client import GrpcClientStream, resolve
from jflow.wire.grpc_server import GrpcServer
from jflow.wire.grpc_stream import GrpcStream, connect
from jflow.wire.tls import Tls


class GrpcTransport:
    """Carries frames over gRPC; see `protocol.transport.Transport`.

    Args:
      tls: the certificates of this end; without them, nothing is encrypted.
    """

    def __init__(self, tls: Tls | None = None) -> None:
        self._tls = tls

    def open(
        self,
        service: str,
        target: Target,
        limit: Deadline,
        outgoing: Iterator[bytes],
        received: Callable[[bytes], bool],
        ended: Callable[[BrokenStreamError | None], object],
    ) -> GrpcClientStream:
        resolve(target.address, limit)
        return GrpcClientStream(service, target, outgoing, received, ended, self._tls)

    async def connect(
        self, service: str, task: Task, address: str, refused_s: float | None = None
    ) -> GrpcStream:
        return await connect(service, task, address, refused_s, self._tls)

    def listener(self, services: Services) -> GrpcServer:
        return GrpcServer(services, self._tls)
