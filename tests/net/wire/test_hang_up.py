"""Callers that leave no window for what a server sends them, and have not proven themselves."""

import asyncio
import os
import socket
import struct
from contextlib import suppress

import grpc
import pytest

from jflow.base.cluster import Target
from jflow.net.protocol import Secret
from jflow.net.protocol.handshake import Caller, CallerHandshake
from jflow.net.protocol.rpcs import MASTER
from jflow.net.wire.hang_up import HangUps
from tests.net.protocol.hosts import PATIENCE_S, SESSION_METHOD, Host, on_loop, serving

CHECK = "/grpc.health.v1.Health/Check"
SETTINGS, PING = 4, 6


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags])
    return head + struct.pack(">I", stream) + payload


def _field(name: str, value: str) -> bytes:
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def _call(method: str, message: bytes, window: int) -> bytes:
    """The bytes of an HTTP/2 connection that calls a method, with so large a window."""
    fields = {":method": "POST", ":scheme": "http", ":path": method, ":authority": "a"}
    fields |= {"te": "trailers", "content-type": "application/grpc"}
    head = b"".join(_field(name, value) for name, value in fields.items())
    body = b"\0" + struct.pack(">I", len(message)) + message
    return (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + _frame(4, 0, 0, struct.pack(">HI", 4, window))
        + _frame(1, 4, 1, head)
        + _frame(0, 0, 1, body)
    )


def _hello(address: str) -> bytes:
    caller = Caller(Secret("w" * 32), MASTER.name, Target(address))
    return CallerHandshake(caller, os.urandom(32)).first_frame("x")


async def _until_closed(reader, writer):
    """Answers settings and pings, so that the connection is not closed for want of that."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = await reader.readexactly(9)
            payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
            if head[3] in (SETTINGS, PING) and not head[4]:
                writer.write(_frame(head[3], 1, 0, payload if head[3] == PING else b""))


@pytest.mark.parametrize(
    ("method", "window"), [(CHECK, 0), (CHECK, 3), (SESSION_METHOD, 0), (SESSION_METHOD, 20)]
)
def test_a_caller_that_takes_no_reply_is_hung_up_on(method, window, monkeypatch, caplog):
    monkeypatch.setattr("jflow.net.protocol.settings.HELLO_S", 0.2)

    async def look():
        async with serving(Host()) as address:
            host, _, port = address.partition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(_call(method, b"" if method == CHECK else _hello(address), window))
            async with asyncio.timeout(PATIENCE_S):
                await _until_closed(reader, writer)
            writer.close()

    on_loop(look())
    assert not [record for record in caplog.records if record.exc_info]


class _Stuck:
    """The context of a stream on which a status cannot be sent."""

    def __init__(self, peer):
        self.peer = lambda: peer

    async def abort(self, *_):
        await asyncio.Event().wait()


def test_a_connection_whose_status_is_not_taken_is_shut_down_and_no_other(monkeypatch):
    monkeypatch.setattr("jflow.net.protocol.settings.READ_S", 0.05)

    async def look():
        with socket.create_server(("127.0.0.1", 0)) as listening:
            address = listening.getsockname()
            with socket.create_connection(address) as one, socket.create_connection(address) as two:
                accepted = [listening.accept()[0] for _ in range(2)]
                hang_ups = HangUps()
                hang_ups.port = address[1]
                peer = f"ipv4:127.0.0.1:{one.getsockname()[1]}"
                await hang_ups.refuse(_Stuck(peer), grpc.StatusCode.UNAUTHENTICATED, "late")
                assert await asyncio.to_thread(one.recv, 1) == b""
                two.setblocking(False)
                with pytest.raises(BlockingIOError):
                    two.recv(1)
                for end in accepted:
                    end.close()

    on_loop(look())
