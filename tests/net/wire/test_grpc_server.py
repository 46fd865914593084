"""The gRPC server: which callers it admits, and where it listens."""

import asyncio
import socket
from contextlib import suppress

import grpc
import pytest

from jflow import errors
from jflow.net.protocol import settings
from jflow.net.wire import grpc_channels
from jflow.net.wire.grpc_server import RefusalLog, certified_names
from tests.net.protocol.hosts import (
    PATIENCE_S,
    SESSION_METHOD,
    Host,
    on_loop,
    raw_call,
    server_of,
    serving,
)
from tests.ports import free_hosts


def _served(host, use):
    """Runs `use(address)` on the loop beside a server of the host."""

    async def check():
        async with serving(host) as address:
            await use(address)

    on_loop(check())


@pytest.mark.parametrize("method", ["/jflow.v1.Master/Other", "/jflow.v1.Worker/Session", "/x/y"])
def test_a_method_that_does_not_exist_is_unimplemented(method):
    async def check(address):
        async with raw_call(address, method) as call:
            assert await call.code() is grpc.StatusCode.UNIMPLEMENTED

    _served(Host(), check)


def test_compressed_messages_are_refused_before_they_are_unpacked():
    async def check(address):
        async with grpc.aio.insecure_channel(address, compression=grpc.Compression.Gzip) as channel:
            call = channel.stream_stream(SESSION_METHOD)()
            with suppress(grpc.RpcError):  # it may have ended before all is written
                await call.write(bytes(1 << 20))
            # The second one is the client's own, if the stream ends while it writes.
            refusals = grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL
            assert await call.code() in refusals

    _served(Host(), check)


def test_a_stream_that_ends_before_hello_opens_no_session():
    host = Host()

    async def check(address):
        async with raw_call(address) as call:
            await call.done_writing()
            assert await call.code() is grpc.StatusCode.OK

    _served(host, check)
    assert host.sessions == []


def test_a_port_in_use_is_an_error_that_names_it():
    async def check(address):
        port = int(address.rpartition(":")[2])
        second = server_of(Host())
        with pytest.raises(errors.UnknownError, match=address):
            await second.start(["127.0.0.1"], port)
        await second.stop()

    _served(Host(), check)


def test_a_server_that_cannot_have_all_of_its_addresses_does_not_start():
    """gRPC by itself would be content with one of them."""

    async def check():
        server = server_of(Host())
        # The ports of 127.0.0.1 are taken by other tests at any time.
        first, second = free_hosts(2)
        with socket.create_server((second, 0)) as other:
            port = other.getsockname()[1]
            with pytest.raises(errors.UnknownError, match=f"{second}:{port} cannot be bound"):
                await server.start([first, second], port)
        await server.stop()

    on_loop(check())


def test_a_server_listens_at_all_of_its_addresses_on_one_port():
    async def check():
        server = server_of(Host())
        hosts = free_hosts(2)
        port = await server.start(hosts, 0)
        for host in hosts:
            socket.create_connection((host, port)).close()
        await server.stop()

    on_loop(check())


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"


def test_a_connection_without_a_stream_is_closed(monkeypatch):
    found = dict(grpc_channels.server_options())
    assert found["grpc.max_connection_idle_ms"] == settings.HELLO_S * 1000
    options = [*(found | {"grpc.max_connection_idle_ms": 100}).items()]
    monkeypatch.setattr(grpc_channels, "server_options", lambda: options)

    async def check(address):
        host, _, port = address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(PREFACE)
        async with asyncio.timeout(PATIENCE_S):
            assert b"connection idle" in await reader.read()
        writer.close()

    _served(Host(), check)


def test_refused_streams_cannot_fill_the_log(monkeypatch, caplog):
    clock = [100.0]
    monkeypatch.setattr("jflow.net.wire.grpc_server.now", lambda: clock[0])
    log = RefusalLog()
    for second in (0, 1, 9, 11, 12, 30):
        clock[0] = 100.0 + second
        log.add("ipv4:1", f"reason {second}")
    assert [record.getMessage().partition("refused: ")[2] for record in caplog.records] == [
        "reason 0",
        "reason 11 (before it, 2 more were refused)",
        "reason 30 (before it, 1 more were refused)",
    ]


@pytest.mark.parametrize("found", [{}, {"transport_security_type": [b"insecure"]}], ids=str)
def test_a_caller_whose_certificate_is_not_known_has_no_name_rather_than_all(found):
    """A server with certificates does not ask gRPC whether the stream is encrypted."""

    class Context:
        def auth_context(self):
            return found

    assert certified_names(Context()) == frozenset()
