"""`GrpcServer`: listens on the address of one task."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from jflow.base.deadline.clock import now
from jflow.errors import OpError, ResourceExhaustedError, UnauthenticatedError
from jflow.net.protocol.admission import UnauthenticatedStreams
from jflow.net.protocol.transport import BrokenStreamError, FrameStream, Services
from jflow.net.wire.data_listener import DataListener
from jflow.net.wire.data_streams import DataStreams
from jflow.net.wire.grpc_channels import aio_server, bind, method_of
from jflow.net.wire.grpc_stream import GrpcStream
from jflow.net.wire.hang_up import HangUps
from jflow.net.wire.ports import check_alone
from jflow.net.wire.tls import Tls

_SERVICE = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
_WHOLE_SERVER_REQUESTS = (b"", b"\n\0")
"""Requests that name the service "", so that nothing of them needs to be parsed."""


class HealthService(grpc.GenericRpcHandler):
    """Serves gRPC's health `Check` for the service "", the whole server; knows no other.

    It is served as a stream, which is the same to callers: gRPC itself waits for the request of a
    unary call without a limit, and keeps the connection and what has come of the request.

    Args:
      is_serving: whether the server serves.
      hang_ups: ends the streams that are refused.
    """

    def __init__(self, is_serving: Callable[[], bool], hang_ups: HangUps) -> None:
        self._hang_ups = hang_ups
        self._is_serving = is_serving
        self._unauthenticated = UnauthenticatedStreams()
        self._check: Any = grpc.stream_stream_rpc_method_handler(self._handle_check)

    def service(self, details: Any) -> Any:
        return self._check if details.method == f"/{_SERVICE}/Check" else None

    async def _handle_check(self, _: Any, context: Any) -> None:
        refuse = self._hang_ups.refuse
        try:
            async with self._unauthenticated.reading():
                is_known = await self._reply(context)
        except ResourceExhaustedError as error:
            await refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, error.message)
        except UnauthenticatedError as error:
            await refuse(context, grpc.StatusCode.UNAUTHENTICATED, error.message)
        else:
            if not is_known:
                await refuse(context, grpc.StatusCode.NOT_FOUND, "only the service '' is known")

    async def _reply(self, context: Any) -> bool:
        """Replies to a request if it is for the whole server; returns whether it is."""
        if await context.read() not in _WHOLE_SERVER_REQUESTS:
            return False
        serving = health_pb2.HealthCheckResponse
        state = serving.SERVING if self._is_serving() else serving.NOT_SERVING
        await context.write(health_pb2.HealthCheckResponse(status=state).SerializeToString())
        return True


_LOG = logging.getLogger(__name__)
_STATUS = {status.value[0]: status for status in grpc.StatusCode}


class GrpcServer:
    """Listens on the address of one task over gRPC; see `protocol.transport.Listener`.

    Args:
      services: the functions that serve the streams of each service.
      tls: the certificates of its task; without them, nothing is encrypted.
      data_streams: whether callers are offered data streams.
      is_serving: the health that is reported to probes, which prove nothing.
    """

    def __init__(
        self,
        services: Services,
        tls: Tls | None = None,
        data_streams: DataStreams = DataStreams.NEVER,
        is_serving: Callable[[], bool] = lambda: True,
    ) -> None:
        self._tls = tls
        self._server: grpc.aio.Server | None = None
        self._data = None if data_streams is DataStreams.NEVER else DataListener(data_streams, tls)
        self._hang_ups = HangUps()
        methods = _Methods(services, self._data, self._hang_ups, is_encrypted=tls is not None)
        self._handlers = (methods, HealthService(is_serving, self._hang_ups))

    async def start(self, hosts: Sequence[str], port: int) -> int:
        server = aio_server(len(hosts))
        try:
            bound = bind(server, hosts, port, self._tls)
            check_alone(hosts, bound)
        except BaseException:
            # gRPC leaves a port only after it has served it, if without any method.
            await server.start()
            await server.stop(None)
            raise
        server.add_generic_rpc_handlers(self._handlers)
        if self._data is not None:
            self._data.start(hosts)
        self._hang_ups.port = bound
        await server.start()
        self._server = server
        return bound

    async def stop(self) -> None:
        if self._data is not None:
            self._data.stop()
        if self._server is not None:
            await self._server.stop(None)


class _Methods(grpc.GenericRpcHandler):
    def __init__(
        self,
        services: Services,
        data: DataListener | None,
        hang_ups: HangUps,
        *,
        is_encrypted: bool,
    ) -> None:
        names = certified_names if is_encrypted else _no_names
        refusals = RefusalLog()
        # gRPC checks whether a handler is a coroutine function: a partial is, a lambda is not.
        self._methods = {
            method_of(name): partial(_serve, serve, refusals, hang_ups, data, names)
            for name, serve in services.items()
        }

    def service(self, details: Any) -> Any:
        method = self._methods.get(details.method)
        return method and grpc.stream_stream_rpc_method_handler(method)


async def _serve(
    serve: Callable[[FrameStream], Awaitable[None]],
    refusals: RefusalLog,
    hang_ups: HangUps,
    data: DataListener | None,
    names: Callable[[Any], frozenset[str] | None],
    _: Any,
    context: Any,
) -> None:
    stream = GrpcStream(context, caller_names=names(context), listener=data)
    with suppress(BrokenStreamError):  # the caller is gone
        try:
            await serve(stream)
        except OpError as error:  # it has not proven itself, or a message of it is malformed
            refusals.add(context.peer(), error.message)
            await hang_ups.refuse(context, _STATUS[error.error_code], error.message)
        finally:
            stream.end_data()


class RefusalLog:
    """Logs refused streams at most once in `EACH_S`, with the number left out.

    Otherwise callers without the token could fill its disk.
    """

    EACH_S = 10.0

    def __init__(self) -> None:
        self._silent_until = 0.0
        self._n_left_out = 0

    def add(self, peer: str, reason: str) -> None:
        """Logs or counts a refused stream."""
        if now() < self._silent_until:
            self._n_left_out += 1
            return
        suffix = f" (before it, {self._n_left_out} more were refused)" if self._n_left_out else ""
        _LOG.warning("a stream from %s was refused: %s%s", peer, reason, suffix)
        self._silent_until, self._n_left_out = now() + self.EACH_S, 0


def certified_names(context: Any) -> frozenset[str]:
    """Returns the DNS names in a caller's certificate, where all callers have one.

    Other kinds of names, such as URIs and addresses of mail, may have the text of a task's name.
    """
    return frozenset(name.decode() for name in context.auth_context().get("peer_dns", ()))


def _no_names(_: Any) -> None:
    """Returns None, for a connection without certificates."""
