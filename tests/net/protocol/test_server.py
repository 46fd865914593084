"""A server before fake hosts: what is answered, and how calls end."""

import asyncio
import logging

import grpc
import numpy as np
import pytest

from jflow import errors
from jflow.base.cluster import ClusterSpec, Device, Task
from jflow.base.deadline import FOREVER
from jflow.net.protocol import DeviceRecord, MasterSession, Registered
from jflow.net.protocol.plan_codec import plan_to_proto
from jflow.net.protocol.signatures import rpc_of
from jflow.net.protocol.transport import BrokenStreamError
from jflow.net.protocol.v1 import service_pb2 as pb
from tests.net.protocol.hosts import (
    INCARNATION,
    PEER_METHOD,
    PLAN,
    TASK,
    Host,
    RawClient,
    beside_server,
    both_methods,
    connected,
    eventually_async,
    forever,
    large,
    method_call,
    on_loop,
    raw_call,
    reset,
    same,
    serving,
    with_client,
)

# Handshakes ---------------------------------------------------------------------------------------


@both_methods
def test_a_stream_begins_with_the_server_s_introduction(method):
    async def check(address):
        async with raw_call(address, method) as call:
            info = await RawClient(call).handshake()
        assert (info.task, info.incarnation) == (TASK, INCARNATION)
        assert info.cluster == ClusterSpec({"worker": {3: address}, "ps": ["127.0.0.1:2"]})
        (device,) = info.devices
        assert (str(device.device), device.platform) == (f"{TASK}/device:CPU:0", "cpu")
        assert info.n_compiled == 5

    beside_server(Host(), check)


@both_methods
def test_a_stream_that_does_not_begin_with_hello_is_closed(method):
    host = Host()

    async def check(address):
        async with raw_call(address, method) as call:
            client = RawClient(call)
            await client.send(id=1, run_step=pb.RunStep(handle=1))
            with pytest.raises(BrokenStreamError, match="did not begin with the handshake"):
                await client.receive()

    beside_server(host, check)
    assert host.sessions == []


# What is answered ---------------------------------------------------------------------------------


@pytest.mark.parametrize("incarnation", [0, INCARNATION])
@both_methods
def test_a_call_for_this_life_or_for_any_is_answered(method, incarnation):
    async def check(client):
        await client.send(id=2, incarnation=incarnation, **reset(method, "a"))
        reply, _ = await client.receive()
        assert (reply.id, reply.status.code) == (2, 0)

    host = Host()
    with_client(host, check, method)
    assert [call[:2] for call in host.calls] == [("reset", ["a"])]


@both_methods
def test_a_call_for_another_life_of_the_task_is_aborted(method):
    async def check(client):
        await client.send(id=2, incarnation=12345, **reset(method))
        reply, _ = await client.receive()
        assert reply.status.code == errors.Code.ABORTED
        assert reply.status.task == str(TASK)
        assert "has restarted" in reply.status.message
        await client.send(id=3, **reset(method))
        reply, _ = await client.receive()
        assert (reply.id, reply.status.code) == (3, 0), "the stream goes on"

    host = Host()
    with_client(host, check, method)
    assert [call[:2] for call in host.calls] == [("reset", [])]


def test_what_is_sent_to_another_life_of_the_task_is_dropped():
    async def check(client):
        await client.send(incarnation=12345, send_tensors=pb.SendTensors(step=1, signals=[1]))
        await client.send(incarnation=INCARNATION, send_tensors=pb.SendTensors(step=1, signals=[2]))
        await client.send(id=2, **reset(PEER_METHOD))
        await client.receive()

    host = Host()
    with_client(host, check, PEER_METHOD)
    assert host.calls == [("deliver", 1, 2, None), ("reset", [])]


