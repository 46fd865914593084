"""Data streams over TCP: when they are taken, what they are proven by, and what cuts them."""

import errno
import logging
import socket
import ssl
import sys
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from jflow import errors
from jflow.base.cluster import Target, Task
from jflow.base.deadline import FOREVER
from jflow.net.protocol import Peer, Secret
from jflow.net.protocol.handshake import Caller
from jflow.net.protocol.rpcs import WORKER
from jflow.net.wire import attaching, connect, data_listener, load_tls, ports
from jflow.net.wire.connections import SocketConnection
from jflow.net.wire.data_streams import DataStreams
from jflow.net.wire.grpc_client import GrpcTransport
from jflow.net.wire.tls_connection import TlsConnection
from jflow.testing import FaultProxy
from tests.net.protocol.hosts import (
    PATIENCE_S,
    TASK,
    TOKEN,
    eventually,
    forever,
    listener_of,
    on_loop,
    same,
)
from tests.net.wire import kinds
from tests.ports import free_hosts

pytestmark = pytest.mark.usefixtures("own_sockets")


def _offering(server, **changes):
    """Changes what a server tells callers of its data streams."""
    listener = listener_of(server)
    listener._place = replace(listener._place, **changes)
    return listener


# Choice -------------------------------------------------------------------------------------------


def test_a_server_that_only_this_machine_reaches_has_no_port_for_data_streams(server):
    assert listener_of(server)._place.port == 0
    assert listener_of(server)._place.path


@kinds.on("tcp")
def test_a_server_of_another_machine_is_reached_over_tcp_which_is_logged_with_the_reason(
    server, monkeypatch, caplog, kind
):
    """Both are in this process; the boot of the server is another one."""
    caplog.set_level(logging.INFO, "jflow")
    monkeypatch.setenv("JFLOW_TRANSPORT", "auto")
    _offering(server, path="/elsewhere", boot_id="another")
    client = connect(server.address, PATIENCE_S)
    assert client.transport == "tcp"
    (value,) = client.run_step(1, [np.arange(300_000)], FOREVER)
    same(value, np.arange(300_000))
    client.close()
    assert "messages go over TCP: the server is on another machine" in caplog.text


@kinds.on("tcp")
def test_grpc_carries_messages_where_the_port_cannot_be_reached_and_the_reason_is_logged(
    server, monkeypatch, caplog, kind
):
    caplog.set_level(logging.INFO, "jflow")
    monkeypatch.setenv("JFLOW_TRANSPORT", "auto")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    _offering(server, path="/elsewhere", boot_id="another", port=port)
    client = connect(server.address, PATIENCE_S)
    assert client.transport == "grpc"
    assert client.run_step(1, [], FOREVER) == []
    client.close()
    assert f"gRPC: the server is on another machine; port {port} of 127.0.0.1 cannot" in caplog.text
    monkeypatch.setenv("JFLOW_TRANSPORT", "tcp")
    with pytest.raises(errors.UnavailableError, match=r"JFLOW_TRANSPORT=tcp, .*cannot be reached"):
        connect(server.address, PATIENCE_S)


@kinds.on("tcp")
def test_an_address_that_does_not_answer_is_given_up_soon(server, monkeypatch, kind):
    """A firewall may drop attempts; a queue of connections that is full does the same."""
    monkeypatch.setenv("JFLOW_TRANSPORT", "auto")
    monkeypatch.setattr(attaching, "CONNECT_S", 0.1)
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    waiting = []
    for _ in range(3):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(full.getsockname())
        waiting.append(one)
    _offering(server, path="/elsewhere", boot_id="another", port=full.getsockname()[1])
    client = connect(server.address, PATIENCE_S)
    assert client.transport == "grpc"
    client.close()
    for one in (full, *waiting):
        one.close()


def test_a_server_without_tcp_is_an_error_for_a_caller_that_must_have_it(server, monkeypatch):
    monkeypatch.setenv("JFLOW_TRANSPORT", "tcp")
    with pytest.raises(errors.UnavailableError, match="the server takes none over TCP"):
        connect(server.address, PATIENCE_S)


