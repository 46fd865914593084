"""The sockets of data streams: which processes may attach one, and what is left behind."""

import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psutil
import pytest

from jflow.base.deadline import FOREVER, Deadline
from jflow.base.deadline.clock import boot_id
from jflow.net.protocol.frame import Assembler, encode_parts
from jflow.net.protocol.offers import DataOffer
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.net.wire import attaching, connect, data_listener
from jflow.net.wire.attaching import (
    Dialler,
    UnattachedError,
    receive_all,
    run_in_thread,
    run_on_loop,
)
from jflow.net.wire.data_streams import DataStreams
from jflow.net.wire.unix_sockets import (
    is_of_this_user,
    listen,
    remove_stale,
    socket_directory,
)
from tests.net.protocol.hosts import (
    PATIENCE_S,
    RawClient,
    cut_data,
    eventually,
    eventually_async,
    on_loop,
    raw_call,
    served,
)
from tests.net.wire import kinds

pytestmark = pytest.mark.usefixtures("own_sockets")


DIALLER = Dialler(DataStreams.WHERE_POSSIBLE, addresses=["127.0.0.1"])


def _attached(offer):
    """The connection of an offer. Raises UnattachedError."""
    return run_in_thread(DIALLER.attaching(offer), Deadline(PATIENCE_S))


def _sockets():
    return sorted(socket_directory().glob("*.sock"))


@pytest.mark.parametrize("umask", [0o000, 0o002])
def test_all_directories_above_sockets_are_of_the_user_alone(tmp_path, monkeypatch, umask):
    monkeypatch.setenv("HOME", str(tmp_path))
    before = os.umask(umask)
    try:
        made = socket_directory({})
    finally:
        os.umask(before)
    modes = [one.stat().st_mode & 0o777 for one in (made, made.parent, made.parent.parent)]
    assert made.parent.parent == tmp_path / ".jflow"
    assert modes == [0o700, 0o700, 0o700]


# Which processes may attach one -------------------------------------------------------------------


@contextmanager
def _offered(address):
    """An offer for a session of its own, which stays open while the block lasts."""
    is_over = threading.Event()
    offers = []

    async def hold():
        async with raw_call(address) as call:
            offers.append((await RawClient(call).handshake()).data_offer)
            await eventually_async(is_over.is_set)

    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(on_loop, hold())
        try:
            eventually(lambda: offers or held.done())
            yield offers[0]
        finally:
            is_over.set()
            held.result(PATIENCE_S)


def test_an_offer_is_taken_once_and_another_attempt_does_no_harm(server, host):
    with _offered(server.address) as offer:
        first = _attached(offer)
        for _ in range(2):
            with pytest.raises(UnattachedError, match="refused"):
                _attached(offer)
        message = pb.Envelope(id=5, run_step=pb.RunStep(handle=1)).SerializeToString()
        (parts,) = encode_parts(1, message, [])
        frame = b"".join(parts)
        first.send([len(frame).to_bytes(4, "little") + frame])
        head = run_in_thread(receive_all(first, 4), Deadline(PATIENCE_S))
        answer = run_in_thread(
            receive_all(first, int.from_bytes(head, "little")), Deadline(PATIENCE_S)
        )
        assert Assembler().feed(answer).control
        first.close()


@pytest.mark.parametrize("proof", [b"x" * 32, b"x" * 31, b""])
def test_a_connection_without_a_proof_is_closed_and_sees_nothing(server, monkeypatch, proof):
    monkeypatch.setattr("jflow.net.protocol.settings.HELLO_S", 0.2)
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(PATIENCE_S)
        one.connect(str(_sockets()[0]))
        one.sendall(proof)
        assert one.recv(100) == b""


def test_a_process_that_took_the_path_gets_neither_the_nonce_nor_a_call(server, host):
    """The client goes on over gRPC, with the same session."""
    (path,) = _sockets()
    path.unlink()
    got = []
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind(str(path))
        squatter.listen()

        def squat():
            connection, _ = squatter.accept()
            with connection:
                got.append(connection.recv(1 << 16))
                connection.sendall(b"y" * 32)
                got.append(connection.recv(1 << 16))

        with ThreadPoolExecutor(1) as pool:
            squatted = pool.submit(squat)
            client = connect(server.address, PATIENCE_S)
            squatted.result(PATIENCE_S)
        assert client.transport == "grpc"
        assert client.run_step(1, [], FOREVER) == []
        client.close()
    proof, rest = got
    assert len(proof) == 32
    assert rest == b""


