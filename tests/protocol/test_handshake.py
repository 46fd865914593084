"""The handshake: what either end believes, and what is refused before anything else is read."""

import asyncio
import hmac
import re
from contextlib import AsyncExitStack, suppress
from dataclasses import replace

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow import errors
from jflow.cluster import ClusterSpec, Target, Task
from jflow.protocol import Secret, settings
from jflow.protocol.admission import new_nonce
from jflow.protocol.frame import encode
from jflow.protocol.handshake import (
    MAC_BYTES,
    MAX_BYTES,
    VERSION,
    CallerHandshake,
    ServerHandshake,
    version_of,
)
from jflow.protocol.identity import ServerIdentity
from jflow.protocol.rpcs import MASTER, WORKER
from jflow.protocol.transport import BrokenStreamError
from jflow.protocol.v1 import handshake_pb2 as pb_handshake
from jflow.protocol.v1 import service_pb2 as pb
from jflow.wire import connect
from tests.protocol.hosts import (
    INCARNATION,
    PATIENCE_S,
    PEER_METHOD,
    TASK,
    TOKEN,
    Host,
    RawClient,
    both_methods,
    forever,
    on_loop,
    peer_of,
    raw_call,
    raw_server,
    served,
    serving,
)

TARGET = Target("127.0.0.1:7", "blue", Task("ps", 0), 77)
ONE, TWO = bytes(range(32)), bytes(range(32, 64))
OTHER_VERSION = b"jflow\0" + (VERSION + 1).to_bytes(2, "little")


def _caller(token=TOKEN, service=MASTER.name, target=TARGET, nonce=ONE, **caller):
    return CallerHandshake(Secret(token), service, target, nonce, **caller)


def _server(hello, token=TOKEN, service=MASTER.name):
    return ServerHandshake(Secret(token), service, hello)


# The state machines -------------------------------------------------------------------------------

names = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40)
nonces = st.binary(min_size=32, max_size=32)
targets = st.builds(
    Target,
    names,
    names,
    st.none() | st.builds(Task, st.just("ps"), st.integers(0, 99)),
    st.integers(0, 2**64 - 1),
)


@given(targets, nonces, nonces, st.sampled_from([MASTER.name, WORKER.name]))
def test_ends_with_one_token_believe_each_other_and_the_server_learns_which_one_is_meant(
    target, one, two, service
):
    caller = _caller(service=service, target=target, nonce=one, task=TASK, address="a:1")
    server = _server(caller.hello, service=service)
    server.check(caller.prove(server.challenge(two, is_other=False)))
    caller.check_meant()
    hello = server.hello
    assert (hello.cluster, hello.address) == (target.cluster, target.address)
    assert (hello.task, hello.incarnation) == (str(target.task or ""), target.incarnation)
    assert (hello.caller, hello.caller_address) == (str(TASK), "a:1")


@given(st.data())
def test_no_frame_can_be_altered_on_the_way(data):
    """Neither end goes on if a byte of any frame was changed, added or lost."""

    def altered(frame):
        at = data.draw(st.integers(0, len(frame) - 1))
        how = data.draw(st.sampled_from(["change", "drop", "add"]))
        byte = data.draw(st.integers(1, 255))
        if how == "change":
            return frame[:at] + bytes([frame[at] ^ byte]) + frame[at + 1 :]
        if how == "drop":
            return frame[:at] + frame[at + 1 :]
        return frame[:at] + bytes([byte]) + frame[at:]

    which = data.draw(st.sampled_from(["hello", "challenge", "proof"]))
    caller = _caller()

    def passed(frame, name):
        return altered(frame) if which == name else frame

    def perform():
        server = _server(passed(caller.hello, "hello"))
        challenge = server.challenge(TWO, is_other=False)
        server.check(passed(caller.prove(passed(challenge, "challenge")), "proof"))

    with pytest.raises(errors.OpError):
        perform()


