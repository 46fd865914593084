"""What something on the way inserts beside a data stream: it ends the session, and is not believed.

The data stream of a session cannot be reached by a relay between its gRPC ends, which both have the
handshake behind them; what comes there is not of the other end.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

import numpy as np
import pytest

from jflow import errors
from jflow.base.deadline import FOREVER
from jflow.net.protocol.codec import control_of, frames_of
from jflow.net.protocol.frame import encode
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.net.wire import connect
from tests.net.protocol.hosts import (
    PATIENCE_S,
    PEER_METHOD,
    SESSION_METHOD,
    TASK,
    eventually,
    eventually_async,
    forever,
    on_loop,
    peer_of,
    raw_call,
    raw_server,
    serving,
)

pytestmark = pytest.mark.usefixtures("own_sockets")


class Relay:
    """Passes the frames of one stream on to a server; `context` is the end that the caller reads.

    Args:
      upstream: the address of the server.
      method: of the stream.
      inserted: frames that follow the handshake at once.
    """

    def __init__(self, upstream, method, inserted):
        self.upstream, self.method, self.inserted = upstream, method, inserted
        self.context = None

    async def __call__(self, context):
        self.context = context
        async with raw_call(self.upstream, self.method) as call:

            async def back():
                for _ in range(2):
                    await context.write(await call.read())
                for frame in self.inserted:
                    await context.write(frame)
                while isinstance(frame := await call.read(), bytes):
                    await context.write(frame)

            answering = asyncio.create_task(back())
            try:
                while isinstance(frame := await context.read(), bytes):
                    await call.write(frame)
            finally:
                answering.cancel()


async def _relayed(stack, host, method, inserted=()):
    """A relay at what the server of the host takes for its own address."""
    relay = Relay(await stack.enter_async_context(serving(host)), method, inserted)
    address = await stack.enter_async_context(raw_server(relay))
    host.cluster = host.cluster.replace(host.task, address)
    return relay, address


@pytest.fixture
def relayed(host):
    """Starts a relay; see `_relayed`."""
    stack = AsyncExitStack()
    yield lambda *args: on_loop(_relayed(stack, host, *args))
    on_loop(stack.aclose())


def _forged(call):
    """A reply to a call, with one value."""
    values = [np.float32(666)]
    control = control_of(pb.Envelope(id=call), values)
    return next(frames_of(encode, 1, control, values))


def test_a_reply_beside_the_data_stream_is_not_believed(host, relayed):
    relay, address = relayed(SESSION_METHOD)
    client = connect(address, PATIENCE_S)
    assert client.transport == "unix"
    assert client.run_step(1, [np.float32(3)], FOREVER) == [3]
    host.script["run"] = forever
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(client.run_step, 1, [], FOREVER)
        eventually(lambda: host.started == 2)
        (key,) = client._pending.calls
        on_loop(relay.context.write(_forged(key)))
        assert isinstance(call.exception(PATIENCE_S), errors.UnavailableError)
    with pytest.raises(errors.UnavailableError, match="a message beside the data stream"):
        client.run_step(1, [], FOREVER)
    eventually(host.sessions[0].closed.is_set)
    client.close()


def test_nothing_comes_between_the_handshake_and_the_data_stream(host, relayed):
    _, address = relayed(SESSION_METHOD, [_forged(2)])
    client = connect(address, PATIENCE_S)
    eventually(lambda: not client.is_open)
    with pytest.raises(errors.UnavailableError, match="a message beside the data stream"):
        client.run_step(1, [], FOREVER)
    eventually(host.sessions[0].closed.is_set)
    client.close()


@pytest.mark.parametrize("is_early", [True, False])
def test_a_reply_beside_the_data_stream_of_two_tasks_is_not_believed(host, relayed, is_early):
    relay, address = relayed(PEER_METHOD, [_forged(1)] if is_early else [])
    host.script["run"] = forever

    async def check():
        peer = peer_of(TASK, address)
        info = await peer.connect(PATIENCE_S)
        call = asyncio.ensure_future(peer.run_plans(info.incarnation, 1, 2, []))
        if not is_early:
            await eventually_async(lambda: host.started == 1)
            await relay.context.write(_forged(1))
        with pytest.raises(errors.UnavailableError, match="a frame came beside the data stream"):
            await call
        await peer.close()

    on_loop(check())
