"""Calls that have templates: a server begins them inline, and forgets none of its checks."""

import asyncio
import weakref

import numpy as np
import pytest

from jflow import errors
from jflow.base.cluster import Task
from jflow.base.deadline import FOREVER, Deadline
from jflow.net.protocol import ReplySize
from jflow.net.protocol.credits import MAX_UNREAD_BYTES
from jflow.net.protocol.peer import Arrivals
from jflow.net.protocol.rpcs import RUN_PLANS, RUN_STEP
from jflow.net.protocol.run_rpcs import PlansRequest
from jflow.net.protocol.templates import TemplateEncoder, TemplateMessage
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.state.core import Staging
from jflow.state.effects import Effect
from tests.net.protocol.hosts import (
    INCARNATION,
    PATIENCE_S,
    TASK,
    Host,
    connected,
    eventually,
    eventually_async,
    forever,
    on_loop,
    peer_of,
    same,
    serving,
)

ASKER = Task("worker", 0)
ONE = np.float32(1)[None]


def with_peer(host, use, delivered=None):
    """Runs `use(peer)` on the loop beside a server of the host."""

    async def check():
        async with serving(host) as address:
            peer = peer_of(TASK, address)
            if delivered is not None:
                peer.arrivals = Arrivals(
                    str(ASKER), lambda step, edge, value: delivered.append((step, edge, value))
                )
            try:
                await peer.connect(PATIENCE_S)
                await use(peer)
            finally:
                await peer.close()

    on_loop(check())


def with_client(host, use):
    """Runs `use(client)` with a client whose calls the test makes by hand."""

    async def check():
        async with serving(host) as address, connected(address) as client:
            await use(client)

    on_loop(check())


def run_step(handle=1, feeds=(ONE,), call=7, incarnation=INCARNATION, times=(0.0, 0.0), **kwargs):
    """The control part of a request and its tensors."""
    request = RUN_STEP.prepared(handle, feeds, **kwargs)
    return request.control(TemplateEncoder(), call, incarnation, *times), feeds


# What the service is asked ------------------------------------------------------------------------


@pytest.mark.parametrize("effect", [None, Effect("client", 1, 5, 2, 3)])
def test_a_step_runs_with_what_its_caller_said(client, host, effect):
    for feeds in ([ONE], [], [ONE, np.array([b"text"], object)]):
        got = client.run_step(4, feeds, Deadline(PATIENCE_S), effect=effect)
        same(got, feeds)
        name, handle, deadline, given = host.calls[-1]
        assert (name, handle) == ("run", 4)
        assert 0 < deadline.remaining() <= PATIENCE_S
        same(given, feeds)
    client.run_step(4, [ONE], FOREVER, effect=effect)
    assert host.calls[-1][2].timeout is None
    assert host.sessions[0].effects == [effect] * 4


def test_plans_run_with_what_their_master_said():
    staging = Staging(Effect("client", 1, 5, 2, 3), False, ("a", "b"))

    async def check(peer):
        for step in (1, 2**63, 2**64 - 1):
            for each in (None, staging):
                same(await peer.run_plans(INCARNATION, step, 3, [ONE], staging=each), [ONE])
                assert host.calls[-1][:3] == ("run", step, 3)
                assert host.sessions[0].stagings[-1] == each

    host = Host()
    with_peer(host, check)


# Checks -------------------------------------------------------------------------------------------


def test_what_is_meant_for_another_incarnation_is_not_begun():
    async def check(client):
        await client.stream.send_control(*run_step(incarnation=INCARNATION + 1))
        reply, _ = await client.receive()
        assert (reply.id, reply.status.error_class) == (7, "RestartedError")
        await client.stream.send_control(*run_step(incarnation=0))
        assert (await client.receive())[0].id == 7

    host = Host()
    with_client(host, check)
    assert [call[0] for call in host.calls] == ["run"]


@pytest.mark.parametrize("is_blocking", [False, True])
def test_the_error_of_a_call_is_its_answer(is_blocking):
    async def bad(*_):
        if is_blocking:
            await asyncio.sleep(0)
        raise errors.NotFoundError("there is none", op="step/read")

    async def check(client):
        for _ in range(2):
            await client.stream.send_control(*run_step())
            reply, _ = await client.receive()
            assert (reply.id, reply.status.code) == (7, errors.Code.NOT_FOUND)
            assert (reply.status.message, reply.status.op) == ("there is none", "step/read")

    with_client(Host(script={"run": bad}), check)


@pytest.mark.parametrize("n", [16, 1 << 18])
def test_a_reply_that_was_sent_is_not_kept_until_the_next_call(n):
    """It may hold a lease on a variable, which the next update would copy because of it."""
    replies = []

    async def give(*_):
        value = np.zeros(n, np.float32)
        replies.append(weakref.ref(value))
        return [value]

    async def check(client):
        await client.stream.send_control(*run_step())
        assert (await client.receive())[0].id == 7
        await eventually_async(lambda: replies[0]() is None)

    with_client(Host(script={"run": give}), check)


