"""The health service of gRPC, which needs no token and says one thing only."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

import jflow as tf
from jflow.base.cluster import split_address
from jflow.net.wire.grpc_server import GrpcServer
from jflow.net.wire.tls import load_tls
from tests.certificates import make_certificates
from tests.net.protocol.hosts import PATIENCE_S, on_loop

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def check(channel: grpc.Channel, service: str = "", method: str = "Check") -> Any:
    """The answer of a server to a probe that knows nothing but its address."""
    call = channel.unary_unary(
        f"/grpc.health.v1.Health/{method}",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
    )
    request = health_pb2.HealthCheckRequest(service=service)
    return call(request, timeout=PATIENCE_S, wait_for_ready=True)


def test_a_server_says_without_a_token_that_it_serves_and_nothing_else() -> None:
    with (
        tf.train.Server({"worker": ["127.0.0.1:0"]}) as server,
        grpc.insecure_channel(server.target.removeprefix("grpc://")) as channel,
    ):
        assert check(channel) == health_pb2.HealthCheckResponse(status=SERVING).SerializeToString()
        with pytest.raises(grpc.RpcError) as refused:
            check(channel, "jflow.v1.Master")
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        with pytest.raises(grpc.RpcError) as refused:
            check(channel, method="Watch")
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_server_that_is_about_to_stop_says_so() -> None:
    is_serving = True

    async def look() -> None:
        nonlocal is_serving
        server = GrpcServer({}, is_serving=lambda: is_serving)
        port = await server.start(["127.0.0.1"], 0)
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            for expected in (SERVING, NOT_SERVING):
                answer = await asyncio.to_thread(check, channel)
                assert health_pb2.HealthCheckResponse.FromString(answer).status == expected
                is_serving = False
        await server.stop()

    on_loop(look())


def test_a_probe_of_a_server_with_certificates_needs_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_certificates(tmp_path / "tls", {"worker": ["127.0.0.1:0"]})
    monkeypatch.setenv("JFLOW_TLS_DIR", str(made))
    tls = load_tls(None)
    assert tls is not None
    with tf.train.Server({"worker": ["127.0.0.1:0"]}) as server:
        _, port = split_address(server.target)
        address = f"127.0.0.1:{port}"
        with grpc.secure_channel(address, tls.channel_credentials()) as channel:
            answer = health_pb2.HealthCheckResponse.FromString(check(channel))
            assert answer.status == SERVING
        with grpc.insecure_channel(address) as channel:
            call = channel.unary_unary("/grpc.health.v1.Health/Check")
            with pytest.raises(grpc.RpcError) as refused:
                call(b"", timeout=PATIENCE_S)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_probe_that_does_not_say_what_it_asks_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its connection, and what it has sent of its request, would be kept for ever."""
    monkeypatch.setattr("jflow.net.protocol.settings.HELLO_S", 0.2)

    async def look() -> None:
        server = GrpcServer({})
        port = await server.start(["127.0.0.1"], 0)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.stream_stream("/grpc.health.v1.Health/Check")()
            async with asyncio.timeout(PATIENCE_S):
                assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
        await server.stop()

    on_loop(look())


@pytest.mark.parametrize("noise", [b"\xff" * 9, bytes(5000), b"\x0a\x05ab"], ids=len)
def test_a_probe_that_asks_nothing_known_is_refused(noise: bytes) -> None:
    async def look() -> None:
        server = GrpcServer({})
        port = await server.start(["127.0.0.1"], 0)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.unary_unary("/grpc.health.v1.Health/Check")
            with pytest.raises(grpc.RpcError) as refused:
                await call(noise, timeout=PATIENCE_S)
            assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        await server.stop()

    on_loop(look())
