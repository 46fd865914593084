"""What a machine is, and a relay between two that have one loopback address and one token."""

import asyncio
import subprocess
import sys
from contextlib import AsyncExitStack

import pytest

from jflow.base.deadline import clock
from jflow.net.wire import file_system_id, machine, machine_id
from jflow.net.wire.machine import machine_at
from jflow.net.wire.names import looked_up
from tests.net.protocol.hosts import PATIENCE_S, TOKEN, Host, on_loop, serving

NETWORK_OF_ITS_OWN = ["unshare", "-Urn"]
NUMBER = ["stat", "--dereference", "--format=%i", "/proc/self/ns/net"]


@pytest.fixture
def other_network():
    """The words before a command that give it a network of its own."""
    try:
        subprocess.run([*NETWORK_OF_ITS_OWN, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"this machine permits no network namespaces: {error}")
    return NETWORK_OF_ITS_OWN


def _printed(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_processes_are_on_one_machine_if_they_have_one_network(other_network):
    kernel, _, network = machine_id().partition(":")
    assert len(kernel) == 36
    assert _printed(*NUMBER) == network, "which other processes have, too"
    assert _printed(*other_network, *NUMBER) != network


def test_processes_see_one_file_system_if_they_have_its_mounts_and_its_root(other_network):
    program = "from jflow.net.wire.machine import file_system_id; print(file_system_id())"
    command = [sys.executable, "-c", program]
    assert _printed(*command) == file_system_id() != ""
    assert _printed("unshare", "-Urm", *command) != file_system_id(), "as a container has"
    assert _printed(*other_network, *command) == file_system_id(), "whose files are the same"


@pytest.mark.parametrize("missing", [(clock, "_BOOT_ID"), (machine, "_MOUNTS")])
def test_where_there_is_no_proc_the_file_system_is_not_known(monkeypatch, tmp_path, missing):
    monkeypatch.setattr(*missing, tmp_path / "missing")
    clock.boot_id.cache_clear()
    assert file_system_id() == ""
    monkeypatch.undo()
    clock.boot_id.cache_clear()


@pytest.mark.parametrize("missing", [(clock, "_BOOT_ID"), (machine, "_NETWORK")])
def test_where_there_is_no_proc_the_machine_is_not_known(monkeypatch, tmp_path, missing):
    monkeypatch.setattr(*missing, tmp_path / "missing")
    clock.boot_id.cache_clear()
    assert machine_id() == ""
    monkeypatch.undo()
    clock.boot_id.cache_clear()
    assert machine_id()


@pytest.mark.parametrize(
    ("address", "is_here"),
    [
        ("127.0.0.1:80", True),
        ("127.8.9.10:80", True),
        ("localhost:80", True),
        ("[::1]:80", True),
        ("[::ffff:127.0.0.1]:80", True),
        ("0.0.0.0:80", True),
        ("[::]:80", True),
        ("127.1:80", True),  # which only a resolver knows
        ("10.0.0.7:80", False),
        ("[fe80::1%lo]:80", False),
        ("[::ffff:10.0.0.7]:80", False),
    ],
)
def test_a_server_at_a_loopback_address_is_on_the_machine_of_its_caller(address, is_here):
    assert machine_at(looked_up(address).result(PATIENCE_S)) == (machine_id() if is_here else "")


def test_a_name_counts_as_all_of_its_addresses(monkeypatch):
    found = [(None, None, None, "", (host, 80)) for host in ("10.0.0.7", "127.0.1.1")]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: found)
    addresses = looked_up("here:80").result(PATIENCE_S)
    assert addresses == ("10.0.0.7", "127.0.1.1")
    assert machine_at(addresses) == machine_id()


def test_a_relay_at_a_server_s_loopback_address_on_another_machine_gets_no_session(
    other_network, tmp_path, monkeypatch
):
    """As where users share a home directory, with the token in it, and so a port is one of each."""
    monkeypatch.setenv("JFLOW_TOKEN", TOKEN)
    host, path = Host(), str(tmp_path / "relay")

    async def start(stack):
        address = await stack.enter_async_context(serving(host))
        port = int(address.rpartition(":")[2])
        pass_on = await asyncio.start_unix_server(lambda *near: _pass_on(port, *near), path)
        stack.callback(pass_on.close)
        return port

    stack = AsyncExitStack()
    try:
        port = on_loop(start(stack))
        command = [sys.executable, "-m", "tests.net.wire.elsewhere", str(port), path]
        plain, through_a_tunnel = _printed(*other_network, *command).splitlines()
    finally:
        on_loop(stack.aclose())
    assert f"got one on machine {machine_id()}" in plain
    assert through_a_tunnel == "admitted", "so the relay works"
    assert len(host.sessions) == 1


async def _pass_on(port, reader, writer):
    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)

    async def copy(source, sink):
        while found := await source.read(1 << 16):
            sink.write(found)
            await sink.drain()
        sink.close()

    await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer), return_exceptions=True)