@kinds.on("tcp")
def test_a_caller_that_must_have_a_unix_socket_takes_no_other_stream(server, monkeypatch, kind):
    monkeypatch.setenv("JFLOW_TRANSPORT", "unix")
    with pytest.raises(errors.UnavailableError, match="the server has no Unix socket"):
        connect(server.address, PATIENCE_S)


@kinds.on("tcp", also=("tls",))
def test_tensors_never_lie_in_segments_over_tcp_and_arrive_whole(client, kind):
    value = np.arange(2_000_003, dtype=np.float64)
    for _ in range(4):
        (got,) = client.run_step(1, [value], FOREVER)
        same(got, value)
    assert not client._channel._data._segments._sent._segments


# Addresses ----------------------------------------------------------------------------------------


def test_a_port_is_taken_at_all_addresses_of_a_server_and_at_no_others():
    *hosts, elsewhere = free_hosts(3)
    listening, port = ports.listen(hosts)
    assert [one.getsockname() for one in listening] == [(host, port) for host in hosts]
    with socket.socket() as other:
        assert other.connect_ex((elsewhere, port)) == errno.ECONNREFUSED
    for one in listening:
        one.close()


def test_a_port_that_is_taken_at_one_address_is_not_used(monkeypatch):
    hosts = free_hosts(2)
    taken = socket.create_server((hosts[1], 0))
    make, first = ports._listening, [taken.getsockname()[1]]
    # The system's first choice at the other address is the port that is taken.
    monkeypatch.setattr(
        ports,
        "_listening",
        lambda host, port: make(host, port or (first.pop() if first else 0)),
    )
    listening, port = ports.listen(hosts)
    assert port != taken.getsockname()[1]
    for one in (taken, *listening):
        one.close()


def test_an_address_of_another_machine_is_no_place_for_data_streams():
    with pytest.raises(errors.UnavailableError, match=r"over TCP at 192\.0\.2\.1:0"):
        ports.listen(["192.0.2.1"])


# What they are proven by --------------------------------------------------------------------------


@kinds.on("tcp", "tls")
@pytest.mark.parametrize("sent", [b"x" * 32, b"\x16\x03\x01" + b"x" * 100, b""])
def test_a_connection_without_a_proof_is_closed_within_the_time_for_it(
    server, monkeypatch, sent, kind
):
    monkeypatch.setattr("jflow.net.protocol.settings.HELLO_S", 0.2)
    with socket.create_connection(("127.0.0.1", listener_of(server)._place.port)) as one:
        one.settimeout(PATIENCE_S)
        one.sendall(sent)
        with suppress(ConnectionResetError):
            while one.recv(100):  # TLS says why
                pass


@kinds.on("tcp")
def test_silent_connections_do_not_keep_callers_out(server, monkeypatch, kind):
    monkeypatch.setattr("jflow.net.protocol.settings.MAX_UNAUTHENTICATED", 4)
    monkeypatch.setattr("jflow.net.protocol.settings.READ_S", 0.05)
    listener = listener_of(server)
    listener._unauthenticated = data_listener.UnauthenticatedStreams()
    silent = [socket.create_connection(("127.0.0.1", listener._place.port)) for _ in range(8)]
    client = connect(server.address, PATIENCE_S)
    assert client.transport == "tcp"
    assert client.run_step(1, [], FOREVER) == []
    client.close()
    for one in silent:
        one.close()


@kinds.on("tls")
def test_a_caller_with_the_certificate_of_another_one_does_not_take_its_offer(
    server, monkeypatch, certificates, kind
):
    """The offer of a client is known to a task of the cluster."""
    other = load_tls(Task("ps", 0), {"JFLOW_TLS_DIR": str(certificates)})
    made = GrpcTransport.__init__

    def of_other(self, *args):
        made(self, *args)
        self._dialler = replace(self._dialler, context=other.data_client_context())

    monkeypatch.setattr(GrpcTransport, "__init__", of_other)
    with pytest.raises(errors.UnavailableError, match="refused the data stream"):
        connect(server.address, PATIENCE_S)


