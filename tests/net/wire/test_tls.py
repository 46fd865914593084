"""Certificates: which are loaded, which the two ends of a stream accept, and what errors say."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from jflow import errors
from jflow.base.cluster import Target, Task, certified_name, split_address
from jflow.base.roles import AccessRole
from jflow.net.protocol import MasterClient, Peer, Secret
from jflow.net.protocol.admission import enter, new_nonce
from jflow.net.protocol.handshake import Caller, CallerHandshake
from jflow.net.protocol.identity import certificate_refusal, certified_role
from jflow.net.protocol.rpcs import WORKER
from jflow.net.protocol.v1 import handshake_pb2 as pb
from jflow.net.wire import machine_id
from jflow.net.wire.grpc_channels import aio_channel, method_of
from jflow.net.wire.grpc_client import GrpcTransport
from jflow.net.wire.grpc_stream import GrpcStream
from jflow.net.wire.tls import Tls, load_tls
from jflow.testing import PATIENCE_S
from tests.certificates import make_certificates
from tests.net.protocol.hosts import TASK, TOKEN, Host, on_loop, serving

PS, WORKER_0 = Task("ps", 0), Task("worker", 0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("made") / "tls")


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those of another authority."""
    return make_certificates(tmp_path_factory.mktemp("foreign") / "tls")


@pytest.fixture
def own(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    copy = Path(shutil.copytree(made, tmp_path / "own"))
    copy.chmod(0o700)
    return copy


def expired(own: Path) -> Path:
    """The same authority with certificates that have expired."""
    return make_certificates(own, days=-1)


def load(directory: Path, task: Task | None) -> Tls:
    found = load_tls(task, {"JFLOW_TLS_DIR": str(directory)})
    assert found is not None
    return found


def unchecked(directory: Path, task: Task | None) -> Tls:
    """What a process would use that does not check its own certificates."""
    authority = directory / "ca.crt"
    identity = directory / certified_name(task).replace(".jflow", ".pem")
    return Tls(authority.read_bytes(), identity.read_bytes(), str(authority), str(identity))


def test_without_the_variable_there_are_no_certificates() -> None:
    assert load_tls(PS, {}) is None


def test_an_empty_variable_does_not_mean_that_nothing_is_encrypted() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"is set, but empty.*unset it"):
        load_tls(PS, {"JFLOW_TLS_DIR": ""})


@pytest.mark.parametrize("task", [PS, WORKER_0, None])
def test_what_was_made_is_loaded_and_keys_are_not_shown(made: Path, task: Task | None) -> None:
    tls = load(made, task)
    assert b"PRIVATE KEY" in tls.identity
    assert "PRIVATE" not in repr(tls)


@pytest.mark.parametrize("missing", ["ca.crt", "ps-0.pem"])
def test_a_file_that_is_missing_is_named(own: Path, missing: str) -> None:
    (own / missing).unlink()
    with pytest.raises(errors.NotFoundError, match=f"{own / missing}.*/job:ps/task:0.*certs init"):
        load(own, PS)


@pytest.mark.parametrize(("name", "mode"), [(".", 0o750), ("ps-0.pem", 0o640)])
def test_a_key_that_others_may_read_is_refused_with_its_repair(
    own: Path, name: str, mode: int
) -> None:
    (own / name).chmod(mode)
    with pytest.raises(errors.PermissionDeniedError, match=f"chmod [67]00 {own / name}"):
        load(own, PS)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o664])
def test_an_authority_that_others_may_replace_is_refused_with_its_repair(
    own: Path, tmp_path: Path, mode: int
) -> None:
    """As behind a link: the directory itself keeps others out."""
    elsewhere = tmp_path / "ca.crt"
    (own / "ca.crt").rename(elsewhere)
    (own / "ca.crt").symlink_to(elsewhere)
    elsewhere.chmod(0o644)
    load(own, PS)
    elsewhere.chmod(mode)
    with pytest.raises(errors.PermissionDeniedError, match=f"chmod 600 {own / 'ca.crt'}"):
        load(own, PS)


