"""What a stream brings is bounded while it stands, and freed when it ends."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import psutil
import pytest

from jflow.base.cluster import Target, Task
from jflow.errors import UnavailableError
from jflow.net.protocol import Peer, Secret, buffers, settings
from jflow.net.protocol.credits import Unsent
from jflow.net.protocol.handshake import Caller
from jflow.net.protocol.rpcs import WORKER
from jflow.net.protocol.stream import MessageStream
from jflow.net.protocol.transport import BrokenStreamError
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.net.wire.attaching import Dialler, run_on_loop
from jflow.net.wire.data_streams import DataStreams
from jflow.net.wire.socket_stream import _MAX_QUEUED_BYTES, PartsFraming, SocketStream
from jflow.testing import PATIENCE_S
from tests.net.protocol.hosts import (
    TOKEN,
    Host,
    RawClient,
    eventually,
    eventually_async,
    on_loop,
    peer_at,
    raw_call,
    serving,
    transport,
)
from tests.net.wire import kinds
from tests.ports import free_ports

pytestmark = pytest.mark.usefixtures("own_sockets")
MIB = 1 << 20


@pytest.fixture
def uncollected() -> Iterator[None]:
    """The garbage collector does not run: what is freed is freed by its last reference."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _n_received() -> int:
    """How many buffers of large messages are in use in this process."""
    return sum(isinstance(one, buffers._ViewedMemory) for one in gc.get_objects())


async def _sent(peer: Peer, step: int, value: np.ndarray) -> None:
    sending = peer.deliver(step, {1: value})
    if sending is not None:
        await sending


async def _brought(peer: Peer, n_steps: int, n_bytes: int) -> None:
    """Sends values for steps that never begin, one after the other, until the peer is closed."""
    with suppress(UnavailableError):
        for step in range(n_steps):
            await _sent(peer, step, np.zeros(n_bytes, np.uint8))


class _Crowded:
    """A worker session that takes one early value, keeps it, and then waits for room."""

    def __init__(self) -> None:
        self.kept: list[np.ndarray] = []

    def deliver(self, _step: int, _edge: int, value: np.ndarray) -> bool:
        self.kept.append(value)
        return True

    async def make_room(self) -> None:
        await asyncio.Event().wait()

    def close(self) -> None:
        self.kept.clear()


@pytest.fixture
def crowded(host: Host) -> _Crowded:
    session = _Crowded()
    host.open_worker_session = lambda _: session
    return session


@kinds.on("unix", "tcp")
@pytest.mark.usefixtures("uncollected")
def test_what_a_stream_brought_is_freed_when_it_ends(
    host: Host, crowded: _Crowded, kind: str
) -> None:
    before = _n_received()

    async def bring() -> None:
        async with serving(host) as address, peer_at(address) as peer:
            (device,) = (await peer.connect(PATIENCE_S)).devices
            assert device.transport == kinds.used(kind)
            sending = asyncio.ensure_future(_brought(peer, 20, 2 * MIB))
            await eventually_async(lambda: _n_received() > before + len(crowded.kept) + 1)
        await sending

    on_loop(bring())
    eventually(lambda: _n_received() == before)


@kinds.on("unix", also=("tcp",))
def test_a_stream_is_not_read_on_while_large_messages_wait_for_being_taken(
    host: Host, crowded: _Crowded, kind: str
) -> None:
    before, size = _n_received(), 4 * MIB

    async def bring() -> None:
        async with serving(host) as address, peer_at(address) as peer:
            sending = asyncio.ensure_future(_brought(peer, 20, size))
            await eventually_async(lambda: crowded.kept)
            n_before, n_received = -1, 0
            while n_received != n_before:  # until nothing moves
                await asyncio.sleep(0.2)
                n_before, n_received = n_received, _n_received() - before
            # What was taken, what waits, the message that was too much, and the one that follows.
            assert n_received <= 1 + _MAX_QUEUED_BYTES // size + 2
        await sending

    on_loop(bring())


