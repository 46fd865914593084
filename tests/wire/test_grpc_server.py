"""The gRPC server: which callers it admits, and where it listens."""

import grpc
import pytest

from jflow import errors
from tests.protocol.hosts import (
    Host,
    on_loop,
    raw_call,
    server_of,
    serving,
)


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
