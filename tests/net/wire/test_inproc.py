"""Sessions on a server of their own process: when they stay in it, and what they share with it."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow import errors
from jflow.base.cluster.address import split_address
from jflow.base.deadline import FOREVER
from jflow.net.protocol import MasterSession
from jflow.net.protocol.buffers import MIN_POOLED_BYTES
from jflow.net.protocol.frame import MAX_CONTROL_BYTES, SMALL_BYTES
from jflow.net.wire import connect, inproc
from tests.net.protocol.hosts import (
    PATIENCE_S,
    TOKEN,
    Host,
    eventually,
    forever,
    on_loop,
    same,
    served,
)

LARGE = MIN_POOLED_BYTES // 8
"""The number of elements of a large array."""


@pytest.fixture(autouse=True)
def _in_process(monkeypatch):
    monkeypatch.setenv("JFLOW_TOKEN", TOKEN)
    monkeypatch.setenv("JFLOW_TRANSPORT", "auto")


@pytest.fixture
def host():
    return Host()


@pytest.fixture
def server(host):
    with served(host) as server:
        yield server


@pytest.fixture
def client(server):
    client = connect(server.address, PATIENCE_S)
    yield client
    client.close()


def listener_of(server):
    """What serves the sessions of this process for a server."""
    return inproc._SERVED[split_address(server.address)]


def used(target):
    """What carries the messages of a session on a target."""
    client = connect(target, PATIENCE_S)
    client.close()
    return client.transport


# Choice -------------------------------------------------------------------------------------------


def test_a_session_on_a_server_of_its_process_stays_in_it(client):
    assert client.transport == "inproc"
    assert client.run_step(1, [np.float32(3)], FOREVER) == [3]


@pytest.mark.parametrize("value", ["grpc", "unix", "tcp"])
@pytest.mark.parametrize("of", ["server", "client"])
def test_a_transport_that_one_end_demands_is_used(host, monkeypatch, tmp_path_factory, value, of):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
    monkeypatch.setenv("JFLOW_TRANSPORT", value if of == "server" or value == "tcp" else "auto")
    with served(host) as server:
        monkeypatch.setenv("JFLOW_TRANSPORT", value if of == "client" or value == "tcp" else "auto")
        assert used(server.address) == value


def test_what_leads_through_a_tunnel_or_to_another_server_too_does_not_stay(server, monkeypatch):
    assert used(f"{server.address}?at={server.address}") != "inproc"
    monkeypatch.setattr(inproc, "resolve", lambda *_: ("127.0.0.1", "192.0.2.1"))
    assert used(server.address) != "inproc"


def test_a_server_with_certificates_is_reached_with_certificates_only(server, monkeypatch):
    monkeypatch.setattr(listener_of(server), "is_encrypted", True)
    assert used(server.address) != "inproc"


def test_a_server_that_has_stopped_is_not_found(host):
    with served(host) as server:
        address = server.address
    with pytest.raises(errors.UnavailableError, match="start it"):
        connect(address, 0.1)
    assert split_address(address) not in inproc._SERVED


# Proof --------------------------------------------------------------------------------------------


def test_a_caller_with_another_token_is_refused(server, monkeypatch):
    monkeypatch.setenv("JFLOW_TOKEN", "another token of the tests")
    with pytest.raises(errors.UnauthenticatedError, match="does not have the token"):
        connect(server.address, PATIENCE_S)


@pytest.mark.parametrize("word", ["task=/job:worker/task:4", "cluster=another"])
def test_a_server_that_is_not_the_one_that_was_meant_refuses(word):
    meant = pytest.raises(errors.UnavailableError, match="is not the one that was meant")
    with served(Host(cluster_name="own")) as server, meant:
        connect(f"{server.address}?{word}", PATIENCE_S)


# Arrays -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, LARGE])
def test_a_fed_array_may_be_changed_once_the_call_has_begun(client, host, n):
    fed, given, may_end = np.ones(n), [], threading.Event()

    async def run(_, __, feeds):
        given.extend(feeds)
        await _until(may_end)
        return [feeds[0].sum()]

    host.script["run"] = run
    outcome = client.start(1, [fed], FOREVER)
    eventually(lambda: given)
    fed[:] = 7
    may_end.set()
    assert outcome.result(PATIENCE_S) == [n]
    assert not np.shares_memory(given[0], fed)


def test_arrays_arrive_as_a_message_gives_them(client, host):
    transposed, strings = np.arange(LARGE * 2).reshape(2, -1).T, np.array([b"a", b""], object)
    fed = [transposed, strings, np.zeros((0, 3)), np.ones(LARGE, jnp.bfloat16), np.float32(3)]
    got = client.run_step(1, fed, FOREVER)
    for one, other in zip(got, fed, strict=True):
        same(one, np.asarray(other))
    assert all(one.flags.c_contiguous for one in got)


def test_large_results_are_the_server_s_own_memory_and_cannot_be_written(client, host):
    result, small = np.arange(LARGE), np.arange(SMALL_BYTES // 8)

    async def run(*_):
        return [result, small]

    host.script["run"] = run
    shared, copied = client.run_step(1, [], FOREVER)
    assert np.shares_memory(shared, result)
    with pytest.raises(ValueError, match="read-only"):
        shared[0] = 1
    copied[0] = 5
    assert (result[0], small[0]) == (0, 0)
    assert result.flags.writeable, "of the server's array, only the view"


def test_a_control_part_that_is_too_large_fails_its_caller_only(client):
    prefix = "x" * (MAX_CONTROL_BYTES + 1)
    with pytest.raises(errors.ResourceExhaustedError, match="exceeds the limit"):
        client.call(MasterSession.reset, [prefix], 1.0, FOREVER)
    assert client.run_step(1, [np.float32(3)], FOREVER) == [3]


# Ends ---------------------------------------------------------------------------------------------


def test_a_client_that_closes_closes_its_session_on_the_server(client, host):
    client.run_step(1, [], FOREVER)
    client.close()
    assert host.sessions[0].closed.wait(PATIENCE_S)


def test_a_server_that_stops_ends_what_waits_for_it(host):
    host.script["run"] = forever
    with served(host) as server, ThreadPoolExecutor() as pool:
        client = connect(server.address, PATIENCE_S)
        waiting = pool.submit(client.run_step, 1, [], FOREVER)
        eventually(lambda: host.started)
        server.stop()
        with pytest.raises(errors.UnavailableError, match="ended the session"):
            waiting.result(PATIENCE_S)
        assert not client.is_open
        client.close()
    assert host.cancelled == 1


@pytest.mark.parametrize("ends", [False, True])
def test_what_waits_for_a_future_may_block_while_the_server_serves_others(host, ends):
    """Callbacks of futures run on no thread that the server needs."""
    called, may_end = [], threading.Event()
    host.script["run"] = lambda *_: _until(may_end)
    with served(host) as server:
        client = connect(server.address, PATIENCE_S)
        outcome = client.start(1, [], FOREVER)
        outcome.add_done_callback(lambda _: called.append(on_loop(_until(may_end))))
        eventually(lambda: host.started)
        if ends:
            server.stop()
        may_end.set()
        eventually(lambda: called)
        client.close()


async def _until(may_end):
    """A script for a call that ends when it may."""
    while not may_end.is_set():
        await asyncio.sleep(0.001)
    return []


def test_sessions_leave_neither_streams_nor_threads(server, host):
    listener = listener_of(server)
    connect(server.address, PATIENCE_S).close()  # the event loop has the threads that it keeps
    before = threading.active_count()
    for _ in range(30):
        client = connect(server.address, PATIENCE_S)
        client.run_step(1, [], FOREVER)
        client.close()
    eventually(lambda: not listener._streams._tasks)
    assert threading.active_count() <= before + 8


# Servers ------------------------------------------------------------------------------------------


@pytest.fixture
def session():
    with tf.train.Server.create_local_server() as server, tf.Session(server.target) as session:
        yield session


def test_a_server_is_found_by_each_name_of_its_host(session):
    for target in (session.target, session.target.replace("localhost", "127.0.0.1")):
        with tf.Session(target) as other:
            assert {one.transport for one in other.list_devices()} == {"inproc"}


def test_a_fetched_variable_keeps_its_value_while_steps_update_it_in_place(session):
    v = tf.Variable(lambda: tf.numpy.zeros(LARGE), name="v")
    add = v.assign_add(tf.numpy.ones(LARGE))
    session.run(v.initializer)
    kept = [session.run(v)]
    for _ in range(3):
        session.run(add.op)
        kept.append(session.run(v))
    assert [{*value.tolist()} for value in kept] == [{0.0}, {1.0}, {2.0}, {3.0}]
    del kept[:-1]
    gc.collect()
    places = set()
    for _ in range(3):
        session.run(add.op)
        places.add(session.run(v).ctypes.data)
    assert len(places) == 1, "nothing else holds the value, so it is updated where it is"
    assert {*kept[0].tolist()} == {3.0}
