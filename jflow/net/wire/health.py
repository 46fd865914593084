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
from jflow.net.protocol.unproven import Unproven
from jflow.net.wire.hang_up import HangUps

_SERVICE = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
_OF_THE_SERVER = (b"", b"\n\0")
"""Requests that name the service "", so that nothing of them needs to be parsed."""


class HealthService(grpc.GenericRpcHandler):
    """Answers `Check` for the server as a whole, which has the name ""; others are unknown.

    It is served as a stream, which is the same to callers: gRPC itself waits for the request of a
    unary call without a limit, and keeps the connection and what has come of the request.

    Args:
      is_serving: whether the server serves.
      hang_ups: ends the streams that are refused.
    """

    def __init__(self, is_serving: Callable[[], bool], hang_ups: HangUps) -> None:
        self._hang_ups = hang_ups
        self._is_serving = is_serving
        self._unproven = Unproven()
        self._check: Any = grpc.stream_stream_rpc_method_handler(self._answer)

    def service(self, details: Any) -> Any:
        return self._check if details.method == f"/{_SERVICE}/Check" else None

    async def _answer(self, _: Any, context: Any) -> None:
        refuse = self._hang_ups.refuse
        try:
            async with self._unproven.reading():
                is_known = await self._reply(context)
        except ResourceExhaustedError as error:
            await refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, error.message)
        except UnauthenticatedError as error:
            await refuse(context, grpc.StatusCode.UNAUTHENTICATED, error.message)
        else:
            if not is_known:
                await refuse(context, grpc.StatusCode.NOT_FOUND, "only the service '' is known")

    async def _reply(self, context: Any) -> bool:
        """Answers a request; returns whether it is one that is answered."""
        if await context.read() not in _OF_THE_SERVER:
            return False
        serving = health_pb2.HealthCheckResponse
        state = serving.SERVING if self._is_serving() else serving.NOT_SERVING
        await context.write(health_pb2.HealthCheckResponse(status=state).SerializeToString())
        return True