@given(st.binary(max_size=200))
def test_neither_end_takes_what_is_no_frame_of_the_handshake(noise):
    for frame in (noise, _caller().hello[:8] + noise, OTHER_VERSION + noise):
        with pytest.raises(errors.OpError):
            _caller().prove(frame)
        server = _server(_caller().hello)
        with pytest.raises(errors.UnauthenticatedError):
            server.check(frame)
        server.challenge(TWO, is_other=False)
        with pytest.raises(errors.UnauthenticatedError):
            server.check(frame)
        try:
            hello = _server(frame).hello
        except errors.UnauthenticatedError:
            continue
        assert len(hello.nonce) == 32


def test_the_token_is_in_no_frame_and_in_no_repr():
    caller = _caller()
    server = _server(caller.hello)
    challenge = server.challenge(TWO, is_other=False)
    sent = caller.hello + challenge + caller.prove(challenge)
    assert TOKEN.encode() not in sent
    assert TOKEN not in repr(Secret(TOKEN))
    for service in (MASTER.name, WORKER.name):
        assert Secret(TOKEN).key(service) not in sent


def test_an_end_without_the_token_is_not_believed():
    caller = _caller("another token than theirs")
    server = _server(caller.hello)
    challenge = server.challenge(TWO, is_other=False)
    with pytest.raises(errors.UnauthenticatedError, match="does not have the token") as raised:
        caller.prove(challenge)
    assert "/job:ps/task:0 at 127.0.0.1:7" in str(raised.value)
    impostor = _server(caller.hello, "another token than theirs")
    proof = caller.prove(impostor.challenge(TWO, is_other=False))
    with pytest.raises(errors.UnauthenticatedError, match="JFLOW_TOKEN"):
        server.check(proof)


def test_a_recorded_handshake_proves_nothing_to_a_server():
    caller = _caller()
    first = _server(caller.hello)
    proof = caller.prove(first.challenge(TWO, is_other=False))
    first.check(proof)
    again = _server(caller.hello)
    again.challenge(new_nonce(), is_other=False)
    with pytest.raises(errors.UnauthenticatedError):
        again.check(proof)


def test_a_recorded_handshake_proves_nothing_to_a_caller():
    recorded = _server(_caller().hello).challenge(TWO, is_other=False)
    with pytest.raises(errors.UnauthenticatedError):
        _caller(nonce=new_nonce()).prove(recorded)


def test_a_nonce_that_one_end_uses_twice_does_not_help_to_replay_the_other_s_frames():
    """Each end is safe by its own nonce, whatever the other one draws."""
    for own in (True, False):
        caller = _caller()
        server = _server(caller.hello)
        server.check(caller.prove(server.challenge(TWO, is_other=False)))
        fresh = _caller(nonce=new_nonce()) if own else _caller()
        second = _server(fresh.hello)
        challenge = second.challenge(TWO if own else new_nonce(), is_other=False)
        assert fresh.prove(challenge) != caller.prove(server.challenge(TWO, is_other=False))


def test_the_proof_of_a_server_is_none_of_a_caller():
    caller = _caller()
    server = _server(caller.hello)
    challenge = server.challenge(TWO, is_other=False)
    with pytest.raises(errors.UnauthenticatedError):
        server.check(challenge[-MAC_BYTES:])


def test_a_client_s_proof_is_worth_nothing_where_servers_call():
    caller = _caller(service=MASTER.name)
    server = _server(caller.hello, service=WORKER.name)
    with pytest.raises(errors.UnauthenticatedError):
        caller.prove(server.challenge(TWO, is_other=False))
    # One that does not look at the server's proof, because it is not interested in it:
    relayed = _server(caller.hello, service=MASTER.name)
    proof = caller.prove(relayed.challenge(TWO, is_other=False))
    with pytest.raises(errors.UnauthenticatedError):
        server.check(proof)


def test_a_proof_for_one_server_is_none_for_another():
    """What listens at a stale address cannot pass a live server's proof on as its own."""
    caller = _caller()
    server = _server(caller.hello)
    caller.prove(server.challenge(TWO, is_other=True))
    with pytest.raises(errors.UnavailableError, match="is not the one that was meant"):
        caller.check_meant()
    challenge = server.challenge(TWO, is_other=True)
    forged = pb_handshake.Challenge.FromString(challenge[8:-MAC_BYTES])
    forged.is_other = False
    with pytest.raises(errors.UnauthenticatedError):
        _caller().prove(challenge[:8] + forged.SerializeToString() + challenge[-MAC_BYTES:])


