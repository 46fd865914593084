"""Servers without work behind them: hosts that tests script, and streams that tests drive by hand.

gRPC's asyncio layer wants one event loop a process, so all of it runs on the servers' loop.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial

import grpc
import numpy as np
import pytest

from jflow.base.cluster import ClusterSpec, Device, Target, Task
from jflow.base.deadline import FOREVER
from jflow.base.drivers.coroutines import Started
from jflow.net.protocol import (
    ALL_RIGHTS,
    ClusterTasks,
    DeviceRecord,
    Endpoint,
    MasterSession,
    Peer,
    Registered,
    Secret,
    ServerInfo,
    ServerLocation,
    WorkerService,
)
from jflow.net.protocol.admission import enter, new_nonce
from jflow.net.protocol.codec import open_message
from jflow.net.protocol.handshake import Caller, CallerHandshake, ServerHandshake
from jflow.net.protocol.rpcs import MASTER, WORKER
from jflow.net.protocol.signatures import rpc_of
from jflow.net.protocol.stream import MessageStream
from jflow.net.protocol.templates import TemplateDecoder
from jflow.net.protocol.tokens import NO_USERS, Users
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.net.wire import load_tls, machine_id
from jflow.net.wire.grpc_channels import aio_channel, method_of, server_options
from jflow.net.wire.grpc_stream import GrpcStream
from jflow.net.wire.transports import TRANSPORTS
from jflow.plan import Feed, Plan, VariableKey, VariableSpec
from jflow.task.server.loop import SERVERS
from jflow.testing import PATIENCE_S

TOKEN = "the token of the tests"
TASK = Task("worker", 3)
INCARNATION = 2**63 + 7
SESSION_METHOD, PEER_METHOD = method_of(MASTER.name), method_of(WORKER.name)
PLAN = Plan(
    Device(TASK, "CPU", 0),
    3,
    (VariableSpec(VariableKey("box", "x"), "float32", (2, 3)),),
    ((Feed(0, 2),),),
)


def on_loop(coroutine):
    """Runs a coroutine on the servers' event loop."""
    return SERVERS.run_coroutine(_in_time(coroutine))


async def _in_time(coroutine):
    async with asyncio.timeout(3 * PATIENCE_S) as limit:
        result = await coroutine
    assert not limit.expired(), "it waited for what did not come"
    return result


async def delivered(peer, step, values):
    """Sends values of a step to a peer, and waits until they have left."""
    sending = peer.deliver(step, values)
    if sending is not None:
        await sending


def eventually(condition):
    """Waits in a thread until something is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.001)


async def eventually_async(condition):
    """Waits on the event loop until something is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)


class Session:
    """Either kind of session; notes what it is asked and answers from `script`.

    Attributes:
      calls: names and arguments of the calls so far.
      script: what to do for a method other than to give a default answer: an async function (a
        plain one for `deliver` and `release`).
      started, cancelled: how many scripted calls have begun, and were cancelled.
      closed: set when the session is closed.
      closed_after: the calls up to then.
      effects, stagings, step_ids: those of the runs so far.
      caller: the task that the last plans were run for, if values may be piggybacked.
    """

    def __init__(self, script):
        self.script = script
        self.calls = []
        self.started = self.cancelled = 0
        self.closed = threading.Event()
        self.closed_after = None
        self.caller = None
        self.effects, self.stagings, self.step_ids = [], [], []

    async def _call(self, name, default, *args):
        self.calls.append((name, *args))
        self.started += 1
        if name not in self.script:
            return default
        try:
            return await self.script[name](*args)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def list_devices(self, tasks, connect_timeout, only_up, deadline):
        return await self._call("list_devices", (), tasks, connect_timeout, only_up, deadline)

    async def register(self, *args):
        return await self._call("register", Registered(1), *args)

    async def run_step(
        self, *args, records=None, effect=None, staging=None, piggybacked=None, step_id=0
    ):
        self.effects.append(effect)
        self.step_ids.append(step_id)
        self.stagings.append(staging)
        if piggybacked is not None:
            self.caller = piggybacked.caller
            piggybacked.values.update(self.script.get("piggybacked", {}))
        return await self._call("run", args[-1], *args)

    run_plans = run_step

    def begin_step(self, number, deadline, feeds, effect=None, records=None, step_id=0):
        run = self.run_step(
            number, deadline, feeds, records=records, effect=effect, step_id=step_id
        )
        return Started(run)

    def begin_plans(self, step, handle, feeds):
        return None

    def needs_task(self, handle):
        return False

    async def reset(self, containers, *times):
        await self._call("reset", None, containers, *times)

    def release(self, handle):
        self.calls.append(("release", handle))
        self.script.get("release", lambda _: None)(handle)

    def reply_size(self, handle):
        return self.script.get("reply_size")

    def watch_tasks(self, handle):
        return self.script.get("watch_tasks", lambda _: None)(handle)

    def deliver(self, step, edge, tensor):
        self.calls.append(("deliver", step, edge, tensor))
        return bool(self.script.get("deliver", lambda *_: False)(step, edge, tensor))

    def close(self):
        self.closed_after = list(self.calls)
        self.closed.set()


