"""Servers, clients and peers of earlier versions, and those of this version.

`handshakes_of_version_3.txt` has what commit be8797e4 sent: the first frame of a client and of a
peer, and all that a server answered to one of version 4. Version 11, of which
`handshakes_of_version_11.txt` and `calls_of_version_11.txt` are, as commit d4cb3531 spoke it, is
spoken as well. `tests/upgrade` has the same with processes of that commit.
"""

from __future__ import annotations

import asyncio
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from jflow.base.cluster import Target, Task
from jflow.base.deadline import FOREVER
from jflow.base.versions import OLDEST_VERSION, VERSION
from jflow.errors import (
    FailedPreconditionError,
    OpError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
)
from jflow.net.protocol import (
    MasterSession,
    OtherVersionError,
    Secret,
    WatchedCluster,
    WorkerService,
    WorkerSession,
)
from jflow.net.protocol.admission import enter, new_nonce
from jflow.net.protocol.handshake import (
    Caller,
    CallerHandshake,
    ServerHandshake,
    refusal_of_version,
)
from jflow.net.protocol.rpcs import MASTER, WORKER
from jflow.net.protocol.signatures import rpc_of, rpcs_of
from jflow.net.protocol.tokens import NO_USERS, TokenId
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.net.wire import connect, machine_id
from jflow.net.wire.grpc_stream import GrpcStream
from jflow.state.core import StateSaves
from jflow.state.watch import SessionWait, SessionWaits, StatusRequest, WaitStatus
from tests.net.protocol.example_calls import example_call
from tests.net.protocol.hosts import (
    INCARNATION,
    PATIENCE_S,
    PEER_METHOD,
    SESSION_METHOD,
    TASK,
    TOKEN,
    Host,
    eventually_async,
    met,
    on_loop,
    peer_at,
    raw_call,
    raw_server,
    serving,
)

HERE = Path(__file__).parent


def recorded(name: str) -> dict[str, bytes]:
    """The frames of a file, by what they are."""
    lines = (HERE / name).read_text().splitlines()
    return {
        what: bytes.fromhex(frame) for what, _, frame in (one.rpartition(": ") for one in lines)
    }


RECORDED = recorded("handshakes_of_version_3.txt")
BEFORE = recorded("handshakes_of_version_11.txt")
PREFIX = b"jflow\0" + VERSION.to_bytes(2, "little")


@pytest.mark.parametrize("method", ["/jflow.v1.Master/Session", "/jflow.v1.Worker/Peer"])
def test_a_caller_of_version_3_is_told_this_version_and_nothing_else(method: str) -> None:
    host = Host()

    async def check() -> None:
        async with serving(host) as address, raw_call(address, method) as call:
            await call.write(RECORDED[f"hello to {method}"])
            # That version names both versions, and says what to do, once it has read this prefix.
            assert await call.read() == PREFIX
            assert await call.read() is grpc.aio.EOF
            assert await call.code() is grpc.StatusCode.OK

    on_loop(check())
    assert host.sessions == []


