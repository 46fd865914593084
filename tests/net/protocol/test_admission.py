"""The handshake over the wire: what is refused, before anything else is read, and what it costs."""

import asyncio
import hmac
from contextlib import AsyncExitStack, suppress

import grpc
import pytest

from jflow import errors
from jflow.base.cluster import Target
from jflow.net.protocol import Peer, Secret, ServerLocation, settings
from jflow.net.protocol.admission import UnauthenticatedStreams, new_nonce
from jflow.net.protocol.frame import encode
from jflow.net.protocol.handshake import (
    MAC_BYTES,
    MAX_BYTES,
    VERSION,
    Caller,
    CallerHandshake,
    version_of,
)
from jflow.net.protocol.rpcs import MASTER, WORKER
from jflow.net.protocol.transport import BrokenStreamError
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.net.wire import connect, machine_id
from jflow.net.wire.grpc_channels import aio_channel
from jflow.net.wire.grpc_client import GrpcTransport
from jflow.net.wire.grpc_server import RefusalLog
from tests.net.protocol.hosts import (
    INCARNATION,
    PATIENCE_S,
    PEER_METHOD,
    SESSION_METHOD,
    TASK,
    TOKEN,
    Host,
    RawClient,
    both_methods,
    connected,
    eventually_async,
    forever,
    on_loop,
    peer_of,
    raw_call,
    raw_server,
    served,
    serving,
)

OTHER_VERSION = b"jflow\0" + (VERSION + 1).to_bytes(2, "little")


TARGET = Target("127.0.0.1:7")


def _hello(service=MASTER.name, target=TARGET):
    caller = Caller(Secret(TOKEN), service, target)
    return CallerHandshake(caller, new_nonce()).first_frame(machine_id())


def _length(frame):
    return len(frame).to_bytes(4, "little")


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
    """Passes the frames of one stream on to a server, and keeps them.

    Args:
      upstream: the address of the server.
      method: of the stream.
      change: what becomes of the server's frames, given the number and content of each.
    """

    def __init__(self, upstream, method=SESSION_METHOD, change=lambda _, frame: frame):
        self.upstream, self.method, self.change = upstream, method, change
        self.sent, self.answered = [], []

    async def __call__(self, context):
        async with raw_call(self.upstream, self.method) as call:

            async def back():
                while isinstance(frame := await call.read(), bytes):
                    self.answered.append(frame)
                    await context.write(self.change(len(self.answered), frame))

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


def _with_another_device(number, frame):
    """Changes one letter of the introduction."""
    return frame.replace(b"CPU", b"GPU") if number == 2 else frame


def _as_an_introduction(number, frame):
    """Puts an introduction in the place of the answer."""
    return _replaced(frame, server_info=pb.ServerInfo(task=str(TASK))) if number == 2 else frame


def _as_a_refusal(number, frame):
    """Puts an error, which a caller would raise, in the place of the answer."""
    status = {"code": errors.Code.OUT_OF_RANGE, "message": "end of data"}
    return _replaced(frame, status=status) if number == 2 else frame


def _replaced(frame, **fields):
    return frame[:8] + pb.Envelope(id=1, **fields).SerializeToString() + frame[-MAC_BYTES:]


CHANGES = {
    "an introduction": (_with_another_device, True),
    "another introduction": (_as_an_introduction, True),
    "a refusal, where it was admitted": (_as_a_refusal, True),
    "an introduction, where it was refused": (_as_an_introduction, False),
    "another refusal": (_as_a_refusal, False),
}


@pytest.mark.parametrize(("change", "is_meant"), CHANGES.values(), ids=CHANGES)
def test_an_answer_that_a_relay_has_changed_is_not_believed(change, is_meant, monkeypatch):
    monkeypatch.setenv("JFLOW_TOKEN", TOKEN)

    async def start(stack):
        address = await stack.enter_async_context(serving(Host()))
        relay = Recorder(address, change=change)
        peers = Recorder(address, PEER_METHOD, change)
        at = address if is_meant else "127.0.0.1:1"
        found = [await stack.enter_async_context(raw_server(one)) for one in (relay, peers)]
        return [Target(each, task=TASK, at=at) for each in found]

    async def peer(target):
        caller = Caller(Secret(TOKEN), WORKER.name, target)
        one = Peer(GrpcTransport(), TASK, caller)
        try:
            with pytest.raises(errors.UnauthenticatedError, match="has not proven"):
                await one.connect(PATIENCE_S)
        finally:
            await one.close()

    stack = AsyncExitStack()
    try:
        session, call = on_loop(start(stack))
        with pytest.raises(errors.UnauthenticatedError, match="has not proven"):
            connect(session, PATIENCE_S)
        on_loop(peer(call))
    finally:
        on_loop(stack.aclose())


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
            hello = _hello(target=Target(address))
            async with raw_call(address, PEER_METHOD) as second:
                await second.write(hello)
                signed = (await second.read())[:-MAC_BYTES]
                key = Secret(TOKEN).key(MASTER.name)
                parts = [part for each in (hello, signed) for part in (_length(each), each)]
                await second.write(hmac.digest(key, b"\1" + b"".join(parts), "sha256"))
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
    monkeypatch.setattr("jflow.net.protocol.stream.open_control", parsed.append)
    host = Host()
    envelope = pb.Envelope(id=1)
    if service.rpcs[name].body:
        envelope.method_call.name = name
    else:
        getattr(envelope, name).SetInParent()
    request = next(encode(1, envelope.SerializeToString(), []))

    async def check():
        async with serving(host) as address:
            hello = _hello(service=service.name, target=Target(address))
            for frames in ([request], [hello, request], [hello, bytes(32), request]):
                status = await _refusal(address, f"/{service.name}", frames)
                assert status is grpc.StatusCode.UNAUTHENTICATED

    on_loop(check())
    assert host.sessions == []
    assert parsed == []


