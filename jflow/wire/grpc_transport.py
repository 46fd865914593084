"""Streams of frames over gRPC: each service is one bidirectional streaming method."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from jflow.cluster import Task
from jflow.deadline import Deadline
from jflow.protocol.transport import BrokenStreamError, Services
from jflow.wire.grpc_client import GrpcClientStream, resolve
from jflow.wire.grpc_server import GrpcServer
from jflow.wire.grpc_stream import GrpcStream, connect


class GrpcTransport:
    """Carries frames over gRPC; see `protocol.transport.Transport`."""

    def open(
        self,
        service: str,
        address: str,
        limit: Deadline,
        outgoing: Iterator[bytes],
        received: Callable[[bytes], bool],
        ended: Callable[[BrokenStreamError | None], object],
    ) -> GrpcClientStream:
        resolve(address, limit)
        return GrpcClientStream(service, address, outgoing, received, ended)

    async def connect(
        self, service: str, task: Task, address: str, refused_s: float | None = None
    ) -> GrpcStream:
        return await connect(service, task, address, refused_s)

    def listener(self, services: Services) -> GrpcServer:
        return GrpcServer(services)
