"""Data streams beside gRPC: when they are used, and how both end."""

import asyncio
import logging
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest

import jflow as tf
from jflow import errors
from jflow.base.deadline import FOREVER, Deadline
from jflow.net.protocol.credits import MAX_UNSENT_BYTES
from jflow.net.protocol.stream import MessageStream
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.net.wire import attaching, connect
from jflow.net.wire.attaching import Dialler, run_on_loop
from jflow.net.wire.data_streams import DataStreams
from jflow.net.wire.socket_stream import PartsFraming, SocketStream
from jflow.testing import FaultProxy
from tests.net.protocol.hosts import (
    PATIENCE_S,
    TASK,
    Host,
    RawClient,
    cut_data,
    eventually,
    eventually_async,
    forever,
    large,
    on_loop,
    peer_of,
    raw_call,
    same,
    served,
    serving,
)
from tests.net.wire import kinds

pytestmark = pytest.mark.usefixtures("own_sockets")


# Choice -------------------------------------------------------------------------------------------


@kinds.on("unix", "tcp", "tls")
def test_a_session_uses_a_data_stream(client, kind):
    assert client.transport == kinds.used(kind)
    assert client.run_step(1, [np.float32(3)], FOREVER) == [3]


@pytest.mark.parametrize("of", ["server", "client"])
def test_grpc_carries_messages_if_one_end_says_so(host, monkeypatch, caplog, of):
    caplog.set_level(logging.INFO, "jflow")
    if of == "server":
        monkeypatch.setenv("JFLOW_TRANSPORT", "grpc")
    with served(host) as server:
        monkeypatch.setenv("JFLOW_TRANSPORT", "auto" if of == "server" else "grpc")
        for _ in range(2):
            client = connect(server.address, PATIENCE_S)
            assert client.transport == "grpc"
            assert client.run_step(1, [np.float32(3)], FOREVER) == [3]
            client.close()
    told = [one.message for one in caplog.records if "gRPC" in one.message]
    assert told == (["messages go over gRPC: the server offers none"] if of == "server" else [])


def test_a_data_stream_that_must_be_and_cannot_be_is_an_error(host, monkeypatch):
    monkeypatch.setenv("JFLOW_TRANSPORT", "grpc")
    with served(host) as server:
        monkeypatch.setenv("JFLOW_TRANSPORT", "unix")
        with pytest.raises(errors.UnavailableError, match=r"JFLOW_TRANSPORT=unix, .* offers none"):
            connect(server.address, PATIENCE_S)

        async def peer():
            await peer_of(TASK, server.address).connect(PATIENCE_S)

        with pytest.raises(errors.UnavailableError, match=r"JFLOW_TRANSPORT=unix, .* offers none"):
            on_loop(peer())


def test_a_transport_that_does_not_exist_is_an_error(server, monkeypatch):
    monkeypatch.setenv("JFLOW_TRANSPORT", "pigeon")
    with pytest.raises(
        errors.InvalidArgumentError, match=r"'grpc', 'unix', 'tcp' or 'auto', .* got 'pigeon'"
    ):
        connect(server.address, PATIENCE_S)


def test_an_offer_of_another_machine_is_not_taken(server, monkeypatch):
    monkeypatch.setattr(attaching, "boot_id", lambda: "another")
    client = connect(server.address, PATIENCE_S)
    assert client.transport == "grpc"
    assert client.run_step(1, [], FOREVER) == []
    client.close()


def test_a_target_through_a_tunnel_is_not_passed_by(server, monkeypatch):
    with FaultProxy(server.address) as proxy:
        for target in (proxy.target, f"{server.address}?at={server.address}"):
            monkeypatch.setenv("JFLOW_TRANSPORT", "auto")
            client = connect(target, PATIENCE_S)
            assert client.transport == "grpc"
            assert client.run_step(1, [], FOREVER) == []
            client.close()
            monkeypatch.setenv("JFLOW_TRANSPORT", "unix")
            with pytest.raises(errors.UnavailableError, match="leads through a tunnel"):
                connect(target, PATIENCE_S)


@pytest.mark.parametrize("what", ["open to others", "too long", "a file"])
def test_a_server_without_a_place_for_its_socket_offers_no_data_stream(
    host, monkeypatch, tmp_path, what, caplog
):
    caplog.set_level(logging.INFO, "jflow")
    place = tmp_path / ("x" * 100 if what == "too long" else "run")
    place.mkdir()
    if what == "open to others":
        (place / "jflow").mkdir()
        (place / "jflow").chmod(0o755)
    if what == "a file":
        (place / "jflow").write_text("")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    with served(host) as server:
        client = connect(server.address, PATIENCE_S)
        assert client.transport == "grpc"
        assert client.run_step(1, [], FOREVER) == []
        client.close()
    assert "no data streams are offered" in caplog.text