def test_every_method_of_a_server_is_a_service_of_the_table():
    """Else the test above would not know of it."""
    from jflow.net.protocol import Endpoint  # noqa: PLC0415

    assert set(Endpoint(Host(), Secret(TOKEN), ServerLocation()).services()) == {
        MASTER.name,
        WORKER.name,
    }


@both_methods
@pytest.mark.parametrize("size", [MAX_BYTES + 1, 1 << 20])
def test_a_hello_that_is_too_large_is_refused_unread(method, size):
    async def check():
        async with serving(Host()) as address, raw_call(address, method) as call:
            await call.write(_hello().ljust(size, b"\0"))
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
            await call.write(_hello(service=method[1:], target=Target(address)))
            await call.done_writing()
            assert isinstance(await call.read(), bytes)
            assert await _ended(call) is grpc.StatusCode.OK

    on_loop(check())
    assert host.sessions == []


@pytest.fixture
def crowded(monkeypatch):
    """Few streams may be in the handshake at one time."""
    monkeypatch.setattr(settings, "MAX_UNAUTHENTICATED", 4)
    monkeypatch.setattr(settings, "MAX_WAITING", 8)
    monkeypatch.setattr(settings, "READ_S", 0.1)


async def _silent(stack, address, n):
    return [await stack.enter_async_context(raw_call(address)) for _ in range(n)]


def test_streams_that_do_not_begin_are_ended_and_keep_no_honest_caller_out(crowded):
    """More than may be in the handshake at one time."""
    host = Host()

    async def check():
        async with serving(host) as address, AsyncExitStack() as stack:
            silent = await _silent(stack, address, 10)
            ends = {one: asyncio.create_task(_ended(one)) for one in silent}
            async with raw_call(address) as call:
                assert (await RawClient(call).handshake()).task == TASK
            # All but the last four, for which no other one waits.
            await eventually_async(lambda: sum(end.done() for end in ends.values()) >= 6)
            for one, end in ends.items():
                if end.done():
                    assert end.result() is grpc.StatusCode.UNAUTHENTICATED
                    assert "within 5 s, or 0.1 s while others waited" in await one.details()
                end.cancel()

    on_loop(check())
    assert len(host.sessions) == 1


def test_a_stream_that_does_not_begin_has_its_whole_time_if_no_other_waits(crowded, monkeypatch):
    monkeypatch.setattr(settings, "HELLO_S", 0.4)

    async def check():
        clock = asyncio.get_running_loop().time
        async with serving(Host()) as address, AsyncExitStack() as stack:
            begun = clock()
            for one in await _silent(stack, address, 4):
                assert await _ended(one) is grpc.StatusCode.UNAUTHENTICATED
            assert clock() - begun >= 0.4

    on_loop(check())


def test_a_stream_waits_for_the_handshake_no_longer_than_that_may_take(crowded, monkeypatch):
    """It is told that the server is busy: the server has not asked it for a proof."""
    monkeypatch.setattr(settings, "HELLO_S", 60.0)
    monkeypatch.setattr(settings, "READ_S", 60.0)

    async def check():
        streams = UnauthenticatedStreams()
        async with AsyncExitStack() as stack:
            for _ in range(settings.MAX_UNAUTHENTICATED):
                await stack.enter_async_context(streams.reading())
            monkeypatch.setattr(settings, "HELLO_S", 0.1)
            with pytest.raises(errors.ResourceExhaustedError, match="try again later"):
                await stack.enter_async_context(streams.reading())
        async with streams.reading():  # now that the others are gone
            pass

    on_loop(check())


def test_streams_beyond_those_that_may_wait_are_refused_at_once(crowded, monkeypatch, caplog):
    monkeypatch.setattr(settings, "HELLO_S", 60.0)
    monkeypatch.setattr(settings, "READ_S", 60.0)
    monkeypatch.setattr(RefusalLog, "EACH_S", 600.0)

    async def check():
        async with serving(Host()) as address, AsyncExitStack() as stack:
            silent = await _silent(stack, address, 4 + 8 + 3)
            over = [asyncio.create_task(_ended(one)) for one in silent]
            await eventually_async(lambda: sum(one.done() for one in over) == 3)
            done = [one.result() for one in over if one.done()]
            assert {*done} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
            async with raw_call(address) as call:
                assert await _ended(call) is grpc.StatusCode.RESOURCE_EXHAUSTED
                assert "more than 4 other streams are in the handshake" in await call.details()
            for one in over:
                one.cancel()

    on_loop(check())
    assert caplog.text.count("was refused") == 1, "they cannot fill the log"


def test_a_connection_has_few_streams():
    """jflow's own callers open one on each."""
    host = Host()

    async def enter(channel, address):
        call = channel.stream_stream(SESSION_METHOD)()
        call.target, call.service = Target(address), MASTER.name
        await RawClient(call).handshake()
        return call

    async def check():
        async with serving(host) as address, aio_channel(address) as channel:
            streams = [await enter(channel, address) for _ in range(4)]
            fifth = asyncio.create_task(enter(channel, address))
            async with connected(address):  # over a connection of its own
                await eventually_async(lambda: len(host.sessions) == 5)
                assert not fifth.done()
            streams[0].cancel()
            await fifth
            await eventually_async(lambda: len(host.sessions) == 6)

    on_loop(check())


def test_a_broken_stream_is_told_as_such():
    async def gone(context):
        await context.read()
        await context.abort(grpc.StatusCode.INTERNAL, "gone")

    async def check():
        async with raw_server(gone) as address, raw_call(address) as call:
            with pytest.raises(BrokenStreamError, match="gone"):
                await RawClient(call).handshake()

    on_loop(check())
