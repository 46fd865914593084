"""Loopback addresses, which each machine has: a server on another one than the caller refuses."""

import re
from dataclasses import replace

import pytest

from jflow import errors
from jflow.base.cluster import ClusterSpec, Target, Task
from jflow.net.protocol import Secret, ServerLocation
from jflow.net.protocol.handshake import ANY_MACHINE, Caller, CallerHandshake, ServerHandshake
from jflow.net.protocol.identity import ServerIdentity
from jflow.net.protocol.rpcs import MASTER
from jflow.net.protocol.tokens import NO_USERS
from jflow.net.protocol.v1 import handshake_pb2 as pb
from jflow.net.wire import connect
from tests.net.protocol import hosts
from tests.net.protocol.hosts import (
    PATIENCE_S,
    TASK,
    TOKEN,
    Host,
    eventually,
    on_loop,
    peer_of,
    served,
)

HERE, THERE = "this boot:1", "this boot:2"
LOOPBACK = frozenset({"127.0.0.1", "::1", "::ffff:7f00:1", "localhost"})
LOCAL = ServerIdentity(
    Task("ps", 0),
    77,
    ClusterSpec({"ps": ["alias:7"]}),
    "",
    ServerLocation(LOOPBACK, machine=HERE, is_local=True),
)
EVERYWHERE = replace(
    LOCAL, location=ServerLocation(LOOPBACK | {"0.0.0.0", "::", "here"}, machine=HERE)
)
UNKNOWN = replace(LOCAL, location=ServerLocation(LOOPBACK, is_local=True))

SERVERS = {"local": LOCAL, "everywhere": EVERYWHERE, "unknown": UNKNOWN}


@pytest.mark.parametrize(
    ("server", "address", "machine"),
    [
        ("local", "127.0.0.1:7", HERE),
        ("local", "[::1]:7", HERE),
        ("local", "alias:7", HERE),
        ("local", "127.0.0.1:7", ANY_MACHINE),
        ("everywhere", "localhost:7", HERE),
        ("everywhere", "here:7", HERE),
        ("everywhere", "here:7", ""),
        ("everywhere", "alias:7", ""),
        ("unknown", "127.0.0.1:7", ""),
    ],
)
def test_a_server_is_meant_by_callers_of_its_machine_and_where_its_address_names_that(
    server, address, machine
):
    hello = pb.Hello(address=address, machine=machine)
    assert SERVERS[server].refusal(hello) is None


@pytest.mark.parametrize("machine", [THERE, ""])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]", "alias"])
def test_a_server_that_listens_on_its_machine_only_refuses_callers_of_another_one(host, machine):
    _check_refused(LOCAL, f"{host}:7", machine)


@pytest.mark.parametrize("machine", [THERE, ""])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:7f00:1]", "0.0.0.0", "[::]"])
def test_any_server_refuses_callers_that_mean_a_loopback_address_of_another_machine(host, machine):
    _check_refused(EVERYWHERE, f"{host}:7", machine)


def _check_refused(server, address, machine):
    error = server.refusal(pb.Hello(address=address, machine=machine))
    assert isinstance(error, errors.UnavailableError)
    said = re.escape(machine or "(not said)")
    assert re.search(rf"on machine {said}, got one on machine {HERE}; .*at=alias:7'", error.message)


def test_a_name_that_is_a_loopback_address_for_its_caller_alone_leads_to_no_other_machine():
    """The server has it beyond the loopback interface; what resolves it otherwise says so."""
    assert EVERYWHERE.refusal(pb.Hello(address="here:7", machine=THERE)) is not None


def test_where_one_end_does_not_know_its_machine_it_is_not_the_same_one():
    assert UNKNOWN.refusal(pb.Hello(address="127.0.0.1:7", machine=THERE)) is not None
    assert LOCAL.refusal(pb.Hello(address="127.0.0.1:7")) is not None


def _hello(target, machine):
    caller = CallerHandshake(Caller(Secret(TOKEN), MASTER.name, target), bytes(32))
    return ServerHandshake(Secret(TOKEN), NO_USERS, MASTER.name, caller.first_frame(machine)).hello


def test_a_caller_says_its_machine_unless_its_target_leads_through_a_tunnel():
    assert _hello(Target("a:1"), HERE).machine == HERE
    assert _hello(Target("a:1"), "").machine == ""
    assert _hello(Target("a:1", at="b:2"), HERE).machine == ANY_MACHINE
    assert _hello(Target("a:1", at="a:1"), HERE).machine == ANY_MACHINE, "a port that is passed on"


def test_the_machine_is_proven():
    """A relay that changes it has a server that proves something else than the caller asks."""
    caller = CallerHandshake(Caller(Secret(TOKEN), MASTER.name, Target("a:1")), bytes(32))
    hello = caller.first_frame(HERE)
    changed = ServerHandshake(
        Secret(TOKEN), NO_USERS, MASTER.name, hello.replace(b"boot:1", b"boot:2")
    )
    assert changed.hello.machine == THERE
    with pytest.raises(errors.UnauthenticatedError):
        caller.prove(changed.challenge(bytes(32), is_other=False))


def test_what_answers_before_it_was_asked_is_not_believed():
    caller = CallerHandshake(Caller(Secret(TOKEN), MASTER.name, Target("a:1")), bytes(32))
    other = CallerHandshake(Caller(Secret(TOKEN), MASTER.name, Target("a:1")), bytes(32))
    server = ServerHandshake(Secret(TOKEN), NO_USERS, MASTER.name, other.first_frame(HERE))
    with pytest.raises(errors.UnavailableError, match="does not answer as a jflow server does"):
        caller.prove(server.challenge(bytes(32), is_other=False))


@pytest.fixture
def elsewhere(monkeypatch):
    """A server at a loopback address which is on another machine: something passes calls on."""
    host = Host()
    with monkeypatch.context() as patch:
        patch.setattr(hosts, "machine_id", lambda: THERE)
        with served(host) as server:
            yield server
    assert host.calls == []


def test_no_session_is_opened_on_a_server_of_another_machine(elsewhere):
    with pytest.raises(errors.UnavailableError, match=f"got one on machine {THERE}; .*tunnel"):
        connect(elsewhere.address, PATIENCE_S)


def test_no_task_calls_a_server_of_another_machine(elsewhere):
    async def call():
        peer = peer_of(TASK, elsewhere.address)
        try:
            await peer.connect(PATIENCE_S)
        finally:
            await peer.close()

    with pytest.raises(errors.UnavailableError, match=f"got one on machine {THERE}"):
        on_loop(call())


def test_a_target_that_says_so_leads_to_another_machine(elsewhere):
    client = connect(f"{elsewhere.address}?at={elsewhere.address}", PATIENCE_S)
    eventually(lambda: client.is_open)
    client.close()
