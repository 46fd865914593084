"""One server's connection to another before a fake host: calls, losses and lives."""

import asyncio
import time
from contextlib import suppress

import numpy as np
import pytest

from jflow import errors
from jflow.base.cluster import ClusterSpec, Device, Task
from jflow.base.values import BlockArray
from jflow.net.protocol import Registered, settings
from jflow.net.protocol.rpcs import WORKER
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.plan import Feed, Plan
from tests.net.protocol.hosts import (
    INCARNATION,
    PATIENCE_S,
    TASK,
    Host,
    delivered,
    eventually_async,
    forever,
    large,
    met,
    on_loop,
    peer_at,
    peer_of,
    peers_of,
    raw_server,
    reset_on,
    same,
    serving,
    with_peer,
)
from tests.ports import free_ports

PLAN = Plan(Device(TASK, "CPU", 0), 3, (), ((Feed(0, 2),),))
OTHER = INCARNATION + 1


# Calls --------------------------------------------------------------------------------------------


def test_a_peer_introduces_itself_once_for_all_that_connect():
    async def check(peer):
        infos = await asyncio.gather(*(peer.connect(PATIENCE_S) for _ in range(10)))
        assert {(info.task, info.incarnation) for info in infos} == {(TASK, INCARNATION)}
        await reset_on(peer)

    host = Host()
    with_peer(host, check)
    assert len(host.sessions) == 1


def test_the_host_is_asked_what_the_peer_was():
    tensor = np.arange(3.0)

    async def registered(*_):
        return Registered(9, ("a", "b"))

    async def check(peer):
        assert await peer.register(INCARNATION, [PLAN], {"d": tensor}) == Registered(9, ("a", "b"))
        await delivered(peer, 2**64 - 1, {6: tensor})
        await delivered(peer, 5, {7: None})
        await peer.release(INCARNATION, 8)
        (got,) = await peer.run_plans(INCARNATION, 5, 9, [tensor])
        same(got, tensor)
        await reset_on(peer, "", "box")

    host = Host(script={"register": registered})
    with_peer(host, check)
    register, deliver, signal, release, run, reset = host.calls
    assert register[:2] == ("register", [PLAN])
    same(register[2]["d"], tensor)
    assert deliver[:3] == ("deliver", 2**64 - 1, 6)
    same(deliver[3], tensor)
    assert signal == ("deliver", 5, 7, None)
    assert release == ("release", 8)
    assert run[:3] == ("run", 5, 9)
    assert reset == ("reset", ["", "box"])


def test_an_array_in_several_buffers_arrives_as_one():
    sent = [BlockArray([np.full((n, 64), i) for i in range(4)]) for n in (1, 1000)]

    async def check(peer):
        # Often enough for shared memory, where there is any.
        for step in range(4):
            await delivered(peer, step, dict(enumerate(sent)))
        await peer.run_plans(INCARNATION, 9, 1, [])

    host = Host()
    with_peer(host, check)
    *came, _ = host.calls
    assert len(came) == 8
    for _, _, edge, got in came:
        same(got, np.asarray(sent[edge]))


def test_an_error_of_the_host_is_raised_where_it_was_asked():
    async def fail(*_):
        raise errors.FailedPreconditionError("not yet", op="x")

    async def check(peer):
        await peer.connect(PATIENCE_S)
        with pytest.raises(errors.FailedPreconditionError, match="not yet") as caught:
            await peer.run_plans(INCARNATION, 1, 1, [])
        assert (caught.value.op, caught.value.task) == ("x", str(TASK))

    with_peer(Host(script={"run": fail}), check)


def test_calls_at_the_same_time_get_their_own_answers():
    async def check(peer):
        await peer.connect(PATIENCE_S)
        sent = [np.full(i, i) for i in range(100)]
        answers = await asyncio.gather(
            *(peer.run_plans(INCARNATION, i, 1, [tensor]) for i, tensor in enumerate(sent))
        )
        for (got,), tensor in zip(answers, sent, strict=True):
            same(got, tensor)

    with_peer(Host(), check)


