"""Heartbeats: streams whose other end keeps its connection and does not answer."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow import errors
from jflow.base.deadline import FOREVER
from jflow.net.protocol.heartbeat import TICKS, Beat, Heartbeat, liveness_s
from jflow.net.protocol.records import info_to_proto
from jflow.net.protocol.rpcs import WORKER
from jflow.net.protocol.ticker import Ticker
from jflow.net.wire import connect
from tests.net.protocol.hosts import (
    PATIENCE_S,
    TASK,
    Host,
    eventually,
    forever,
    met,
    on_loop,
    peer_of,
    raw_server,
    served,
)

SHORT = "1.5"


# The state machine --------------------------------------------------------------------------------


def test_a_silent_stream_is_asked_once_and_then_lost_in_time():
    heartbeat = Heartbeat()
    beats = [heartbeat.tick(0, is_waiting=True) for _ in range(TICKS - 1)]
    assert beats.count(Beat.ASK) == 1
    assert beats.index(Beat.ASK) < len(beats) - 2, "there is time for an answer"
    assert beats[-1] is Beat.LOST
    assert Beat.LOST not in beats[:-1]


@given(st.lists(st.booleans(), max_size=200))
def test_a_stream_is_lost_only_after_so_many_silent_ticks_in_a_row(signs):
    heartbeat, heard, silent = Heartbeat(), 0, 0
    for sign in signs:
        heard += sign
        silent = 0 if sign else silent + 1
        beat = heartbeat.tick(heard, is_waiting=True)
        assert (beat is Beat.LOST) == (silent >= TICKS - 1)


def test_a_stream_that_nothing_waits_for_is_left_alone():
    heartbeat = Heartbeat()
    for _ in range(5 * TICKS):
        assert heartbeat.tick(0, is_waiting=False) is Beat.NOTHING
    assert heartbeat.tick(0, is_waiting=True) is Beat.NOTHING, "it counts from here on"


@pytest.mark.parametrize("text", ["soon", "0", "1.4", "-3", "nan", "inf", "1e9"])
def test_a_time_that_is_none_is_refused(monkeypatch, text):
    monkeypatch.setenv("JFLOW_LIVENESS_S", text)
    with pytest.raises(errors.InvalidArgumentError, match=r"JFLOW_LIVENESS_S.*1\.5 to 3600"):
        liveness_s()


def test_fifteen_seconds_are_the_default(monkeypatch):
    monkeypatch.delenv("JFLOW_LIVENESS_S", raising=False)
    assert liveness_s() == 15


def test_a_ticker_has_a_thread_only_while_something_ticks():
    ticked = threading.Event()
    ticker = Ticker(0.001)

    def threads():
        return [one for one in threading.enumerate() if one.name == "jflow heartbeat"]

    before = len(threads())
    for _ in range(2):
        ticked.clear()
        ticker.add(ticked.set)
        assert ticked.wait(PATIENCE_S)
        ticker.remove(ticked.set)
        eventually(lambda: len(threads()) == before)


def test_a_ticker_goes_on_without_a_function_that_raises(caplog):
    ticker, ticked = Ticker(0.001), threading.Event()

    def broken():
        ticked.clear()
        raise ValueError("of a test")

    ticker.add(broken)
    ticker.add(ticked.set)
    eventually(lambda: "of a test" in caplog.text)
    assert ticked.wait(PATIENCE_S)
    ticker.remove(ticked.set)
    assert caplog.text.count("is not called any more") == 1


# Streams ------------------------------------------------------------------------------------------


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setenv("JFLOW_LIVENESS_S", SHORT)


async def block_loop(until):
    """Makes the servers' event loop hang until an event is set, once this coroutine has ended."""
    asyncio.get_running_loop().call_later(0, until.wait, PATIENCE_S)


def test_a_server_whose_event_loop_hangs_is_lost(short, host, server):
    """Its transport answers nevertheless: gRPC has threads of its own."""
    client = connect(server.address, PATIENCE_S)
    host.script["run"] = forever
    goes_on = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(client.run_step, 1, [], FOREVER)
        eventually(lambda: host.sessions and host.sessions[-1].started)
        on_loop(block_loop(goes_on))
        try:
            with pytest.raises(errors.UnavailableError, match=r"not answered for 1\.5 s") as raised:
                call.result(PATIENCE_S)
        finally:
            goes_on.set()
    assert raised.value.task == str(TASK)
    assert not client.is_open
    client.close()


async def _only_hello(context):
    """Serves a stream as an event loop that hangs after the handshake."""
    stream = await met(context, WORKER.name)
    await stream.send(id=1, server_info=info_to_proto(Host().info()))
    await forever()


def test_a_peer_that_no_longer_answers_is_lost(short):
    async def check():
        async with raw_server(_only_hello) as address:
            peer = peer_of(TASK, address)
            info = await peer.connect(PATIENCE_S)
            with pytest.raises(errors.UnavailableError, match=r"not answered for 1\.5 s") as raised:
                await peer.run_plans(info.incarnation, 1, 1, ())
            assert raised.value.task == str(TASK)
            await peer.close()

    on_loop(check())


def test_a_call_may_take_longer_than_signs_of_life(short):
    """Both ends of a call wait: a client, and a server that calls another one."""
    host = Host()

    async def slow(*_):
        await asyncio.sleep(2 * float(SHORT))
        return []

    host.script["run"] = slow

    async def check(address):
        peer = peer_of(TASK, address)
        info = await peer.connect(PATIENCE_S)
        assert await peer.run_plans(info.incarnation, 1, 1, ()) == []
        await peer.close()

    with served(host) as server:
        client = connect(server.address, PATIENCE_S)
        call = client.start(1, [], FOREVER)
        on_loop(check(server.address))
        assert call.result(PATIENCE_S) == []
        client.close()