def test_tasks_call_each_other_over_data_streams_and_by_grpc_where_one_has_none(host, monkeypatch):
    async def transports():
        kinds = []
        for kind in ("unix", "grpc"):
            monkeypatch.setenv("JFLOW_TRANSPORT", kind)
            async with serving(host) as address:
                monkeypatch.setenv("JFLOW_TRANSPORT", "auto")
                peer = peer_of(TASK, address)
                info = await peer.connect(PATIENCE_S)
                (value,) = await peer.run_plans(info.incarnation, 1, 2, [np.arange(3)])
                same(value, np.arange(3))
                kinds.append(type(peer._link._stream._framing).__name__)
                await peer.close()
        return kinds

    assert on_loop(transports()) == ["PartsFraming", "ByteFraming"]


def test_a_cluster_may_have_a_task_without_data_streams_and_devices_tell(monkeypatch):
    monkeypatch.setenv("JFLOW_TRANSPORT", "auto")
    with ExitStack() as stack:
        servers = []
        for job, kind in (("worker", "auto"), ("ps", "grpc")):
            monkeypatch.setenv("JFLOW_TRANSPORT", kind)
            one = tf.train.Server({job: {0: "127.0.0.1:0"}}, job, 0)
            servers.append(stack.enter_context(one))
        spec = {
            job: [server.cluster_spec.task_address(job, 0)]
            for job, server in zip(("worker", "ps"), servers, strict=True)
        }
        for server in servers:
            server.connect(spec)
        monkeypatch.setenv("JFLOW_TRANSPORT", "auto")
        with tf.device("/job:ps/task:0"):
            count = tf.Variable(1.0, name="count")
        with tf.device("/job:worker/task:0"):
            doubled = count.assign_add(1.0) * 2.0
        with tf.Session(servers[0].target) as session:
            session.run(count.initializer)
            assert session.run(doubled) == 4.0
            found = {d.name.split("/")[1]: d.transport for d in session.list_devices()}
            assert found == {"job:worker": "unix", "job:ps": "grpc"}
        with tf.Session(servers[1].target) as session:
            assert session.run(doubled) == 6.0
            found = {d.name.split("/")[1]: d.transport for d in session.list_devices()}
            assert set(found.values()) == {"grpc"}, "its calls use none either"


# Ends ---------------------------------------------------------------------------------------------


def _cut_grpc(client):
    client._channel._stream._stream.cancel()


@kinds.on("unix", "tcp", "tls")
@pytest.mark.parametrize("cut", [cut_data, _cut_grpc])
def test_a_session_ends_with_either_of_its_streams(client, host, cut):
    host.script["run"] = forever
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(client.run_step, i, [], FOREVER) for i in range(3)]
        calls.append(client.start(3, [], FOREVER))
        eventually(lambda: host.started == 4)
        cut(client)
        for call in calls:
            assert isinstance(call.exception(PATIENCE_S), errors.UnavailableError)
    with pytest.raises(errors.UnavailableError):
        client.run_step(1, [], FOREVER)
    assert not client.is_open
    eventually(host.sessions[0].closed.is_set)
    assert host.cancelled == 4


@kinds.on("unix", also=("tcp", "tls"))
@pytest.mark.parametrize("cut", [cut_data, _cut_grpc])
def test_a_session_in_which_nothing_is_under_way_ends_too(server, host, monkeypatch, cut):
    monkeypatch.setenv("JFLOW_LIVENESS_S", "1.5")
    client = connect(server.address, PATIENCE_S)
    assert client.run_step(1, [], FOREVER) == []
    cut(client)
    eventually(lambda: not client.is_open)
    eventually(host.sessions[0].closed.is_set)
    client.close()


@kinds.on("unix", "tcp")
@pytest.mark.parametrize("which", ["data", "lifeline"])
def test_a_connection_of_two_tasks_ends_with_either_of_its_streams_and_is_made_again(which, kind):
    host = Host(script={"run": forever})

    async def check():
        async with serving(host) as address:
            peer = peer_of(TASK, address)
            info = await peer.connect(PATIENCE_S)
            call = asyncio.ensure_future(peer.run_plans(info.incarnation, 1, 2, []))
            await eventually_async(lambda: host.started == 1)
            paired = peer._link._stream._stream
            if which == "data":
                paired._data._connection.shutdown(socket.SHUT_RDWR)
            else:
                await paired._lifeline.close()
            with pytest.raises(errors.UnavailableError):
                await call
            await eventually_async(lambda: host.cancelled == 1)
            await eventually_async(host.sessions[0].closed.is_set)
            del host.script["run"]
            assert list(await peer.run_plans(info.incarnation, 1, 2, [])) == []
            await peer.close()

    on_loop(check())


@kinds.on("unix", also=("tcp", "tls"))
def test_a_frame_beside_the_data_stream_ends_the_session(client, host):
    assert client.run_step(1, [], FOREVER) == []
    client._channel._outbox.put(1, iter([b"frame"]))
    eventually(host.sessions[0].closed.is_set)
    with pytest.raises(errors.UnavailableError):
        client.run_step(1, [], FOREVER)


@kinds.on("unix", "tcp", also=("tls",))
def test_a_message_that_is_malformed_ends_the_session_and_no_other(client, server, host):
    other = connect(server.address, PATIENCE_S)
    client._channel._data._connection.send([b"\xff" * 64])
    eventually(host.sessions[0].closed.is_set)
    with pytest.raises(errors.OpError):
        client.run_step(1, [], FOREVER)
    assert other.run_step(1, [], FOREVER) == []
    other.close()


