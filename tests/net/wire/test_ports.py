"""Another process at a server's port, which callers may reach: the server does not start."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jflow import errors
from jflow.net.wire import grpc_channels, ports
from tests.net.protocol.hosts import Host, on_loop, server_of
from tests.ports import free_hosts

OTHER = 12345 if os.getuid() == 0 else os.getuid()

# Holds a port at an address, as a user, until standard input ends.
LISTENER = """
import os, socket, sys
host, listens, user = sys.argv[1], sys.argv[2] == "True", int(sys.argv[3])
if user != os.getuid():
    os.setuid(user)
one = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
if ":" in host:
    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
one.bind((host, 0))
if listens:
    one.listen()
print(one.getsockname()[1], flush=True)
sys.stdin.read()
"""

needs_ipv6 = pytest.mark.skipif(
    6 not in ports._usable(), reason="this machine has no IPv6 addresses"
)


@contextmanager
def held(host: str, *, listens: bool = True, user: int = OTHER) -> Iterator[int]:
    """A process that has a port at an address; gives the port."""
    command = [sys.executable, "-c", LISTENER, host, str(listens), str(user)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.communicate("")


def listen(host: str, port: int) -> None:
    """Starts a server at an address, and stops it."""

    async def check() -> None:
        server = server_of(Host())
        try:
            assert await server.start([host], port) == port
        finally:
            await server.stop()

    on_loop(check())


@needs_ipv6
@pytest.mark.parametrize("other", ["::", "::1"])
@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_server_at_all_addresses_does_not_start_beside_a_listener_on_ipv6_only(
    host: str, other: str
) -> None:
    """gRPC is content with IPv4 then."""
    with held(other) as port:
        words = rf"user with the number {OTHER} listens at \[{other}\]:{port}.*another port"
        with pytest.raises(errors.UnknownError, match=words):
            listen(host, port)
    listen(host, port)  # the port is free again


@needs_ipv6
@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_nor_beside_a_process_that_may_listen_there_later(host: str) -> None:
    with (
        held("::", listens=False) as port,
        pytest.raises(
            errors.UnknownError, match=f":{port} cannot be bound.*another process may be"
        ),
    ):
        listen(host, port)
    listen(host, port)


def test_a_server_does_not_share_its_port_with_a_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should gRPC's own option against that not work."""
    options = {**dict(grpc_channels.server_options()), "grpc.so_reuseport": 1}
    monkeypatch.setattr(grpc_channels, "server_options", lambda: [*options.items()])
    monkeypatch.setattr(grpc_channels, "check_free", lambda *_: None)
    with held("127.0.0.1", user=os.getuid()) as port:
        words = f"user with the number {os.getuid()} listens at 127.0.0.1:{port}"
        with pytest.raises(errors.UnknownError, match=words):
            listen("127.0.0.1", port)


def test_a_port_in_use_says_which_process_has_it_and_what_to_do(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with held("127.0.0.1", user=os.getuid()) as port:
        words = rf"127.0.0.1:{port} cannot be bound: the process \d+ \(\w.*\) of .*; stop it"
        with pytest.raises(errors.UnknownError, match=words):
            listen("127.0.0.1", port)
    assert capfd.readouterr().err == ""  # gRPC would print a line of its own


def test_a_port_of_this_process_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mine:
        port = mine.getsockname()[1]
        with pytest.raises(errors.UnknownError, match=rf"of this process listens at .*:{port};"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "only root may listen at port 80; choose one from 1024 "),
        (errno.EADDRNOTAVAIL, "Cannot assign requested address; choose another address"),
        (errno.EADDRINUSE, "another process may be using the port; stop it"),
    ],
)
def test_an_address_that_cannot_be_bound_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(ports, "bound", refused)
    monkeypatch.setattr(ports, "_listeners", lambda _: iter(()))
    with pytest.raises(errors.UnknownError, match=f"127.0.0.1:80 cannot be bound: {words}"):
        ports.check_free("127.0.0.1", 80)


@pytest.mark.parametrize("other", ["127.0.0.2", pytest.param("::1", marks=needs_ipv6)])
def test_a_server_at_one_address_starts_beside_listeners_at_others(other: str) -> None:
    (host,) = free_hosts(1)
    with held(other) as port:
        listen(host, port)


@needs_ipv6
def test_where_the_system_does_not_show_its_sockets_servers_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ports, "_PROC", tmp_path)
    with held("::") as port:
        listen("0.0.0.0", port)