class Version3Server:
    """Answers every stream as a server of version 3 does, and keeps what it was sent."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.ended = 0

    async def __call__(self, context: Any) -> None:
        self.received.append(await context.read())
        await context.write(RECORDED["answer to a hello of version 4"])
        try:
            while isinstance(frame := await context.read(), bytes):
                self.received.append(frame)
        finally:  # gRPC cancels what serves a call that its caller has cancelled
            self.ended += 1

    def check(self, error: FailedPreconditionError, named: str) -> None:
        """Checks the error, and that the caller sent its first frame only."""
        assert error.message == (
            f"{named} speaks version 3 of jflow's protocol and this end versions {OLDEST_VERSION} "
            f"and {VERSION}; install the same version of jflow on both, or upgrade them in steps "
            'of one version (docs/operating.md, "Upgrading a cluster")'
        )
        (hello,) = self.received
        assert hello.startswith(PREFIX)
        assert TOKEN.encode() not in hello


def test_a_client_refuses_a_server_of_version_3_by_name_and_sends_it_nothing_more() -> None:
    server = Version3Server()

    async def check() -> None:
        async with raw_server(server) as address:
            with pytest.raises(FailedPreconditionError) as caught:
                await asyncio.to_thread(connect, address, PATIENCE_S)
            await eventually_async(lambda: server.ended)
            server.check(caught.value, f"the server at {address}")

    on_loop(check())


def test_a_peer_refuses_a_server_of_version_3_by_name_and_sends_it_nothing_more() -> None:
    server = Version3Server()

    async def check() -> None:
        async with raw_server(server) as address, peer_at(address) as peer:
            with pytest.raises(FailedPreconditionError) as caught:
                await peer.connect(PATIENCE_S)
            await eventually_async(lambda: server.ended)
            server.check(caught.value, f"{TASK} at {address}")

    on_loop(check())


# The version before -------------------------------------------------------------------------------

SECRET = Secret("t" * 32)
MEANT = Target("127.0.0.1:7", "blue", Task("ps", 0), 77)
CALLERS = {
    MASTER.name: Caller(SECRET, MASTER.name, MEANT, version=11),
    WORKER.name: Caller(SECRET, WORKER.name, MEANT, Task("worker", 1), "127.0.0.1:8", 11),
}


@pytest.mark.parametrize("service", CALLERS)
def test_both_sides_of_a_handshake_of_version_11_are_those_that_were_recorded(service: str) -> None:
    hello, challenge, proof, reply = (
        BEFORE[f"{one} of {service}"] for one in ("hello", "challenge", "proof", "reply")
    )
    caller = CallerHandshake(CALLERS[service], bytes(range(32)))
    assert caller.first_frame("this boot:1") == hello
    assert caller.prove(challenge) == proof
    info = pb.Envelope.FromString(caller.opened(reply)).server_info
    assert info.task == str(MEANT.task)
    caller.check_version(info.newest_version)

    server = ServerHandshake(SECRET, NO_USERS, service, hello)
    assert (server.version, server.user_token) == (11, None)
    assert server.challenge(bytes(range(32, 64)), is_other=False) == challenge
    server.check(proof)
    assert server.seal(caller.opened(reply)) == reply


def test_calls_of_version_11_are_those_that_were_recorded() -> None:
    lines = (HERE / "calls_of_version_11.txt").read_text().splitlines()
    calls = [line.partition(": ") for line in lines]
    methods = {
        f"{role}'s {rpc.name}": method
        for role, service in (("master", MasterSession), ("worker", WorkerSession))
        for method, rpc in rpcs_of(service).items()
    }
    for name, _, frame in calls:
        envelope, _ = example_call(methods[name], 11)
        assert envelope.SerializeToString().hex() == frame, name
    assert {name for name, _, _ in calls} == {
        name for name, method in methods.items() if method.__remote__.since <= 11
    }


class Version11Server:
    """Answers as a server of version 11 does: a hello of another version by its own prefix only.

    Args:
      newest_version: what its proven introduction says; servers of version 11 say nothing, 0.
    """

    def __init__(self, service: str, newest_version: int = 0) -> None:
        self.hellos: list[bytes] = []
        self.calls: list[bytes] = []
        self._service = service
        self._info = pb.ServerInfo(
            task=str(TASK), incarnation=INCARNATION, newest_version=newest_version
        )
        self._info.cluster[str(TASK)] = "127.0.0.1:7"

    async def __call__(self, context: Any) -> None:
        hello = await context.read()
        self.hellos.append(hello)
        if not hello.startswith(PREFIX_11):
            await context.write(PREFIX_11)
            return
        caller = await met(context, self._service, hello)
        await caller.send(id=1, server_info=self._info)
        while (received := await caller.receive()) is not None:
            request, _ = received
            self.calls.append(request.method_call.arguments)
            await caller.send(id=request.id, method_result=pb.MethodResult(value=b"\x90"))


PREFIX_11 = BEFORE["answer to a hello of version 12"]
WAITS = SessionWaits((SessionWait(1, "/job:ps/task:0", WaitStatus("a", 1, 2.0, "queue")),))
REQUEST = StatusRequest(("sessions",))


def test_a_client_calls_a_server_of_version_11_in_its_version() -> None:
    server = Version11Server(MASTER.name)

    def use(address: str) -> None:
        with closing(connect(address, PATIENCE_S)) as client:
            assert client.call(WatchedCluster.inspect, REQUEST, [], 1.0, FOREVER) == []

    async def check() -> None:
        async with raw_server(server) as address:
            await asyncio.to_thread(use, address)

    on_loop(check())
    assert [one[: len(PREFIX)] for one in server.hellos] == [PREFIX, PREFIX_11]
    (arguments,) = server.calls
    assert b"kinds" in arguments
    assert b"version" not in arguments, "a task of version 11 refuses unknown fields"


def test_a_peer_calls_a_server_of_version_11_in_its_version_and_names_what_it_cannot() -> None:
    server = Version11Server(WORKER.name)

    async def check() -> None:
        async with raw_server(server) as address, peer_at(address) as peer:
            info = await peer.connect(PATIENCE_S)
            with pytest.raises(UnimplementedError) as caught:
                await peer.call(StateSaves.take, info.incarnation, "save", b"", 1.0, "@ann/")
            assert caught.value.message == (
                f"calling {TASK} at {address}: 'clients' of the call 'saves.take' came with "
                "version 12 of jflow's protocol, and the other end speaks version 11; upgrade it "
                '(docs/operating.md, "Upgrading a cluster")'
            )
            with suppress(OpError):  # the scripted reply is not one to this
                await peer.call(StateSaves.take, info.incarnation, "save", b"", 1.0)

    on_loop(check())
    assert [one[: len(PREFIX)] for one in server.hellos] == [PREFIX, PREFIX_11]
    assert len(server.calls) == 1, "of what cannot be said in version 11, nothing was sent"
    assert b"clients" not in server.calls[0]


def test_a_call_that_came_later_names_both_versions_and_is_not_served_either() -> None:
    rpc = replace(rpc_of(MasterSession.run_steps), since=12)
    with pytest.raises(UnimplementedError) as caught:
        rpc.in_version(11, "ps:0 at h:1")
    assert caught.value.message == (
        "the call 'run_steps' came with version 12 of jflow's protocol, and ps:0 at h:1 speaks "
        'version 11; upgrade it (docs/operating.md, "Upgrading a cluster")'
    )
    service = replace(MASTER, rpcs={**MASTER.rpcs, rpc.name: rpc})
    later = {name for name, one in MASTER.rpcs.items() if one.since == 12}
    assert later
    assert service.in_version(11).rpcs.keys() == MASTER.rpcs.keys() - {"run_steps", *later}
    assert service.in_version(12) is service


@pytest.mark.parametrize("service", CALLERS)
def test_a_caller_that_was_made_to_speak_version_11_notices_it(service: str) -> None:
    # Such as by something on the way that answers the first hello.
    server = Version11Server(service, newest_version=12)
    message = "speaks version 12 of jflow's protocol and has answered that it speaks version 11"

    async def check() -> None:
        async with raw_server(server) as address, peer_at(address) as peer:
            opening = (
                asyncio.to_thread(connect, address, PATIENCE_S)
                if service == MASTER.name
                else peer.connect(PATIENCE_S)
            )
            with pytest.raises(UnavailableError, match=message):
                await opening

    on_loop(check())


def test_a_caller_with_the_token_of_a_user_does_not_speak_version_11() -> None:
    ann = Secret(Secret("t" * 32).token_of(TokenId("ann", "0123456789abcdef")))
    caller = CallerHandshake(Caller(ann, MASTER.name, MEANT), bytes(32))
    caller.first_frame("here")
    with pytest.raises(FailedPreconditionError, match="no tokens of users") as caught:
        caller.prove(PREFIX_11)
    assert not isinstance(caught.value, OtherVersionError)
    # And a server of this version gives the rights of a user to no caller that does.
    hello = CallerHandshake(Caller(ann, MASTER.name, MEANT, version=11), bytes(32))
    with pytest.raises(UnauthenticatedError, match="in which there is none"):
        ServerHandshake(SECRET, NO_USERS, MASTER.name, hello.first_frame("here"))


@pytest.mark.parametrize("version", [10, 14])
def test_versions_that_are_not_adjacent_are_refused_by_name(version: int) -> None:
    other = b"jflow\0" + version.to_bytes(2, "little")
    caller = CallerHandshake(CALLERS[MASTER.name], bytes(32))
    caller.first_frame("here")
    with pytest.raises(FailedPreconditionError) as caught:
        caller.prove(other)
    assert not isinstance(caught.value, OtherVersionError)
    assert f"speaks version {version} of" in caught.value.message
    assert "this end versions 11 and 12" in caught.value.message
    assert refusal_of_version(other + b"\x0a") == PREFIX


@pytest.mark.parametrize("method", [SESSION_METHOD, PEER_METHOD])
def test_a_server_talks_in_version_11_to_a_caller_of_version_11(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find_waits() -> SessionWaits:
        return WAITS

    async def status(request: StatusRequest) -> Any:
        assert request.version == 11, "its answer goes to a caller of version 11"
        return np.zeros(3, np.uint8)

    class Watched(Host):
        def open_master_session(self, *args: Any) -> Any:
            session: Any = super().open_master_session(*args)
            session.find_waits, session.inspect = find_waits, status
            return session

    host = Watched()
    service = method.removeprefix("/")
    calls = {
        SESSION_METHOD: (MasterSession.find_waits, (), WAITS),
        PEER_METHOD: (WorkerService.inspect, (REQUEST,), None),
    }
    called, arguments, expected = calls[method]

    async def check() -> None:
        async with serving(host) as address, raw_call(address, method) as call:
            handshake = CallerHandshake(
                Caller(Secret(TOKEN), service, call.target, version=11), new_nonce()
            )
            # A caller of version 11 does not read which versions the server speaks beside it.
            monkeypatch.setattr(handshake, "check_version", lambda _: None)
            stream, info = await enter(GrpcStream(call, machine=machine_id()), handshake)
            assert info.task == TASK
            rpc = rpc_of(called).in_version(11, "it")
            envelope, tensors = rpc.envelope(*arguments)
            envelope.id = 2
            await stream.send(envelope, tensors)
            reply, values = await stream.receive()
            assert not reply.status.code, reply.status.message
            result = rpc.read(reply, values)
            assert expected is None or result == expected

    on_loop(check())