@kinds.on("tls")
def test_a_data_stream_of_a_server_with_another_name_is_refused_by_its_caller(
    server, monkeypatch, certificates, kind
):
    """Something else of the cluster listens at the port."""
    tls = load_tls(Task("ps", 0), {"JFLOW_TLS_DIR": str(certificates)})
    listener_of(server)._context = tls.data_server_context()
    target = Target(server.address, task=TASK)
    with pytest.raises(errors.UnavailableError, match=r"not valid for 'worker-3\.jflow'"):
        connect(target, PATIENCE_S)


@kinds.on("tls")
@pytest.mark.parametrize("of", ["grpc", "old"])
def test_a_connection_of_another_protocol_or_version_of_tls_is_closed(
    server, certificates, kind, of
):
    context = load_tls(None, {"JFLOW_TLS_DIR": str(certificates)}).client_context()
    if of == "old":
        context.set_alpn_protocols(["jflow"])
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(("127.0.0.1", listener_of(server)._place.port)) as one:
        one.settimeout(PATIENCE_S)
        received = None
        with (
            suppress(ssl.SSLError, ConnectionResetError),
            context.wrap_socket(one, server_hostname="worker-3.jflow") as wrapped,
        ):
            received = wrapped.recv(100)
        assert received in (None, b"")


@kinds.on("tls")
def test_tasks_call_each_other_over_tls(server, host, certificates, kind):
    caller = Caller(
        Secret(TOKEN), WORKER.name, Target(server.address, task=TASK), Task("ps", 0), "127.0.0.1:2"
    )
    tls = load_tls(Task("ps", 0), {"JFLOW_TLS_DIR": str(certificates)})

    async def check():
        peer = Peer(GrpcTransport(tls, DataStreams.TCP), TASK, caller)
        info = await peer.connect(PATIENCE_S)
        (value,) = await peer.run_plans(info.incarnation, 1, 2, [np.arange(1_000_000)])
        same(value, np.arange(1_000_000))
        assert isinstance(peer._link._stream._stream._data._connection, TlsConnection)
        await peer.close()

    on_loop(check())


# Buffers ------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says whether a size was set")
@pytest.mark.parametrize("is_encrypted", [False, True])
def test_the_kernel_sizes_the_buffers_of_a_stream_over_tcp(is_encrypted):
    """Over a long distance a buffer of a fixed size bounds how much is on its way."""
    so_buf_lock = 72
    [listening], port = ports.listen(["127.0.0.1"])
    with listening, socket.create_connection(("127.0.0.1", port)) as near:
        far, _ = listening.accept()
        with far:
            for end in (near, far):
                if is_encrypted:
                    TlsConnection(end, ssl.create_default_context(), "worker-0.jflow")
                else:
                    SocketConnection(end)
                assert not end.getsockopt(socket.SOL_SOCKET, so_buf_lock)


# Cuts ---------------------------------------------------------------------------------------------


@kinds.on("tcp", also=("tls",))
@pytest.mark.parametrize("fault", ["cut", "hold"])
def test_a_network_that_cuts_the_data_stream_and_not_grpc_ends_the_session(
    server, host, monkeypatch, fault, kind
):
    monkeypatch.setenv("JFLOW_LIVENESS_S", "1.5")
    host.script["run"] = forever
    port = listener_of(server)._place.port
    with FaultProxy(f"127.0.0.1:{port}") as proxy:
        _offering(server, port=int(proxy.address.rpartition(":")[2]))
        client = connect(server.address, PATIENCE_S)
        call = client.start(1, [], FOREVER)
        eventually(lambda: host.started == 1)
        if fault == "cut":
            proxy.cut()
        else:
            proxy.to_server.hold(), proxy.to_client.hold()
        assert isinstance(call.exception(PATIENCE_S), errors.UnavailableError)
        eventually(host.sessions[0].closed.is_set)
        proxy.to_server.go_on(), proxy.to_client.go_on()
        again = connect(server.address, PATIENCE_S)
        assert again.transport == "tcp"
        again.close(), client.close()