@pytest.mark.parametrize("incarnation", [0, 7])
def test_what_a_server_that_is_not_meant_says_is_only_that_the_other_one_is_not_there(
    incarnation: int,
) -> None:
    """It may be a process without the token, which passed on the proof of a live server."""
    caller = _caller(target=Target("127.0.0.1:1", incarnation=incarnation))
    caller.prove(_server(caller.hello).challenge(TWO, is_other=True))
    for kind in (errors.OutOfRangeError, errors.AbortedError, errors.RestartedError):
        found = caller.refusal(kind("so it says"))
        is_restarted = incarnation and kind is errors.RestartedError
        assert type(found) is (errors.RestartedError if is_restarted else errors.UnavailableError)
        assert "so it says" in str(found)


def test_unlike_versions_refuse_each_other_in_words():
    assert version_of(_caller().hello) == VERSION
    words = f"speaks version {VERSION + 1} .* this end version {VERSION}; install the same"
    with pytest.raises(errors.FailedPreconditionError, match=words):
        _caller().prove(OTHER_VERSION)
    with pytest.raises(errors.UnauthenticatedError, match=f"version {VERSION}"):
        _server(OTHER_VERSION + _caller().hello[8:])


def test_names_that_are_too_long_for_a_frame_are_refused_where_they_come_from():
    with pytest.raises(errors.InvalidArgumentError, match=f"at most {MAX_BYTES}"):
        _caller(target=replace(TARGET, at="a" * MAX_BYTES))


# The server that is meant -------------------------------------------------------------------------

IDENTITY = ServerIdentity(
    Task("ps", 0),
    77,
    ClusterSpec({"ps": ["Here:7", "there:8"], "worker": ["there:9", "there:0"]}),
    "blue",
    frozenset({"10.0.0.1"}),
)


@pytest.mark.parametrize(
    "hello",
    [
        {},
        {"task": "/job:ps/task:0", "cluster": "blue", "incarnation": 77},
        {"address": "10.0.0.1:7"},
        {"address": "here:7"},
        {"caller": "/job:worker/task:0", "caller_address": "there:9"},
        {"caller": "/job:worker/task:1", "caller_address": "there:10"},
        {"caller": "/job:chief/task:0", "caller_address": "x:1"},
        {"caller": "/job:worker/task:0", "caller_address": "x:1", "cluster": "blue"},
    ],
    ids=str,
)
def test_a_server_is_meant_if_nothing_that_the_caller_knows_differs(hello):
    assert IDENTITY.refusal(pb_handshake.Hello(**{"address": "Here:7"} | hello)) is None


@pytest.mark.parametrize(
    ("hello", "words"),
    [
        ({"cluster": "green"}, "expected cluster 'green', got cluster 'blue'"),
        ({"task": "/job:ps/task:1"}, "expected /job:ps/task:1, got /job:ps/task:0"),
        ({"address": "Here:8"}, "expected a server at Here:8, got one at Here:7"),
        ({"address": "elsewhere:7"}, r"one at Here:7; .*'\?at=Here:7'"),
        ({"address": "nonsense:x"}, "expected a server at nonsense:x"),
        (
            {"caller": "/job:worker/task:0", "caller_address": "x:1"},
            "with /job:worker/task:0 at x:1, got one with /job:worker/task:0 at there:9; .*CLUSTER",
        ),
    ],
    ids=str,
)
def test_a_server_that_is_not_meant_says_what_was_expected_and_what_it_is(hello, words):
    error = IDENTITY.refusal(pb_handshake.Hello(**{"address": "Here:7"} | hello))
    assert isinstance(error, errors.UnavailableError)
    assert re.search(words, error.message)


def test_another_life_of_the_task_is_refused_as_one_that_has_restarted():
    error = IDENTITY.refusal(pb_handshake.Hello(address="Here:7", incarnation=76))
    assert isinstance(error, errors.RestartedError)


# Over the wire ------------------------------------------------------------------------------------


async def _ended(call):
    """The status with which the server ends a stream, after what it sends until then."""
    with suppress(grpc.RpcError):
        while isinstance(await call.read(), bytes):
            pass
    return await call.code()


