"""A server of a scripted host, its client, and a place for the sockets of data streams."""

import pytest

from jflow.wire import connect, unix_attach
from tests.protocol.hosts import PATIENCE_S, TOKEN, Host, served


@pytest.fixture
def own_sockets(monkeypatch, tmp_path_factory):
    """Data streams are used, with a directory of sockets of the test's own, with a short path."""
    monkeypatch.setenv("JFLOW_TOKEN", TOKEN)
    monkeypatch.setenv("JFLOW_TRANSPORT", "auto")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
    unix_attach._tell.cache_clear()


@pytest.fixture
def host():
    return Host()


@pytest.fixture
def server(own_sockets, host):
    with served(host) as server:
        yield server


@pytest.fixture
def client(server):
    client = connect(server.address, PATIENCE_S)
    yield client
    client.close()