def test_a_value_never_overtakes_the_call_that_begins_its_step(host: Host) -> None:
    """The other end may not read on before the step has begun."""

    async def exchange() -> None:
        async with serving(host) as address, peer_at(address) as peer:
            info = await peer.connect(PATIENCE_S)
            fed = np.zeros(64 * MIB, np.uint8)
            begun = asyncio.ensure_future(peer.run_plans(info.incarnation, 7, 1, [fed]))
            await asyncio.sleep(0)
            await asyncio.gather(_sent(peer, 7, np.zeros(2)), _sent(peer, 8, np.zeros(2)))
            await begun
            await eventually_async(lambda: len(host.calls) == 3)

    on_loop(exchange())
    names = [call[0] for call in host.calls]
    steps = [call[1] for call in host.calls]
    assert steps.index(8) < 2, "values of other steps pass a large message"
    assert [name for name, step in zip(names, steps, strict=True) if step == 7] == [
        "run",
        "deliver",
    ]


def test_a_server_does_not_grow_with_the_streams_that_brought_values_too_early() -> None:
    (port,) = free_ports(1)
    at, task = f"127.0.0.1:{port}", Task("local", 0)
    command = [sys.executable, "-m", "jflow", "server", "--cluster", json.dumps({"local": [at]})]

    async def bring() -> None:
        caller = Caller(Secret(TOKEN), WORKER.name, Target(at, task=task))
        peer = Peer(transport(), task, caller)
        await peer.connect(PATIENCE_S)
        n_sent, n_before = 0, -1

        async def send() -> None:
            nonlocal n_sent
            for n_sent in range(1, 50):
                await _sent(peer, n_sent, np.ones(5 * MIB, np.uint8))

        sending = asyncio.ensure_future(send())
        while n_sent != n_before:  # until nothing moves
            n_before = n_sent
            await asyncio.sleep(0.2)
        await peer.close()
        await asyncio.gather(sending, return_exceptions=True)

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert "is ready" in server.stdout.readline()
            sizes = []
            for _ in range(2):
                on_loop(bring())
                sizes.append(psutil.Process(server.pid).memory_info().rss / MIB)
        finally:
            server.terminate()
    # The first one warms up what the other one uses again; each brings 64 MiB and more.
    assert sizes[-1] - sizes[0] < 100, sizes


@kinds.on("unix", "grpc", also=("tcp",))
def test_a_caller_that_reads_no_answer_is_read_no_more_and_given_up(
    host: Host, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "UNREAD_S", 0.3)
    # gRPC takes a few MiB that are not read, which is more than all answers to pings.
    request = {"run_step": pb.RunStep(handle=1)} if kind == "grpc" else {"ping": pb.Ping()}
    # The kernel keeps up to tens of MB of answers for a reader by TCP (net.ipv4.tcp_rmem).
    n_calls = {"grpc": 2_000, "unix": 60_000, "tcp": 1_000_000}[kind]

    async def run(*_: object) -> list[np.ndarray]:
        return [np.zeros(60_000, np.uint8)]

    host.script["run"] = run
    n_sent = 0

    async def exchange() -> None:
        nonlocal n_sent
        async with serving(host) as address, raw_call(address) as call:
            client = RawClient(call)
            offer = (await client.handshake()).data_offer
            stream = client.stream
            if kind != "grpc":
                choice = DataStreams(kinds.VALUES[kind])
                dialler = Dialler(choice, addresses=["127.0.0.1"])
                data = SocketStream(await run_on_loop(dialler.attach(offer)))
                stream = MessageStream(data, PartsFraming(data))
            with suppress(BrokenStreamError):
                for n_sent in range(1, n_calls + 1):
                    await stream.send(pb.Envelope(id=n_sent, **request))
            await eventually_async(host.sessions[0].closed.is_set)

    on_loop(exchange())
    assert n_sent < n_calls or kind == "grpc", "it is not read on"


def test_a_caller_that_takes_answers_slowly_is_not_given_up() -> None:
    n_taken, n_stalls = 0, 0

    def stalled() -> None:
        nonlocal n_stalls
        n_stalls += 1

    async def send() -> None:
        nonlocal n_taken
        unsent = Unsent(lambda: n_taken, stalled)
        with unsent.sending([]):
            n_taken += 1
            unsent._look(0)  # the time is over, and what was taken before was 0
            assert not n_stalls
            unsent._look(1)
            assert n_stalls == 1
        unsent._look(1)
        unsent.close()

    asyncio.run(send())
    assert n_stalls == 1, "nothing is sent"
