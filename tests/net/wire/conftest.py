"""A server of a scripted host, its client, and a place for the sockets of data streams."""

import pytest

from jflow.net.wire import connect, data_streams
from tests.certificates import make_certificates
from tests.net.protocol.hosts import PATIENCE_S, TOKEN, Host, served
from tests.net.wire.kinds import VALUES


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certificates") / "tls")


@pytest.fixture
def kind(request):
    """The kind of data streams, by `kinds.on`."""
    return getattr(request, "param", "unix")


@pytest.fixture
def own_sockets(kind, request, monkeypatch, tmp_path_factory):
    """Data streams are used, with a directory of sockets of the test's own, with a short path."""
    monkeypatch.setenv("JFLOW_TOKEN", TOKEN)
    monkeypatch.setenv("JFLOW_TRANSPORT", VALUES[kind])
    monkeypatch.setattr(data_streams.DataStreams, "has_inproc", False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
    if kind == "tls":
        monkeypatch.setenv("JFLOW_TLS_DIR", str(request.getfixturevalue("certificates")))
    data_streams.log_once.cache_clear()


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