def test_a_call_that_waits_is_cancelled_and_others_go_on_meanwhile():
    async def check(client):
        await client.stream.send_control(*run_step(1, call=7))
        await eventually_async(lambda: host.started == 1)
        host.script.clear()
        await client.stream.send_control(*run_step(2, call=8))
        assert (await client.receive())[0].id == 8
        await client.send(cancel=pb.Cancel(id=7))
        reply, _ = await client.receive()
        assert (reply.id, reply.status.code) == (7, errors.Code.CANCELLED)
        assert host.cancelled == 1

    host = Host(script={"run": forever})
    with_client(host, check)


def test_calls_that_wait_end_with_the_session(host):
    host.script["run"] = forever

    async def check(client):
        await client.stream.send_control(*run_step())
        await eventually_async(lambda: host.started == 1)

    with_client(host, check)
    eventually(lambda: host.cancelled == 1 and host.sessions[0].closed.is_set())


def test_a_step_with_a_large_reply_waits_for_credits_before_it_begins():
    size = ReplySize(MAX_UNREAD_BYTES)
    gate = asyncio.Event()

    async def gated(*_):
        await gate.wait()
        return [ONE]

    async def check(client):
        for call in (7, 8):
            await client.stream.send_control(*run_step(call=call))
        await eventually_async(lambda: host.started == 1)
        await client.stream.send_control(*run_step(call=9, incarnation=3))
        assert (await client.receive())[0].id == 9, "the stream is read meanwhile"
        assert host.started == 1, "there is no room for the reply of the other one"
        gate.set()
        assert {(await client.receive())[0].id for _ in range(2)} == {7, 8}

    host = Host(script={"run": gated, "reply_size": size})
    with_client(host, check)
    assert size.n_bytes == ONE.nbytes


def test_a_body_that_the_service_has_not_is_an_error():
    request = RUN_PLANS.prepared(PlansRequest(5, 3, []))

    async def check(client):
        await client.stream.send_control(request.control(TemplateEncoder(), 7, INCARNATION))
        reply, _ = await client.receive()
        assert (reply.id, reply.status.code) == (7, errors.Code.INVALID_ARGUMENT)

    with_client(Host(), check)


def test_the_answer_has_the_form_of_the_request():
    async def check(client):
        await client.stream.send_control(*run_step())
        assert isinstance(await client.stream.receive_any(), TemplateMessage)
        await client.send([ONE], id=8, run_step=pb.RunStep(handle=1))
        assert not isinstance(await client.stream.receive_any(), TemplateMessage)

    with_client(Host(), check)


# Values on replies --------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [ONE, np.array([b"text", b""], object), np.zeros((0, 2))])
def test_values_on_a_reply_arrive_and_the_others_are_returned(value):
    delivered = []

    async def check(peer):
        for step in (5, 6):
            same(await peer.run_plans(INCARNATION, step, 1, [ONE]), [ONE])
        assert host.sessions[0].caller == ASKER

    host = Host(script={"piggybacked": {3: value, 4: None, 9: ONE}})
    with_peer(host, check, delivered)
    assert [one[:2] for one in delivered] == [(s, e) for s in (5, 6) for e in (3, 9, 4)]
    same(delivered[0][2], value)
    same(delivered[1][2], ONE)
    assert delivered[2][2] is None


def test_nothing_is_piggybacked_where_nothing_takes_it():
    async def check(peer):
        await peer.run_plans(INCARNATION, 5, 1, [ONE])
        assert host.sessions[0].caller is None

    host = Host()
    with_peer(host, check)


def test_values_on_the_reply_of_traced_plans_arrive_beside_the_records():
    delivered = []

    async def check(peer):
        for step in (5, 6):
            records = []
            same(await peer.run_plans(INCARNATION, step, 1, [ONE], records=records), [ONE])
            assert records == []  # the host notes nothing

    with_peer(Host(script={"piggybacked": {3: ONE, 4: None}}), check, delivered)
    assert [one[:2] for one in delivered] == [(s, e) for s in (5, 6) for e in (3, 4)]
    same(delivered[0][2], ONE)
    assert delivered[1][2] is None


def test_a_reply_that_has_fewer_tensors_than_edges_is_malformed():
    async def check(peer):
        link = peer._link
        waiting = asyncio.ensure_future(peer.run_plans(INCARNATION, 5, 1, []))
        await eventually_async(lambda: link._pending)
        (call,) = link._pending
        link._receive((pb.Envelope(id=call, ran_plans=pb.RanPlans(edges=[1, 2])), [ONE]))
        with pytest.raises(errors.InternalError, match="tensor for each of 2 edges"):
            await waiting

    with_peer(Host(script={"run": forever}), check, [])
