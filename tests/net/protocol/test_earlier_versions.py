"""Servers, clients and peers of version 3, as commit be8797e4 spoke it, and those of this version.

`handshakes_of_version_3.txt` has what that commit's code sent: the first frame of a client and of a
peer, and all that a server answered to one of version 4.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from jflow.base.versions import VERSION
from jflow.errors import FailedPreconditionError
from jflow.net.wire import connect
from tests.net.protocol.hosts import (
    PATIENCE_S,
    TASK,
    TOKEN,
    Host,
    eventually_async,
    on_loop,
    peer_at,
    raw_call,
    raw_server,
    serving,
)

RECORDED = {
    name: bytes.fromhex(frame)
    for name, _, frame in (
        line.partition(": ")
        for line in (Path(__file__).parent / "handshakes_of_version_3.txt").read_text().splitlines()
    )
}
PREFIX = b"jflow\0" + VERSION.to_bytes(2, "little")


@pytest.mark.parametrize("method", ["/jflow.v1.Master/Session", "/jflow.v1.Worker/Peer"])
def test_a_caller_of_version_3_is_told_this_version_and_nothing_else(method: str) -> None:
    host = Host()

    async def check() -> None:
        async with serving(host) as address, raw_call(address, method) as call:
            await call.write(RECORDED[f"hello to {method}"])
            # That version names both versions, and says what to do, once it has read this prefix.
            assert await call.read() == PREFIX
            assert await call.read() is grpc.aio.EOF
            assert await call.code() is grpc.StatusCode.OK

    on_loop(check())
    assert host.sessions == []


class Version3Server:
    """Answers every stream as a server of version 3 does, and keeps what it was sent."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.ended = 0

    async def __call__(self, context: Any) -> None:
        self.received.append(await context.read())
        await context.write(RECORDED["answer to a hello of version 4"])
        try:
            while isinstance(frame := await context.read(), bytes):
                self.received.append(frame)
        finally:  # gRPC cancels what serves a call that its caller has cancelled
            self.ended += 1

    def check(self, error: FailedPreconditionError, named: str) -> None:
        """Checks the error, and that the caller sent its first frame only."""
        assert error.message == (
            f"{named} speaks version 3 of jflow's protocol and this end version {VERSION}; install "
            "the same version of jflow on both"
        )
        (hello,) = self.received
        assert hello.startswith(PREFIX)
        assert TOKEN.encode() not in hello


def test_a_client_refuses_a_server_of_version_3_by_name_and_sends_it_nothing_more() -> None:
    server = Version3Server()

    async def check() -> None:
        async with raw_server(server) as address:
            with pytest.raises(FailedPreconditionError) as caught:
                await asyncio.to_thread(connect, address, PATIENCE_S)
            await eventually_async(lambda: server.ended)
            server.check(caught.value, f"the server at {address}")

    on_loop(check())


def test_a_peer_refuses_a_server_of_version_3_by_name_and_sends_it_nothing_more() -> None:
    server = Version3Server()

    async def check() -> None:
        async with raw_server(server) as address, peer_at(address) as peer:
            with pytest.raises(FailedPreconditionError) as caught:
                await peer.connect(PATIENCE_S)
            await eventually_async(lambda: server.ended)
            server.check(caught.value, f"{TASK} at {address}")

    on_loop(check())