def test_a_master_is_asked_what_the_messages_say():
    tensors = [np.arange(3, dtype=np.int8), np.zeros((2, 2))]
    record = DeviceRecord(Device(Task("ps", 0), "GPU", 1), "cuda", 77)

    async def devices(*_):
        return [record]

    async def registered(*_):
        return Registered(9, ("a", "b"))

    async def check(client):
        ask = MasterSession.list_devices, [Task("ps", 0)], 1.5, True, FOREVER
        await client.send(id=2, **method_call(*ask))
        assert rpc_of(MasterSession.list_devices).read(*await client.receive()) == [record]
        register = pb.RegisterStep(
            plans=[plan_to_proto(PLAN)],
            n_fetches=4,
            artifacts=[pb.Artifact(digest="one"), pb.Artifact(digest="two")],
            connect_timeout_s=2.0,
        )
        await client.send(tensors, id=3, register_step=register)
        reply, _ = await client.receive()
        assert (reply.registered.handle, list(reply.registered.missing)) == (9, ["a", "b"])
        limits = {"timeout_s": 0.25, "remaining_s": 0.2}
        await client.send(tensors, id=4, run_step=pb.RunStep(handle=9), **limits)
        _, (one, two) = await client.receive()
        same(one, tensors[0])
        same(two, tensors[1])
        await client.send(id=5, run_step=pb.RunStep(handle=9))
        await client.receive()

    host = Host(script={"list_devices": devices, "register": registered})
    with_client(host, check)
    listed, register, run, endless = host.calls
    assert listed == ("list_devices", [Task("ps", 0)], 1.5, True, FOREVER)
    assert register[:3] == ("register", [PLAN], 4)
    assert list(register[3]) == ["one", "two"]
    same(register[3]["two"], tensors[1])
    assert register[4] == 2.0
    assert run[:2] == ("run", 9)
    assert run[2].timeout == 0.25, "what the caller gave, for messages"
    assert run[2].remaining() <= 0.2
    assert endless == ("run", 9, FOREVER, [])


def test_a_worker_is_asked_what_the_messages_say():
    tensor = np.arange(3.0)

    async def check(client):
        register = pb.RegisterPlans(
            plans=[plan_to_proto(PLAN)], artifacts=[pb.Artifact(digest="one")]
        )
        await client.send([tensor], id=2, register_plans=register)
        reply, _ = await client.receive()
        assert reply.registered.handle == 1
        await client.send([tensor], send_tensors=pb.SendTensors(step=2**64 - 1, edges=[6]))
        await client.send(send_tensors=pb.SendTensors(step=5, signals=[7]))
        await client.send(release=pb.Release(handles=[8, 9]))
        await client.send([tensor], id=3, run_plans=pb.RunPlans(step=5, handle=1))
        _, (value,) = await client.receive()
        same(value, tensor)

    host = Host()
    with_client(host, check, PEER_METHOD)
    register, deliver, signal, *released, run = host.calls
    assert register[:2] == ("register", [PLAN])
    same(register[2]["one"], tensor)
    assert deliver[:3] == ("deliver", 2**64 - 1, 6)
    same(deliver[3], tensor)
    assert signal == ("deliver", 5, 7, None)
    assert released == [("release", 8), ("release", 9)]
    assert run[:3] == ("run", 5, 1)


def test_calls_of_one_stream_run_at_the_same_time():
    gate = {}

    async def run(handle, *_):
        if handle == 1:
            await gate["second is there"].wait()
        else:
            gate["second is there"].set()
        return []

    async def check(client):
        gate["second is there"] = asyncio.Event()
        await client.send(id=2, run_step=pb.RunStep(handle=1))
        await client.send(id=3, run_step=pb.RunStep(handle=2))
        assert {(await client.receive())[0].id for _ in range(2)} == {2, 3}

    with_client(Host(script={"run": run}), check)


@pytest.mark.parametrize(
    "kind", sorted(errors.OpError.__subclasses__(), key=lambda k: k.error_code), ids=str
)
def test_an_error_of_a_call_is_its_answer(kind):
    async def fail(*_):
        raise kind("it broke", op="x/read")

    async def check(client):
        await client.send(id=2, run_step=pb.RunStep())
        reply, _ = await client.receive()
        status = reply.status
        assert (status.code, status.message) == (kind.error_code, "it broke")
        assert (status.op, status.task) == ("x/read", str(TASK))

    with_client(Host(script={"run": fail}), check)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyError("no such key"), errors.Code.INTERNAL),
        (ValueError("bad name \udc80"), errors.Code.INTERNAL),
        (errors.NotFoundError("bad name \udc80"), errors.Code.NOT_FOUND),
        (errors.AbortedError("x" * (5 << 20)), errors.Code.ABORTED),
    ],
    ids=["foreign", "foreign and not Unicode", "not Unicode", "5 MiB"],
)
def test_every_error_is_answered_however_strange(error, code, caplog):
    # What is no Unicode cannot be reported between the processes of pytest-xdist.
    caplog.set_level(logging.CRITICAL, logger="jflow.net.protocol.dispatcher")

    async def fail(*_):
        raise error

    async def check(client):
        await client.send(id=2, run_step=pb.RunStep())
        reply, _ = await client.receive()
        assert reply.id == 2
        assert reply.status.code == code
        assert "Traceback" not in reply.status.message
        assert __file__ not in reply.status.message

    with_client(Host(script={"run": fail}), check)