@pytest.mark.skipif(os.getuid() != 0, reason="only the superuser can give files to another user")
@pytest.mark.parametrize("name", ["ca.crt", "ps-0.pem"])
def test_a_file_of_another_user_is_refused(own: Path, name: str) -> None:
    os.chown(own / name, 12345, -1)
    with pytest.raises(errors.PermissionDeniedError, match=f"{name} belongs to .* 12345"):
        load(own, PS)


@pytest.mark.parametrize("name", ["ca.crt", "ps-0.pem"])
def test_a_link_to_where_others_may_replace_the_file_is_refused(
    own: Path, tmp_path: Path, name: str
) -> None:
    loose = tmp_path / "loose"
    (loose / "inner").mkdir(parents=True)
    (own / name).rename(loose / "inner" / name)
    (own / name).symlink_to(loose / "inner" / name)
    load(own, PS)
    loose.chmod(0o770)
    with pytest.raises(errors.PermissionDeniedError, match=f"chmod go-w {loose}`"):
        load(own, PS)


def test_directories_that_lead_to_the_certificates_are_checked(own: Path) -> None:
    own.parent.chmod(0o770)
    with pytest.raises(errors.PermissionDeniedError, match=f"chmod go-w {own.parent}`"):
        load(own, PS)


def test_a_key_of_another_user_is_refused(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jflow.net.wire.tls.os.geteuid", lambda: own.stat().st_uid + 1)
    with pytest.raises(errors.PermissionDeniedError, match="another user may know"):
        load(own, PS)


def test_a_certificate_that_has_expired_is_refused_at_the_start(own: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"ps-0\.pem .* has expired; make new"):
        load(expired(own), PS)


def test_a_certificate_of_another_authority_is_refused_at_the_start(
    own: Path, foreign: Path
) -> None:
    shutil.copy(foreign / "ca.crt", own)
    with pytest.raises(errors.InvalidArgumentError, match="another authority has signed it"):
        load(own, PS)


def test_a_certificate_of_another_task_is_refused_at_the_start(own: Path) -> None:
    shutil.copy(own / "worker-0.pem", own / "ps-0.pem")
    message = r"expected the name ps-0\.jflow, got worker-0\.jflow"
    with pytest.raises(errors.InvalidArgumentError, match=message):
        load(own, PS)


def test_a_key_that_is_not_that_of_the_certificate_is_refused(own: Path) -> None:
    path, end = own / "ps-0.pem", "-----END PRIVATE KEY-----\n"
    key = (own / "worker-0.pem").read_text().partition(end)[0]
    path.write_text(key + end + path.read_text().partition(end)[2])
    with pytest.raises(errors.InvalidArgumentError, match=r"ps-0\.pem must have a private key and"):
        load(own, PS)


@contextmanager
def server(tls: Tls | None, port: int = 0) -> Iterator[tuple[Host, str]]:
    """A server; gives its host, and its address."""
    host = Host()
    context = serving(host, port, tls)
    address = on_loop(context.__aenter__())
    try:
        yield host, address
    finally:
        on_loop(context.__aexit__(None, None, None))


def session(tls: Tls | None, address: str, task: Task | None = None) -> None:
    """Opens and closes a client's session."""
    target = Target(address, task=task)
    MasterClient(GrpcTransport(tls), Secret(TOKEN), target, PATIENCE_S).close()


def connection(tls: Tls | None, address: str, task: Task = TASK) -> None:
    """Opens and closes a server's connection to a task."""

    async def connect() -> None:
        target = Target(address, task=task)
        caller = Caller(Secret(TOKEN), WORKER.name, target, PS, "127.0.0.1:2")
        peer = Peer(GrpcTransport(tls), task, caller)
        try:
            await peer.connect(PATIENCE_S)
        finally:
            await peer.close()

    on_loop(connect())


@pytest.mark.parametrize("task", [None, TASK])
def test_a_client_and_a_server_with_certificates_meet(made: Path, task: Task | None) -> None:
    with server(load(made, TASK)) as (host, address):
        session(load(made, None), address, task)
        assert len(host.sessions) == 1


def test_servers_with_certificates_meet(made: Path) -> None:
    with server(load(made, TASK)) as (host, address):
        connection(load(made, PS), address)
        assert len(host.sessions) == 1


@contextmanager
def relay(address: str) -> Iterator[tuple[str, bytearray]]:
    """A relay of one connection; gives its address, and the bytes that pass to the server."""
    seen = bytearray()
    host, port = split_address(address)

    def pump(source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        with suppress(OSError):
            while passing := source.recv(1 << 16):
                kept.extend(passing)
                target.sendall(passing)

    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection((host, port)) as behind,
        ThreadPoolExecutor(2) as threads,
    ):

        def accept() -> None:
            connection, _ = listener.accept()
            with connection:
                threads.submit(pump, behind, connection, bytearray())
                pump(connection, behind, seen)
                behind.shutdown(socket.SHUT_RDWR)

        threads.submit(accept)
        yield f"127.0.0.1:{listener.getsockname()[1]}", seen


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_what_passes_cannot_be_read_on_its_way(made: Path, is_encrypted: bool) -> None:
    """The name of the cluster, which the handshake sends as it is; through a tunnel."""
    task, client = (load(made, TASK), load(made, None)) if is_encrypted else (None, None)
    with server(task) as (host, address), relay(address) as (on_the_way, seen):
        target = Target(on_the_way, "the red cluster", at=address)
        MasterClient(GrpcTransport(client), Secret(TOKEN), target, PATIENCE_S).close()
        assert len(host.sessions) == 1
    assert (b"the red cluster" in seen) is not is_encrypted


def refused(match: str) -> pytest.RaisesExc[errors.UnauthenticatedError]:
    return pytest.raises(errors.UnauthenticatedError, match=match)


def test_a_server_of_another_authority_is_refused_by_name(made: Path, foreign: Path) -> None:
    words = r"at 127.0.0.1:\d+ has a certificate that was refused: .*issuer.*ca.crt has signed"
    with server(load(foreign, TASK)) as (host, address):
        with refused(words):
            session(load(made, None), address)
        with refused(f"{TASK} {words}"):
            connection(load(made, PS), address)
    assert host.sessions == []


def test_a_server_whose_certificate_has_expired_is_refused_by_name(own: Path, made: Path) -> None:
    with server(unchecked(expired(own), TASK)) as (host, address):
        with refused("has a certificate that was refused: certificate has expired"):
            session(load(made, None), address)
        with refused("certificate has expired"):
            connection(load(made, PS), address)
    assert host.sessions == []


def test_a_server_with_the_certificate_of_another_task_is_refused_by_name(made: Path) -> None:
    with server(load(made, WORKER_0)) as (host, address):
        with refused(r"not valid for 'worker-3\.jflow'"):
            session(load(made, None), address, TASK)
        with refused(r"not valid for 'worker-3\.jflow'"):
            connection(load(made, PS), address)
    assert host.sessions == []


def test_a_server_with_the_certificate_of_clients_is_refused(made: Path) -> None:
    with server(unchecked(made, None)) as (host, address), refused("has a certificate that was"):
        session(load(made, None), address)
    assert host.sessions == []


@pytest.mark.parametrize("kind", ["expired", "foreign"])
def test_a_caller_whose_certificate_is_not_valid_is_told_so(
    made: Path, own: Path, foreign: Path, kind: str
) -> None:
    if kind == "expired":
        expired(own)
    else:
        for name in ("client.pem", "ps-0.pem"):
            shutil.copy(foreign / name, own)
    with server(load(made, TASK)) as (host, address):
        with refused(r"refused the certificate in .*client\.pem: it has expired, or"):
            session(unchecked(own, None), address)
        with refused(r"refused the certificate in .*ps-0\.pem: it has expired, or"):
            connection(unchecked(own, PS), address)
    assert host.sessions == []


def test_a_server_without_certificates_is_refused_by_callers_that_have_them(made: Path) -> None:
    words = "does not speak TLS .*, and this end encrypts its streams.*JFLOW_TLS_DIR"
    with server(None) as (host, address):
        with refused(f"the server at {address} {words}"):
            session(load(made, None), address)
        with refused(f"{TASK} at {address} {words}"):
            connection(load(made, PS), address)
    assert host.sessions == []


def test_a_caller_without_certificates_is_told_that_the_server_has_them(made: Path) -> None:
    words = "encrypts its streams, and this end does not.*JFLOW_TLS_DIR"
    with server(load(made, TASK)) as (host, address):
        with refused(f"the server at {address} {words}"):
            session(None, address)
        with refused(f"{TASK} at {address} {words}"):
            connection(None, address)
    assert host.sessions == []


@pytest.mark.parametrize("is_peer", [False, True])
def test_a_server_that_starts_later_is_told_apart_as_well(made: Path, is_peer: bool) -> None:
    """gRPC has been refused by then, and says no more."""
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    address = f"127.0.0.1:{port}"
    with ThreadPoolExecutor(1) as threads:
        calling = threads.submit(connection if is_peer else session, None, address)
        refuse_one(port)
        with server(load(made, TASK), port), refused("encrypts its streams, and this end does"):
            calling.result()


def refuse_one(port: int) -> None:
    """Waits for a connection to a port and closes it."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        listener.settimeout(PATIENCE_S)
        listener.accept()[0].close()


@pytest.mark.parametrize("certified", [None, WORKER_0])
@pytest.mark.parametrize("claimed", [PS, None])
def test_calls_between_servers_need_the_certificate_of_the_caller(
    made: Path, certified: Task | None, claimed: Task | None
) -> None:
    """Also of a caller that has the token, and proves what a server proves."""
    with server(load(made, TASK)) as (host, address), refused("has the wrong certificate"):
        on_loop(call_as(claimed, address, load(made, certified)))
    assert host.sessions == []


@pytest.mark.parametrize("kind", ["UniformResourceIdentifier", "RFC822Name"])
def test_a_name_of_another_kind_is_not_that_of_a_task(made: Path, own: Path, kind: str) -> None:
    """Authorities of other tools may let users choose those, and gRPC lists them together."""
    x509 = pytest.importorskip("cryptography.x509")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(x509, "DNSName", getattr(x509, kind))
        make_certificates(own)
    with server(load(made, TASK)) as (host, address), refused("got no name"):
        on_loop(call_as(PS, address, unchecked(own, PS)))
    assert host.sessions == []


def test_the_dns_name_of_a_task_is_enough(made: Path) -> None:
    with server(load(made, TASK)) as (host, address):
        on_loop(call_as(PS, address, load(made, PS)))
        assert len(host.sessions) == 1


async def call_as(claimed: Task | None, address: str, tls: Tls) -> None:
    """Calls a server as a task."""
    target = Target(address, task=TASK)
    caller = Caller(Secret(TOKEN), WORKER.name, target, claimed, "127.0.0.1:2")
    handshake = CallerHandshake(caller, new_nonce())
    async with aio_channel(address, tls, certified_name(TASK)) as channel:
        call = channel.stream_stream(method_of(WORKER.name))()
        await enter(GrpcStream(call, machine=machine_id()), handshake)


def test_a_task_may_open_sessions_as_clients_do(made: Path) -> None:
    with server(load(made, TASK)) as (host, address):
        session(load(made, WORKER_0), address)
        assert len(host.sessions) == 1


@pytest.mark.parametrize(
    ("names", "role"),
    [
        (None, AccessRole.CLUSTER),
        ({"client.jflow"}, AccessRole.CLUSTER),
        ({"worker-0.jflow", "localhost"}, AccessRole.CLUSTER),
        ({"client.jflow", "read.client.jflow"}, AccessRole.READ),
        ({"client.jflow", "OPERATE.client.jflow", "use.client.jflow"}, AccessRole.USE),
        ({"client.jflow", "all.client.jflow"}, None),
        ({"client.jflow", "*.client.jflow"}, None),
        ({"client.jflow", "cluster.client.jflow"}, None),
        ({"worker-0.jflow", "read.client.jflow"}, AccessRole.READ),
    ],
)
def test_names_in_a_certificate_say_the_highest_role(names, role) -> None:
    hello = pb.Hello(caller=str(WORKER_0))
    found = names and frozenset(names)
    if role is None:
        with pytest.raises(ValueError, match="there is no role"):
            certified_role(found)
    else:
        assert certified_role(found) == role
    refusal = certificate_refusal(found, hello, is_of_servers=False)
    assert (refusal is None) == (role is not None)
    is_task = found is None or found == {"worker-0.jflow", "localhost"}
    assert (certificate_refusal(found, hello, is_of_servers=True) is None) == is_task
