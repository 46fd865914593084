"""The raw limit of the wire: a `grpc.aio` server that echoes and streams; prints its port."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc
import numpy as np

OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
N_BYTES = 100_000_000


class Methods(grpc.GenericRpcHandler):
    """Unary echo, echo on a stream, a stream of chunks out, a stream of chunks in."""

    def service(self, details: Any) -> Any:
        return {
            "/raw/echo": grpc.unary_unary_rpc_method_handler(echo),
            "/raw/chat": grpc.stream_stream_rpc_method_handler(chat),
            "/raw/pull": grpc.unary_stream_rpc_method_handler(pull),
            "/raw/push": grpc.stream_unary_rpc_method_handler(push),
        }.get(details.method)


async def echo(request: bytes, _: Any) -> bytes:
    return request


async def chat(requests: Any, _: Any) -> Any:
    async for message in requests:
        yield message


async def pull(request: bytes, _: Any) -> Any:
    data = memoryview(np.ones(N_BYTES, np.uint8))
    size = int(request)
    for start in range(0, N_BYTES, size):
        yield bytes(data[start : start + size])


async def push(requests: Any, _: Any) -> bytes:
    buffer = np.empty(N_BYTES, np.uint8)
    filled = 0
    async for message in requests:
        buffer[filled : filled + len(message)] = np.frombuffer(message, np.uint8)
        filled += len(message)
    return b"%d" % filled


async def main() -> None:
    """Serves until standard input ends."""
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((Methods(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(main())