def test_an_answer_that_cannot_be_sent_is_answered_with_an_error():
    async def registered(*_):
        return Registered(1, ("x" * (5 << 20),))

    async def check(client):
        await client.send(id=2, register_step=pb.RegisterStep())
        reply, _ = await client.receive()
        assert reply.id == 2
        assert reply.status.code == errors.Code.RESOURCE_EXHAUSTED

    with_client(Host(script={"register": registered}), check)


# Cancelling and stopping --------------------------------------------------------------------------


@both_methods
def test_a_cancelled_call_is_cancelled_where_it_runs_and_says_so(method):
    host = Host(script={"reset": forever})

    async def check(client):
        await client.send(id=2, **reset(method))
        await eventually_async(lambda: host.started == 1)
        await client.send(cancel=pb.Cancel(id=99))
        await client.send(cancel=pb.Cancel(id=2))
        reply, _ = await client.receive()
        assert (reply.id, reply.status.code) == (2, errors.Code.CANCELLED)
        assert host.cancelled == 1
        await client.send(cancel=pb.Cancel(id=2))
        host.script.clear()
        await client.send(id=3, **reset(method))
        assert (await client.receive())[0].id == 3

    with_client(host, check, method)


@both_methods
def test_when_a_stream_ends_its_calls_are_cancelled_and_then_its_session_is_closed(method):
    async def slow(*_):
        try:
            await forever()
        finally:
            # A call that tidies up may take its time; the session is closed after it.
            await asyncio.sleep(0)
            session.calls.append(("tidied up",))

    async def check(address):
        nonlocal session
        async with connected(address, method) as client:
            await client.send(id=2, **reset(method))
            await client.send(id=3, **reset(method))
            await eventually_async(lambda: len(host.sessions) == 1)
            (session,) = host.sessions
            await eventually_async(lambda: session.started == 2)
        await eventually_async(session.closed.is_set)

    session = None
    host = Host(script={"reset": slow})
    beside_server(host, check)
    assert session.closed_after[2:] == [("tidied up",), ("tidied up",)]
    assert session.cancelled == 2


@both_methods
def test_stopping_the_server_cancels_calls_and_closes_sessions(method):
    host = Host(script={"reset": forever})

    async def check():
        async with serving(host) as address:
            context = connected(address, method)
            client = await context.__aenter__()
            await client.send(id=2, **reset(method))
            await eventually_async(lambda: host.started == 1)
        with pytest.raises(BrokenStreamError, match=r"^unavailable:"):
            await client.receive()
        assert await client.call.code() is grpc.StatusCode.UNAVAILABLE
        await context.__aexit__(None, None, None)
        await eventually_async(host.sessions[0].closed.is_set)
        assert host.cancelled == 1

    on_loop(check())


def test_small_answers_pass_between_the_chunks_of_a_large_one():
    tensor = large()

    async def run(handle, *_):
        return [tensor] if handle == 1 else [np.float32(handle)]

    async def check(client):
        await client.send(id=2, run_step=pb.RunStep(handle=1))
        await eventually_async(lambda: host.started == 1)
        await client.send(id=3, run_step=pb.RunStep(handle=2))
        reply, (value,) = await client.receive()
        assert (reply.id, value) == (3, 2.0), "the small one asked later comes first"
        reply, (value,) = await client.receive()
        assert reply.id == 2
        same(value, tensor)

    host = Host(script={"run": run})
    with_client(host, check)


def test_cancelling_a_call_whose_answer_is_under_way_leaves_the_stream_whole():
    tensor = large()

    async def run(handle, *_):
        return [tensor] if handle == 1 else []

    async def check(client):
        await client.send(id=2, run_step=pb.RunStep(handle=1))
        # Part of the answer is here and, because nothing reads on, the rest waits at the server.
        assembler = client.stream._framing._assembler
        assert assembler.feed(await client.call.read()) is None
        await client.send(cancel=pb.Cancel(id=2))
        await client.send(id=3, run_step=pb.RunStep(handle=2))
        replies = {}
        while 3 not in replies:
            reply, _ = await client.receive()
            replies[reply.id] = reply.status.code
        assert replies[3] == 0
        if assembler.unfinished:
            reply, (value,) = await client.receive()
            same(value, tensor)
        assert assembler.unfinished == {}, "no memory waits for what will never come"

    with_client(Host(script={"run": run}), check)
