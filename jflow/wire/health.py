"""The health service of gRPC (`grpc.health.v1`), for probes, which have no token.

It says whether a server serves, and nothing else. `Watch` is not offered: its streams would be
kept for callers that have not proven themselves, and the protocol lets a server leave it out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from jflow.errors import ResourceExhaustedError, UnauthenticatedError
from jflow.protocol.unproven import Unproven

_SERVICE = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
_MAX_BYTES = 4096
"""Of a request: the name of a service."""


class HealthService(grpc.GenericRpcHandler):
    """Answers `Check` for the server as a whole, which has the name ""; others are unknown.

    It is served as a stream, which is the same to callers: gRPC itself waits for the request of a
    unary call without a limit, and keeps the connection and what has come of the request.

    Args:
      is_serving: whether the server serves.
    """

    def __init__(self, is_serving: Callable[[], bool]) -> None:
        self._is_serving = is_serving
        self._unproven = Unproven()
        self._check = grpc.stream_stream_rpc_method_handler(self._answer)

    def service(self, details: Any) -> Any:
        return self._check if details.method == f"/{_SERVICE}/Check" else None

    async def _answer(self, _: Any, context: Any) -> None:
        try:
            async with self._unproven.reading():
                request = _request(await context.read())
        except ResourceExhaustedError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, error.message)
        except UnauthenticatedError as error:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, error.message)
        else:
            await self._reply(request, context)

    async def _reply(self, request: health_pb2.HealthCheckRequest | None, context: Any) -> None:
        if request is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not a HealthCheckRequest")
        elif request.service:
            await context.abort(grpc.StatusCode.NOT_FOUND, "only the service '' is known")
        else:
            serving = health_pb2.HealthCheckResponse
            state = serving.SERVING if self._is_serving() else serving.NOT_SERVING
            answer = health_pb2.HealthCheckResponse(status=state)
            await context.write(answer.SerializeToString())


def _request(message: Any) -> health_pb2.HealthCheckRequest | None:
    """The request in a message; None if it is none, or the stream has ended without one."""
    if not isinstance(message, bytes) or len(message) > _MAX_BYTES:
        return None
    try:
        return health_pb2.HealthCheckRequest.FromString(message)
    except DecodeError:
        return None