@kinds.on("unix", also=("tcp", "tls"))
def test_the_thread_that_waits_for_nothing_else_reads_what_was_given_up(client, host):
    """A late answer that nothing waits for is taken, so that the server's memory is free."""
    release = threading.Event()

    async def run(handle, *_):
        while handle == 1 and not release.is_set():
            try:
                await asyncio.sleep(0.001)
            except asyncio.CancelledError:
                continue
        return [large(4)] if handle == 1 else []

    host.script["run"] = run
    with pytest.raises(errors.DeadlineExceededError):
        client.run_step(1, [], Deadline(0.05))
    assert client._pending.given_up
    release.set()
    eventually(lambda: not client._pending.given_up)
    assert client.run_step(2, [], FOREVER) == []


@kinds.on("unix", "tls", also=("tcp",))
def test_cancelling_what_is_still_being_sent_leaves_the_session_whole(
    client, host, monkeypatch, kind
):
    """The server's loop stands still, so most of the request waits in this process."""
    monkeypatch.setattr("jflow.net.protocol.settings.GRACE_S", 0.05)
    host.script["run"] = _answer_slowly
    with ThreadPoolExecutor(2) as pool:
        standing = pool.submit(client.run_step, 1, [], FOREVER)
        eventually(lambda: host.started == 1)
        with pytest.raises(errors.DeadlineExceededError):
            client.run_step(2, [large()], Deadline(0.05))
        started = client.start(3, [large(16)], FOREVER)
        assert started.cancel()
        standing.result(PATIENCE_S)
    host.script.clear()
    (value,) = client.run_step(1, [np.float32(1)], Deadline(PATIENCE_S))
    assert value == 1
    assert client.transport == kinds.used(kind)


async def _answer_slowly(handle, *_):
    if handle == 1:
        time.sleep(1.0)
    return []


@kinds.on("unix", also=("tcp", "tls"))
def test_what_follows_a_future_does_not_run_in_a_thread_that_waits_for_something_else(client, host):
    release = {1: threading.Event(), 2: threading.Event()}

    async def run(handle, *_):
        while not release[handle].is_set():
            await asyncio.sleep(0.001)
        return []

    host.script["run"] = run
    threads = []
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.run_step, 1, [], FOREVER)  # it reads the stream
        eventually(lambda: host.started == 1)
        started = client.start(2, [], FOREVER)
        started.add_done_callback(lambda _: threads.append(threading.current_thread().name))
        release[2].set()  # not before: a callback of a future that is done runs at once, here
        eventually(lambda: threads)
        release[1].set()
        assert waiting.result(PATIENCE_S) == []
    assert threads == ["jflow reader"]


def test_the_thread_that_reads_for_futures_stays_while_they_come_one_after_the_other(client, host):
    async def run(*_):
        return []

    host.script["run"] = run
    threads = []
    for n in range(1, 7):  # each one when the one before has been answered
        started = client.start(1, [], FOREVER)
        started.add_done_callback(lambda _: threads.append(threading.get_native_id()))
        eventually(lambda n=n: len(threads) == n)
    others = {*threads} - {threading.get_native_id()}  # a future that is done calls back at once
    assert len(others) <= 1


@kinds.on("unix", also=("tcp", "tls"))
def test_interrupts_at_any_moment_leave_the_session_usable(server):
    # In a process of its own: an interrupt may come in the middle of what pytest does, too.
    command = [sys.executable, "-m", "tests.net.wire.interrupted", server.address]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "usable\n"


@kinds.on("unix", also=("tcp",))
def test_a_server_does_not_read_calls_whose_answers_are_not_read(host, kind):
    """What small answers take is limited, and all come once they are read."""

    async def run(*_):
        await asyncio.sleep(0)  # the call waits, so that the next one is read
        return [np.zeros(8000, np.uint8)]

    host.script["run"] = run
    n_calls = 3 * MAX_UNSENT_BYTES // 8000

    async def check():
        async with serving(host) as address, raw_call(address) as call:
            raw = RawClient(call)
            offer = (await raw.handshake()).data_offer
            choice = DataStreams(kinds.VALUES[kind])
            dialler = Dialler(choice, addresses=["127.0.0.1"])
            stream = SocketStream(await run_on_loop(dialler.attach(offer)))
            messages = MessageStream(stream, PartsFraming(stream))

            async def send():
                for key in range(1, n_calls + 1):
                    await messages.send(pb.Envelope(id=key, run_step=pb.RunStep(handle=1)))

            sending = asyncio.create_task(send())
            started = -1
            while started != host.started:  # until nothing moves
                started = host.started
                await asyncio.sleep(0.2)
            assert host.started * 8000 < 2 * MAX_UNSENT_BYTES
            ids = set()
            while len(ids) < n_calls:
                envelope, _ = await messages.receive()
                ids.add(envelope.id)
            await sending
            assert ids == set(range(1, n_calls + 1))
            await stream.close()

    on_loop(check())
