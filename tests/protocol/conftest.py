"""A server of a scripted host, and a client of it."""

import pytest

from jflow.wire import connect
from tests.protocol.hosts import PATIENCE_S, TOKEN, Host, served


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
