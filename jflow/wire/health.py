"""The health service of gRPC (`grpc.health.v1`), for probes, which have no token.

It says whether a server serves, and nothing else. `Watch` is not offered: its streams would be
kept for callers that have not proven themselves, and the protocol lets a server leave it out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from jflow.errors import ResourceExhaustedError, UnauthenticatedError
from jflow.protocol.unproven import Unproven

_SERVICE = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
_OF_THE_SERVER = (b"", b"\n\0")
"""Requests that name the service "", so that nothing of them needs to be parsed."""


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
        self._check: Any = grpc.stream_stream_rpc_method_handler(self._answer)

    def service(self, details: Any) -> Any:
        return self._check if details.method == f"/{_SERVICE}/Check" else None

    async def _answer(self, _: Any, context: Any) -> None:
        try:
            async with self._unproven.reading():
                request = await context.read()
        except ResourceExhaustedError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, error.message)
        except UnauthenticatedError as error:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, error.message)
        else:
            await self._reply(request, context)

    async def _reply(self, request: Any, context: Any) -> None:
        if request not in _OF_THE_SERVER:
            await context.abort(grpc.StatusCode.NOT_FOUND, "only the service '' is known")
        serving = health_pb2.HealthCheckResponse
        state = serving.SERVING if self._is_serving() else serving.NOT_SERVING
        await context.write(health_pb2.HealthCheckResponse(status=state).SerializeToString())