def test_large_tensors_pass_both_ways_and_small_calls_between_them():
    order = []

    async def call(peer, name, tensor):
        (got,) = await peer.run_plans(INCARNATION, 1, 1, [tensor])
        same(got, tensor)
        order.append(name)

    async def check(peer):
        await peer.connect(PATIENCE_S)
        slow = asyncio.create_task(call(peer, "large", large()))
        await asyncio.sleep(0)
        await call(peer, "small", np.zeros(1))
        await slow
        assert order == ["small", "large"]

    with_peer(Host(), check)


def test_a_request_that_is_too_large_is_refused_and_the_connection_stays():
    async def check(peer):
        with pytest.raises(errors.ResourceExhaustedError):
            await reset_on(peer, "x" * (5 << 20))
        await reset_on(peer, "x")

    host = Host()
    with_peer(host, check)
    assert len(host.sessions) == 1


# Losses -------------------------------------------------------------------------------------------


def test_a_task_that_is_not_there_is_unavailable_by_its_name_and_in_time():
    async def check():
        (port,) = free_ports(1)
        address = f"127.0.0.1:{port}"
        async with peer_at(address) as peer:
            begun = time.monotonic()
            with pytest.raises(errors.UnavailableError, match=f"{TASK} at {address}") as caught:
                await peer.connect(0.2)
            assert time.monotonic() - begun < PATIENCE_S
            assert caught.value.task == str(TASK)

    on_loop(check())


def test_a_task_that_never_answers_hello_is_unavailable_in_time():
    async def silent(context):
        await context.read()
        await forever()

    async def check():
        async with raw_server(silent) as address, peer_at(address) as peer:
            begun = time.monotonic()
            with pytest.raises(errors.UnavailableError, match=f"{TASK} at {address}"):
                await peer.connect(0.1)
            assert time.monotonic() - begun < PATIENCE_S

    on_loop(check())


def test_a_task_of_no_name_is_an_error_of_jflow():
    async def nameless(context):
        stream = await met(context, WORKER.name)
        await stream.send(id=1, server_info=pb.ServerInfo(task="nonsense"))
        await forever()

    async def check():
        async with raw_server(nameless) as address, peer_at(address) as peer:
            with pytest.raises(errors.OpError):
                await peer.connect(PATIENCE_S)

    on_loop(check())


def test_a_wrong_token_is_unauthenticated():
    async def check():
        host = Host()
        async with serving(host) as address, peer_at(address, "wrong") as peer:
            for call, args in (
                (peer.connect, (PATIENCE_S,)),
                (reset_on, (peer,)),
                (delivered, (peer, 1, {1: None})),
            ):
                with pytest.raises(errors.UnauthenticatedError, match="JFLOW_TOKEN") as caught:
                    await call(*args)
                assert caught.value.task == str(TASK)
        assert host.sessions == []

    on_loop(check())


def test_when_the_server_stops_calls_under_way_and_later_ones_are_unavailable():
    async def check():
        host = Host(script={"run": forever})
        async with serving(host) as address:
            peer = peer_of(TASK, address)
            await peer.connect(PATIENCE_S)
            calls = [asyncio.create_task(peer.run_plans(INCARNATION, i, 1, [])) for i in range(3)]
            await eventually_async(lambda: host.started == 3)
        for call in calls:
            with pytest.raises(errors.UnavailableError, match=str(TASK)) as caught:
                await asyncio.wait_for(call, PATIENCE_S)
            assert caught.value.task == str(TASK)
        with pytest.raises(errors.UnavailableError, match=str(TASK)):
            await peer.connect(0.1)
        await peer.release(INCARNATION, 1)
        await peer.close()

    on_loop(check())