def test_a_socket_of_another_user_is_not_used_by_either_end(server, monkeypatch):
    for end in (attaching, data_listener):
        with monkeypatch.context() as patch:
            patch.setattr(end, "is_of_this_user", lambda _: False)
            client = connect(server.address, PATIENCE_S)
            assert client.transport == "grpc"
            assert client.run_step(1, [], FOREVER) == []
            client.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can become another user")
def test_the_kernel_says_which_user_has_connected(tmp_path):
    listening, path = listen(tmp_path)
    listening.setblocking(True)
    code = "import os, socket, sys; s = socket.socket(socket.AF_UNIX);"
    os.chmod(path, 0o666)
    os.chmod(tmp_path, 0o755)
    for switch, expected in (("", True), ("os.seteuid(65534);", False)):
        # By its working directory, because the other user may not pass the directories above.
        script = f"{code}os.chdir({str(tmp_path)!r});{switch}s.connect({os.path.basename(path)!r})"
        with subprocess.Popen([sys.executable, "-c", script + ";s.recv(1)"]) as other:
            connected, _ = listening.accept()
            assert is_of_this_user(connected) is expected
            connected.close()
            assert other.wait(PATIENCE_S) == 0
    listening.close()


def test_sockets_and_their_directory_are_the_user_s_alone(server):
    (path,) = _sockets()
    assert path.stat().st_mode & 0o777 == 0o600
    for directory in (path.parent, path.parent.parent):
        assert directory.stat().st_mode & 0o777 == 0o700


# What is left behind ------------------------------------------------------------------------------


def test_a_server_that_stops_removes_its_socket(host):
    with served(host):
        assert len(_sockets()) == 1
    assert _sockets() == []


def test_a_server_removes_the_sockets_of_killed_processes_and_no_others(server, host):
    (live,) = _sockets()
    ended = subprocess.Popen(["true"])
    ended.wait()
    killed = live.parent / f"{ended.pid}-0123.sock"
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(killed))
    own, path = listen(live.parent)  # of a process that lives, and does not accept yet
    other = live.parent / "not-a-socket.txt"
    other.write_text("")
    assert killed.exists()
    remove_stale(live.parent)
    assert not killed.exists()
    assert live.exists()
    assert os.path.exists(path)
    own.close()
    assert other.exists()


def test_a_path_at_which_nothing_listens_any_more_is_no_obstacle(server):
    _sockets()[0].unlink()
    client = connect(server.address, PATIENCE_S)
    assert client.transport == "grpc"
    assert client.run_step(1, [], FOREVER) == []
    client.close()


def test_an_offer_of_a_path_that_is_not_there_is_an_error_in_words():
    offer = DataOffer("/nonexistent/socket", boot_id(), b"n" * 32)
    with pytest.raises(UnattachedError, match="cannot be reached"):
        _attached(offer)
    with pytest.raises(UnattachedError, match="cannot be reached"):
        on_loop(run_on_loop(DIALLER.attaching(offer)))


def _n_files():
    return psutil.Process().num_fds()


@kinds.on("unix", also=("tcp", "tls"))
@pytest.mark.parametrize("n", [20, pytest.param(1000, marks=pytest.mark.long)])
def test_sessions_leave_no_files_open(server, host, kind, n):
    connect(server.address, PATIENCE_S).close()  # what is opened once
    eventually(host.sessions[-1].closed.is_set)
    before = _n_files()
    for i in range(n):
        client = connect(server.address, PATIENCE_S)
        assert client.transport == kinds.used(kind)
        client.start(1, [], FOREVER).result(PATIENCE_S)
        if i % 2:
            cut_data(client)
        client.close()
    eventually(lambda: all(session.closed.is_set() for session in host.sessions))
    eventually(lambda: _n_files() <= before)
    assert len(_sockets()) == (kind == "unix")