async def _refusal(address, method, frames):
    """The status with which a server ends a stream of these frames.

    If it ends the stream during a write, gRPC puts a status of its own in the place of that of the
    server; then they are sent again.
    """
    while True:
        async with raw_call(address, method) as call:
            with suppress(grpc.RpcError, asyncio.InvalidStateError):
                for frame in frames:
                    await call.write(frame)
            status = await _ended(call)
        if status is not grpc.StatusCode.INTERNAL:
            return status


class Recorder:
    """Passes the frames of one stream on to a server, and keeps them."""

    def __init__(self, upstream):
        self.upstream = upstream
        self.sent, self.answered = [], []

    async def __call__(self, context):
        async with raw_call(self.upstream) as call:

            async def back():
                while isinstance(frame := await call.read(), bytes):
                    self.answered.append(frame)
                    await context.write(frame)

            answering = asyncio.create_task(back())
            while isinstance(frame := await context.read(), bytes):
                self.sent.append(frame)
                await call.write(frame)
            answering.cancel()


def test_a_recorded_stream_opens_no_session_when_it_is_played_again():
    host = Host()

    async def check():
        async with serving(host) as address:
            recorder = Recorder(address)
            async with raw_server(recorder) as relay, raw_call(relay) as call:
                call.target = Target(relay, at=address)
                await RawClient(call).handshake()
            assert len(host.sessions) == 1
            async with raw_call(address) as call:
                for frame in recorder.sent:
                    await call.write(frame)
                assert await _ended(call) is grpc.StatusCode.UNAUTHENTICATED
                assert "JFLOW_TOKEN" in await call.details()
        assert len(recorder.sent) == 2
        assert TOKEN.encode() not in b"".join(recorder.sent + recorder.answered)

    on_loop(check())
    assert len(host.sessions) == 1


def test_a_relay_to_a_server_at_another_address_is_refused():
    """As of a process that has taken the port of a task that stopped."""
    host = Host()

    async def check():
        async with (
            serving(host) as address,
            raw_server(Recorder(address)) as relay,
            raw_call(relay) as call,
        ):
            with pytest.raises(errors.UnavailableError, match=f"a server at {relay}"):
                await RawClient(call).handshake()

    on_loop(check())
    assert host.sessions == []


def test_a_client_cannot_call_the_service_of_servers():
    host = Host()

    async def check():
        async with serving(host) as address, raw_call(address, PEER_METHOD) as call:
            with pytest.raises(errors.UnauthenticatedError):
                await RawClient(call).handshake(service=MASTER.name)
            # One that proves what a client proves, without looking at what the server has proven.
            hello = _caller(target=Target(address), nonce=new_nonce()).hello
            async with raw_call(address, PEER_METHOD) as second:
                await second.write(hello)
                signed = (await second.read())[:-MAC_BYTES]
                key = Secret(TOKEN).key(MASTER.name)
                length = len(hello).to_bytes(4, "little")
                await second.write(hmac.digest(key, b"\1" + length + hello + signed, "sha256"))
                assert await _ended(second) is grpc.StatusCode.UNAUTHENTICATED

    on_loop(check())
    assert host.sessions == []


PROCEDURES = [(service, name) for service in (MASTER, WORKER) for name in service.rpcs]


@pytest.mark.parametrize(
    ("service", "name"), PROCEDURES, ids=lambda part: getattr(part, "role", part)
)
def test_every_procedure_is_refused_without_proof_before_its_request_is_parsed(
    service, name, monkeypatch
):
    parsed = []
    monkeypatch.setattr("jflow.protocol.stream.open_control", parsed.append)
    host = Host()
    envelope = pb.Envelope(id=1)
    getattr(envelope, name).SetInParent()
    request = next(encode(1, envelope.SerializeToString(), []))

    async def check():
        async with serving(host) as address:
            hello = _caller(service=service.name, target=Target(address)).hello
            for frames in ([request], [hello, request], [hello, bytes(32), request]):
                status = await _refusal(address, f"/{service.name}", frames)
                assert status is grpc.StatusCode.UNAUTHENTICATED

    on_loop(check())
    assert host.sessions == []
    assert parsed == []