def test_plans_that_are_registered_after_their_caller_gave_up_are_released(monkeypatch):
    monkeypatch.setattr(settings, "GRACE_S", 0.01)
    done, goes_on = asyncio.Event(), asyncio.Event()

    async def registered(*_):
        while not goes_on.is_set():  # as a task that is stopped for a while
            with suppress(asyncio.CancelledError):
                await goes_on.wait()
        return Registered(9)

    host = Host(script={"register": registered, "release": lambda _: done.set()})

    async def check(peer):
        await peer.connect(PATIENCE_S)
        call = asyncio.create_task(peer.register(INCARNATION, [PLAN], {}))
        await eventually_async(lambda: host.started == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        goes_on.set()
        await asyncio.wait_for(done.wait(), PATIENCE_S)
        assert host.calls[-1] == ("release", 9)

    with_peer(host, check)


def test_closing_fails_the_calls_under_way():
    host = Host(script={"run": forever})

    async def check(peer):
        await peer.connect(PATIENCE_S)
        call = asyncio.create_task(peer.run_plans(INCARNATION, 1, 1, []))
        await eventually_async(lambda: host.started == 1)
        await peer.close()
        with pytest.raises(errors.UnavailableError):
            await asyncio.wait_for(call, PATIENCE_S)
        await eventually_async(host.sessions[0].closed.is_set)
        assert host.cancelled == 1
        await peer.close()

    with_peer(host, check)


# Lives --------------------------------------------------------------------------------------------


def test_what_is_meant_for_one_life_of_a_task_is_refused_when_another_one_answers():
    async def check():
        first, second = Host(INCARNATION), Host(OTHER)
        async with serving(first) as address:
            peer = peer_of(TASK, address)
            await peer.connect(PATIENCE_S)
            await peer.run_plans(INCARNATION, 1, 1, [])
        async with serving(second, int(address.rpartition(":")[2])):
            await eventually_async(lambda: peer._link.is_broken)
            for call, args in ((peer.run_plans, (2, 1, [])), (peer.register, ([PLAN], {}))):
                with pytest.raises(errors.AbortedError, match=f"{TASK} at {address} has restart"):
                    await call(INCARNATION, *args)
            await peer.release(INCARNATION, 1)
            assert second.calls == []
            assert (await peer.connect(PATIENCE_S)).incarnation == OTHER
            assert await peer.run_plans(OTHER, 3, 1, []) == []
            await peer.close()

    on_loop(check())


def test_a_connection_that_broke_is_made_again_to_the_same_life():
    async def check():
        host = Host()
        async with serving(host) as address:
            peer = peer_of(TASK, address)
            await reset_on(peer)
        async with serving(host, int(address.rpartition(":")[2])):
            await eventually_async(lambda: peer._link.is_broken)
            assert await peer.run_plans(INCARNATION, 2, 1, []) == []
            await peer.close()
        assert len(host.sessions) == 2

    on_loop(check())


# Peers --------------------------------------------------------------------------------------------


def test_peers_have_one_connection_for_each_task():
    async def check():
        one, other = Host(task=Task("a", 0)), Host(task=Task("b", 1))
        async with serving(one) as first, serving(other) as second:
            peers = peers_of(ClusterSpec({"a": [first], "b": {1: second}}))
            assert peers[one.task] is peers[one.task]
            assert (await peers[one.task].connect(PATIENCE_S)).task == one.task
            await delivered(peers[other.task], 1, {2: None})
            if (sending := peers.deliver(other.task, 1, {3: np.zeros(2)})) is not None:
                await sending
            await eventually_async(lambda: len(other.calls) == 2)
            assert [call[:3] for call in other.calls] == [("deliver", 1, 2), ("deliver", 1, 3)]
            assert len(other.sessions) == 1
            await peers.close()
            await eventually_async(other.sessions[0].closed.is_set)

    on_loop(check())


def test_a_task_that_is_not_in_the_cluster_is_an_error_that_says_which_are():
    peers = peers_of(ClusterSpec({"a": ["h:1"]}))
    with pytest.raises(errors.InvalidArgumentError, match=r"no job 'b'.*\['a'\]"):
        peers[Task("b", 0)]
    with pytest.raises(errors.InvalidArgumentError, match=r"no task 1.*\[0\]"):
        peers[Task("a", 1)]


def test_a_task_is_called_where_the_cluster_says_it_is_now():
    async def check():
        host = Host(task=Task("a", 0))
        (port,) = free_ports(1)
        peers = peers_of(ClusterSpec({"a": [f"127.0.0.1:{port}"]}))
        with pytest.raises(errors.UnavailableError):
            await peers[host.task].connect(0.05)
        async with serving(host) as address:
            peers.replace_members(ClusterSpec({"a": [address]}), {})
            assert (await peers[host.task].connect(PATIENCE_S)).task == host.task
            await peers.close()

    on_loop(check())
