"""`GrpcServer`: listens on the address of one task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import grpc

from jflow.protocol.transport import BrokenStreamError, FrameStream, Services
from jflow.wire.grpc_channels import aio_server, bind, is_authorized, method_of
from jflow.wire.grpc_stream import GrpcStream


class GrpcServer:
    """Serves streams on an address; see `protocol.transport.Listener`.

    Args:
      services: the functions that serve the streams of each service.
      token: the secret that callers must send.
    """

    def __init__(self, services: Services, token: str) -> None:
        self._server = aio_server([_TokenCheck(token)])
        self._server.add_generic_rpc_handlers((_Methods(services),))

    async def start(self, host: str, port: int) -> int:
        bound = bind(self._server, host, port)
        await self._server.start()
        return bound

    async def stop(self) -> None:
        await self._server.stop(None)


class _TokenCheck(grpc.aio.ServerInterceptor):
    """Refuses every call without the token before its body is read."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        if is_authorized(details.invocation_metadata, self._token):
            return await continuation(details)
        return grpc.stream_stream_rpc_method_handler(_refuse)


async def _refuse(_: Any, context: Any) -> None:
    await context.abort(
        grpc.StatusCode.UNAUTHENTICATED,
        "the token is missing or is not this server's; both ends need the same "
        "~/.jflow/token, JFLOW_TOKEN_FILE or JFLOW_TOKEN",
    )


class _Methods(grpc.GenericRpcHandler):
    def __init__(self, services: Services) -> None:
        # gRPC checks whether a handler is a coroutine function: a partial is, a lambda is not.
        self._methods = {
            method_of(name): partial(_serve, serve) for name, serve in services.items()
        }

    def service(self, details: Any) -> Any:
        method = self._methods.get(details.method)
        return method and grpc.stream_stream_rpc_method_handler(method)


async def _serve(serve: Callable[[FrameStream], Awaitable[None]], _: Any, context: Any) -> None:
    with suppress(BrokenStreamError):  # the caller is gone
        await serve(GrpcStream(context))