def test_every_method_of_a_server_is_a_service_of_the_table():
    """Else the test above would not know of it."""
    from jflow.protocol import Endpoint  # noqa: PLC0415

    assert set(Endpoint(Host(), Secret(TOKEN)).services()) == {MASTER.name, WORKER.name}


@both_methods
@pytest.mark.parametrize("size", [MAX_BYTES + 1, 1 << 20])
def test_a_hello_that_is_too_large_is_refused_unread(method, size):
    async def check():
        async with serving(Host()) as address, raw_call(address, method) as call:
            await call.write(_caller().hello.ljust(size, b"\0"))
            assert await _ended(call) is grpc.StatusCode.UNAUTHENTICATED

    on_loop(check())


@both_methods
def test_a_caller_of_another_version_is_told_that_of_the_server(method):
    async def check():
        async with serving(Host()) as address, raw_call(address, method) as call:
            await call.write(OTHER_VERSION + b"whatever that version says")
            assert version_of(await call.read()) == VERSION
            assert await _ended(call) is grpc.StatusCode.OK

    on_loop(check())


async def _of_another_version(context):
    await context.read()
    await context.write(OTHER_VERSION)
    await forever()


async def _answers_too_early(context):
    """Sends what a server says after the proof, without having proven anything."""
    await context.read()
    await context.write(next(encode(1, pb.Envelope(id=1).SerializeToString(), [])))
    await forever()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (_of_another_version, errors.FailedPreconditionError),
        (_answers_too_early, errors.UnavailableError),
    ],
)
def test_a_server_that_does_not_prove_itself_gets_no_proof(answer, kind, monkeypatch):
    monkeypatch.setenv("JFLOW_TOKEN", TOKEN)

    async def peer(address):
        one = peer_of(TASK, address)
        try:
            with pytest.raises(kind):
                await one.connect(PATIENCE_S)
        finally:
            await one.close()

    async def start():
        context = raw_server(answer)
        return context, await context.__aenter__()

    context, address = on_loop(start())
    try:
        with pytest.raises(kind):
            connect(address, PATIENCE_S)
        on_loop(peer(address))
    finally:
        on_loop(context.__aexit__(None, None, None))


def test_a_client_that_means_another_life_is_refused_by_the_server():
    host = Host()
    with served(host) as server:
        with pytest.raises(errors.RestartedError, match="has restarted"):
            connect(Target(server.address, task=TASK, incarnation=INCARNATION + 1), PATIENCE_S)
        connect(Target(server.address, task=TASK, incarnation=INCARNATION), PATIENCE_S).close()
    assert len(host.sessions) == 1


@both_methods
def test_a_stream_that_ends_in_the_handshake_opens_no_session(method):
    host = Host()

    async def check():
        async with serving(host) as address, raw_call(address, method) as call:
            await call.write(_caller(service=method[1:], target=Target(address)).hello)
            await call.done_writing()
            assert isinstance(await call.read(), bytes)
            assert await _ended(call) is grpc.StatusCode.OK

    on_loop(check())
    assert host.sessions == []


def test_streams_that_do_not_begin_are_ended_and_keep_no_honest_caller_out(monkeypatch):
    """More than may be in the handshake at one time."""
    monkeypatch.setattr(settings, "HELLO_S", 0.3)
    monkeypatch.setattr(settings, "MAX_UNPROVEN", 4)
    host = Host()

    async def check():
        async with serving(host) as address, AsyncExitStack() as stack:
            silent = [await stack.enter_async_context(raw_call(address)) for _ in range(10)]
            async with raw_call(address) as call:
                assert (await RawClient(call).handshake()).task == TASK
            for one in silent:
                assert await _ended(one) is grpc.StatusCode.UNAUTHENTICATED
                assert "within 0.3 s" in await one.details()

    on_loop(check())
    assert len(host.sessions) == 1


def test_a_broken_stream_is_told_as_such():
    async def gone(context):
        await context.read()
        await context.abort(grpc.StatusCode.INTERNAL, "gone")

    async def check():
        async with raw_server(gone) as address, raw_call(address) as call:
            with pytest.raises(BrokenStreamError, match="gone"):
                await RawClient(call).handshake()

    on_loop(check())