@dataclass
class Host:
    """A task of a cluster whose sessions do what `script` says."""

    incarnation: int = INCARNATION
    task: Task = TASK
    cluster_name: str = ""
    users: Users = NO_USERS
    script: dict = field(default_factory=dict)
    sessions: list = field(default_factory=list)
    cluster: ClusterSpec = field(
        default_factory=lambda: ClusterSpec({"worker": {3: "127.0.0.1:1"}, "ps": ["127.0.0.1:2"]})
    )

    def info(self):
        device = DeviceRecord(Device(self.task, "CPU", 0), "cpu", self.incarnation)
        return ServerInfo(self.task, self.incarnation, self.cluster, (device,), 5)

    def open_master_session(self, rights=ALL_RIGHTS):
        self.sessions.append(Session(self.script))
        return self.sessions[-1]

    def open_worker_session(self, caller):
        return self.open_master_session()

    @property
    def calls(self):
        """What all sessions were asked."""
        return [call for session in self.sessions for call in session.calls]

    @property
    def started(self):
        """How many calls have begun."""
        return sum(session.started for session in self.sessions)

    @property
    def cancelled(self):
        """How many calls were cancelled."""
        return sum(session.cancelled for session in self.sessions)


def method_call(method, *args):
    """The body of an envelope that calls a method of a service."""
    envelope, _ = rpc_of(method).envelope(*args)
    return {"method_call": envelope.method_call}


def reset(method, *containers):
    """The body of an envelope that resets containers, by the method of a stream."""
    if method == PEER_METHOD:
        return method_call(WorkerService.reset, containers)
    return method_call(MasterSession.reset, containers, 1.0, FOREVER)


async def reset_on(peer, *containers):
    """Resets containers on the task of a peer."""
    info = await peer.connect(PATIENCE_S)
    await peer.call(WorkerService.reset, info.incarnation, containers)


def envelope_of(message):
    """The control part of a message, of either form."""
    opened = TemplateDecoder().open(message)
    return open_message(message)[0] if opened is None else opened.envelope


async def forever(*_):
    """A script for a call that never ends by itself."""
    await asyncio.Event().wait()


def transport(tls=None):
    """The transport that JFLOW_TRANSPORT and JFLOW_TLS_DIR say, as the server of `TASK` has it."""
    return TRANSPORTS["grpc"](load_tls(TASK) if tls is None else tls)


def server_of(host, tls=None):
    """A server of a host, which does not listen yet."""
    location = ServerLocation(machine=machine_id(), is_local=True)
    endpoint = Endpoint(host, Secret(TOKEN), location, host.cluster_name, host.users)
    return transport(tls).listener(endpoint.services())


def peer_of(task, address, token=TOKEN):
    """A connection to the worker service of a task."""
    caller = Caller(Secret(token), WORKER.name, Target(address, task=task))
    return Peer(transport(), task, caller)


@asynccontextmanager
async def peer_at(address, token=TOKEN):
    """A connection to the worker service of `TASK`, which is closed after the block."""
    peer = peer_of(TASK, address, token)
    try:
        yield peer
    finally:
        await peer.close()


def peers_of(cluster):
    """Connections of the first task of a cluster to all of them."""
    return ClusterTasks(cluster, transport(), Secret(TOKEN), next(iter(cluster.tasks())))


@asynccontextmanager
async def serving(host, port=0, tls=None):
    """A server of a host; gives its address."""
    server = server_of(host, tls)
    address = f"127.0.0.1:{await server.start(['127.0.0.1'], port)}"
    host.cluster = host.cluster.replace(host.task, address)
    try:
        yield address
    finally:
        await server.stop()


