"""A server of a scripted host, and a client of it."""

import re

import pytest

from jflow.net.wire import connect, ports
from jflow.net.wire.data_streams import DataStreams
from tests.net.protocol.hosts import PATIENCE_S, TOKEN, Host, served

ON_TRANSPORTS = (
    "test_batches",
    "test_callbacks",
    "test_cancelled_calls",
    "test_client",
    "test_peer",
    "test_traced",
)
"""Files whose tests run on every kind of stream that carries messages."""

DIFFERING = re.compile(r"large|chunk|cancel|ctrl_c|close|closing|ends_|stops|broke|hundred")
"""Names of tests that may differ between them: framing, flow control, cancellation and ends."""


def pytest_generate_tests(metafunc):
    """Runs all on data streams, and what may differ by gRPC alone and in this process, too.

    `product` has the rest, and TCP, which differs from Unix sockets in `jflow.net.wire` only, whose
    tests run on it.
    """
    if metafunc.module.__name__.rpartition(".")[2] in ON_TRANSPORTS:
        marks = [] if DIFFERING.search(metafunc.function.__name__) else [pytest.mark.product]
        over_tcp = pytest.param("tcp", marks=[pytest.mark.product])
        others = [pytest.param(kind, marks=marks) for kind in ("grpc", "inproc")]
        kinds = [pytest.param("unix"), *others, over_tcp]
        metafunc.parametrize("transport_kind", kinds, indirect=True)


@pytest.fixture(autouse=True)
def transport_kind(request, monkeypatch):
    """What carries messages; data streams if it is not a parameter of the test."""
    kind = getattr(request, "param", "unix")
    # Servers that tests script by hand have no data streams, so it is where they are possible.
    monkeypatch.setenv("JFLOW_TRANSPORT", "grpc" if kind == "grpc" else "auto")
    monkeypatch.setattr(DataStreams, "has_inproc", kind == "inproc")
    if kind == "tcp":  # as between machines
        monkeypatch.setattr(DataStreams, "has_unix", False)
        monkeypatch.setattr(ports, "are_loopback", lambda _: False)
    return kind


@pytest.fixture(autouse=True)
def _token(monkeypatch):
    monkeypatch.setenv("JFLOW_TOKEN", TOKEN)


@pytest.fixture
def host():
    return Host()


@pytest.fixture
def server(host):
    with served(host) as server:
        yield server


@pytest.fixture
def client(server):
    client = connect(server.address, PATIENCE_S)
    yield client
    client.close()
