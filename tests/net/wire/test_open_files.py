"""What connections of callers leave of a server's open files."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator

import pytest

from jflow.net.wire import grpc_channels
from jflow.net.wire.grpc_channels import max_connections, raise_limit
from tests.net.protocol.hosts import PATIENCE_S, Host, on_loop, serving


@pytest.fixture(autouse=True)
def limits() -> Iterator[tuple[int, int]]:
    """The soft and the hard limit of this process, as they were and will be again."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_server_raises_the_soft_limit_of_open_files(limits: tuple[int, int]) -> None:
    soft, hard = limits
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft // 2, hard))

    async def start() -> None:
        async with serving(Host()):
            pass

    on_loop(start())
    found = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert found == (min(hard, grpc_channels._ENOUGH), hard)


@pytest.mark.parametrize(
    ("soft", "hard", "after"),
    [
        (1024, 4096, 4096),
        (4096, 4096, 4096),
        (1024, 1 << 30, 1 << 16),
        (1024, resource.RLIM_INFINITY, 1 << 16),
        (1 << 20, 1 << 30, 1 << 16),
    ],
)
def test_callers_get_half_of_what_may_be_open(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, after: int
) -> None:
    changes: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: changes.append(limits))
    assert max_connections(1) == after // 2
    assert max_connections(2) == after // 4
    assert set(changes) == ({(after, hard)} if soft < after else set())


def test_a_limit_that_cannot_be_raised_is_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_limit() == 256


def test_connections_beyond_the_limit_are_closed_at_once_and_free_ones_serve_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that are open stay, for as long as they do not begin HTTP/2 in this test."""
    options = {**dict(grpc_channels.server_options()), "grpc.server_handshake_timeout_ms": 10**6}
    monkeypatch.setattr(grpc_channels, "server_options", lambda: [*options.items()])
    monkeypatch.setattr(grpc_channels, "max_connections", lambda _: 2)

    async def check() -> None:
        async with serving(Host()) as address, asyncio.timeout(PATIENCE_S):
            host, _, port = address.partition(":")
            kept = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
            settings = [await reader.readexactly(9) for reader, _ in kept]
            assert all(settings), "gRPC's servers speak first"
            one_more, writer = await asyncio.open_connection(host, int(port))
            assert await one_more.read() == b""
            writer.close()
            kept.pop()[1].close()
            while not (found := await first_byte(host, int(port))):
                await asyncio.sleep(0.01)
            assert found
            kept.pop()[1].close()

    on_loop(check())


async def first_byte(host: str, port: int) -> bytes:
    """What a server says first; nothing if it closes the connection."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        return await reader.read(1)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
