"""The raw limit of a queue on a server: a `grpc.aio` relay with a bounded deque of items.

`python -m bench.relay` is the relay, and prints its port; `python -m bench.relay PORT` fills it.
Both go on until their standard input ends.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import grpc
import numpy as np

from bench.echo_server import OPTIONS

CAPACITY = 1000
ITEM = np.zeros((84, 84), np.float32)
N_COALESCED = (1 << 20) // ITEM.nbytes
"""Items in a message of at most 1 MiB."""


class Relay(grpc.GenericRpcHandler):
    """Takes items in on one stream and hands them out, in their order, on another."""

    def __init__(self) -> None:
        self._items: deque[bytes] = deque()
        self._changed = asyncio.Condition()

    def service(self, details: Any) -> Any:
        return {
            "/relay/put": grpc.stream_unary_rpc_method_handler(self._put),
            "/relay/take": grpc.unary_stream_rpc_method_handler(self._take),
        }.get(details.method)

    async def _put(self, requests: AsyncIterator[bytes], _: Any) -> bytes:
        async for message in requests:
            for start in range(0, len(message), ITEM.nbytes):
                if len(self._items) >= CAPACITY:
                    await self._until(lambda: len(self._items) < CAPACITY)
                self._items.append(message[start : start + ITEM.nbytes])
            await self._until(lambda: True)
        return b""

    async def _take(self, _: bytes, __: Any) -> AsyncIterator[bytes]:
        while True:
            await self._until(lambda: bool(self._items))
            n = min(N_COALESCED, len(self._items))
            yield b"".join([self._items.popleft() for _ in range(n)])

    async def _until(self, holds: Any) -> None:
        """Tells the other side what has changed, and waits for it where that is needed."""
        async with self._changed:
            self._changed.notify_all()
            await self._changed.wait_for(holds)


async def serve() -> None:
    """Relays until standard input ends."""
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((Relay(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(None)


async def produce(port: int) -> None:
    """Puts items, as fast as the relay takes them, until standard input ends."""
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", OPTIONS) as channel:
        put = channel.stream_unary("/relay/put")()
        while not ended.done():
            await put.write(b"".join([ITEM.tobytes() for _ in range(N_COALESCED)]))
        put.cancel()


if __name__ == "__main__":
    asyncio.run(produce(int(sys.argv[1])) if sys.argv[1:] else serve())