class Served:
    """A server that a test's thread starts and stops."""

    def __init__(self, host, port):
        self._context = serving(host, port)
        self.address = on_loop(self._context.__aenter__())
        self._stopped = False

    def stop(self):
        if not self._stopped:
            self._stopped = True
            on_loop(self._context.__aexit__(None, None, None))


@contextmanager
def served(host, port=0):
    """A server of a host, for a test that runs in a thread of its own."""
    server = Served(host, port)
    try:
        yield server
    finally:
        server.stop()


def listener_of(server):
    """The listener for data streams of a server that `served` gave."""
    return server._context.gen.ag_frame.f_locals["server"]._data


@asynccontextmanager
async def raw_server(handle):
    """A gRPC server that knows nothing of jflow: `handle(stream)` serves every stream.

    Args:
      handle: async function of a context with `read()` and `write(frame)`.
    """

    class Any(grpc.GenericRpcHandler):
        def service(self, _):
            # gRPC looks whether a handler is a coroutine function: partials are, lambdas are not.
            return grpc.stream_stream_rpc_method_handler(partial(_served, handle))

    server = grpc.aio.server(options=server_options())
    server.add_generic_rpc_handlers((Any(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def _served(handle, _, context):
    await handle(context)


@asynccontextmanager
async def raw_call(address, method=SESSION_METHOD):
    """A stream to a server, without anything that jflow's clients do by themselves."""
    async with aio_channel(address) as channel:
        call = channel.stream_stream(method)(wait_for_ready=True)
        call.target, call.service = Target(address), method.removeprefix("/")
        try:
            yield call
        finally:
            call.cancel()


async def met(context, service=MASTER.name, hello=None):
    """A raw server's end of a stream before the server introduces itself.

    The first envelope that is sent on it is the answer that ends the handshake. `hello` is the
    first frame, if it was read.
    """
    hello = await context.read() if hello is None else hello
    handshake = ServerHandshake(Secret(TOKEN), NO_USERS, service, hello)
    await context.write(handshake.challenge(new_nonce(), is_other=False))
    handshake.check(await context.read())
    return RawClient(context, handshake)


class RawClient:
    """Sends envelopes and receives them, one at a time, on a raw call."""

    def __init__(self, call, unanswered=None):
        self.call = call
        self.stream = MessageStream(GrpcStream(call))
        self._unanswered = unanswered

    async def send(self, tensors=(), **fields):
        if self._unanswered is not None:
            handshake, self._unanswered = self._unanswered, None
            await self.call.write(handshake.seal(pb.Envelope(**fields).SerializeToString()))
            return
        await self.stream.send(pb.Envelope(**fields), tensors)

    async def receive(self):
        """The next envelope and its tensors; None at the end of the stream."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.stream.receive()

    async def handshake(self, target=None, token=TOKEN, service=None):
        """Proves itself to the server and returns what that tells about itself."""
        meant, service = target or self.call.target, service or self.call.service
        handshake = CallerHandshake(Caller(Secret(token), service, meant), new_nonce())
        async with asyncio.timeout(PATIENCE_S):
            stream = GrpcStream(self.call, machine=machine_id())
            self.stream, info = await enter(stream, handshake)
        return info


@asynccontextmanager
async def connected(address, method=SESSION_METHOD):
    """A raw client after the handshake."""
    async with raw_call(address, method) as call:
        client = RawClient(call)
        await client.handshake()
        yield client


def large(n_mib=64):
    """A tensor of many chunks."""
    return np.arange(n_mib << 17, dtype=np.float64)


same = partial(np.testing.assert_array_equal, strict=True)

both_methods = pytest.mark.parametrize(
    "method", [SESSION_METHOD, PEER_METHOD], ids=["session", "peer"]
)


def beside_server(host, use):
    """Runs `use(address)` on the loop beside a server of the host."""

    async def check():
        async with serving(host) as address:
            await use(address)

    on_loop(check())


def with_client(host, use, method=SESSION_METHOD):
    """Runs `use(client)` on the loop with a client after the handshake."""

    async def check(address):
        async with connected(address, method) as client:
            await use(client)

    beside_server(host, check)


def with_peer(host, use):
    """Runs `use(peer)` on the loop with a connection of another server to the host."""

    async def check(address):
        async with peer_at(address) as peer:
            await use(peer)

    beside_server(host, check)


def cut_data(client):
    """Cuts the data stream of a client's session."""
    client._channel._data._connection.shutdown(socket.SHUT_RDWR)
