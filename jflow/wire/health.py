"""The health service of gRPC (`grpc.health.v1`), for probes, which have no token.

It says whether a server serves, and nothing else. `Watch` is not offered: its streams would be
kept for callers that have not proven themselves, and the protocol lets a server leave it out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

_SERVICE = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name


class HealthService(grpc.GenericRpcHandler):
    """Answers `Check` for the server as a whole, which has the name ""; others are unknown.

    Args:
      is_serving: whether the server serves.
    """

    def __init__(self, is_serving: Callable[[], bool]) -> None:
        self._is_serving = is_serving
        self._check = grpc.unary_unary_rpc_method_handler(
            self._answer,
            request_deserializer=health_pb2.HealthCheckRequest.FromString,
            response_serializer=health_pb2.HealthCheckResponse.SerializeToString,
        )

    def service(self, details: Any) -> Any:
        return self._check if details.method == f"/{_SERVICE}/Check" else None

    async def _answer(
        self, request: health_pb2.HealthCheckRequest, context: Any
    ) -> health_pb2.HealthCheckResponse:
        if request.service:
            await context.abort(grpc.StatusCode.NOT_FOUND, "only the service '' is known")
        serving = health_pb2.HealthCheckResponse
        state = serving.SERVING if self._is_serving() else serving.NOT_SERVING
        return health_pb2.HealthCheckResponse(status=state)
