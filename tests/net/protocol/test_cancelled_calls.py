"""Calls from one server to another that are cancelled: neither end is left with a trace of them."""

import asyncio
import gc
from contextlib import asynccontextmanager

import numpy as np
import pytest

from jflow import errors
from jflow.net.protocol import settings
from jflow.net.protocol.rpcs import WORKER
from jflow.net.protocol.v1 import service_pb2 as pb
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
    raw_server,
    reset_on,
    same,
    with_peer,
)
from tests.ports import free_ports


def test_cancelling_a_call_cancels_it_at_the_other_end():
    host = Host(script={"run": forever})

    async def check(peer):
        await peer.connect(PATIENCE_S)
        call = asyncio.create_task(peer.run_plans(INCARNATION, 1, 1, []))
        await eventually_async(lambda: host.started == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await eventually_async(lambda: host.cancelled == 1)
        await reset_on(peer)

    with_peer(host, check)
    assert len(host.sessions) == 1


@pytest.mark.parametrize("n_cancellations", [1, 2])
def test_a_call_that_was_done_before_it_could_be_cancelled_gives_its_reply(n_cancellations):
    """The reply may hold an element of a queue, which must not be lost."""

    async def done_all_the_same(*_):
        try:
            await asyncio.sleep(PATIENCE_S)
        except asyncio.CancelledError:
            return [np.arange(3)]

    host = Host(script={"run": done_all_the_same})

    async def check(peer):
        await peer.connect(PATIENCE_S)
        call = asyncio.create_task(peer.run_plans(INCARNATION, 1, 1, []))
        await eventually_async(lambda: host.started == 1)
        for _ in range(n_cancellations):
            call.cancel()
            await asyncio.sleep(0)
        (got,) = await call
        same(got, np.arange(3))

    with_peer(host, check)


def test_a_cancelled_call_that_is_never_answered_ends_all_the_same(monkeypatch):
    monkeypatch.setattr(settings, "GRACE_S", 0.1)

    async def check():
        async with _stuck_server() as (address, _, _), peer_at(address) as peer:
            await peer.connect(PATIENCE_S)
            call = asyncio.create_task(peer.run_plans(INCARNATION, 1, 1, []))
            await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    on_loop(check())


@asynccontextmanager
async def _stuck_server():
    """A server that reads nothing after Hello until `go_on` is set, and then everything.

    Gives its address, the event, and what it read: envelopes with the numbers of their tensors.
    """
    go_on, read = asyncio.Event(), []

    async def handle(context):
        stream = await met(context, WORKER.name)
        await stream.send(id=1, server_info=pb.ServerInfo(task=str(TASK), incarnation=INCARNATION))
        await go_on.wait()
        while (received := await stream.receive()) is not None:
            envelope, tensors = received
            read.append((envelope, len(tensors)))
            if envelope.id:
                await stream.send(id=envelope.id)

    async with raw_server(handle) as address:
        try:
            yield address, go_on, read
        finally:
            go_on.set()


@pytest.mark.parametrize("what", ["run", "deliver"])
def test_cancelling_what_is_still_being_sent_leaves_the_connection_whole(what):
    """One step's deadline must not cost other steps their connection, or the server memory."""

    async def check():
        async with _stuck_server() as (address, go_on, read), peer_at(address) as peer:
            await peer.connect(PATIENCE_S)
            call = (
                peer.run_plans(INCARNATION, 1, 1, [large()])
                if what == "run"
                else delivered(peer, 1, {1: large()})
            )
            sending = asyncio.create_task(call)
            # It has begun, and it cannot end before the other end reads on.
            await eventually_async(peer._link._stream._writing.locked)
            sending.cancel()
            go_on.set()
            await asyncio.wait([sending])
            await peer.run_plans(INCARNATION, 2, 7, [])
            handles = [e.run_plans.handle for e, _ in read if e.WhichOneof("body") == "run_plans"]
            assert handles[-1] == 7
            assert peer._link is not None
            assert not peer._link.is_broken

    on_loop(check())


@asynccontextmanager
async def _nothing_unseen():
    """A block after which no error is left that nothing has looked at: the loop would log it."""
    loop, unseen = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: unseen.append(context))
    try:
        yield
        await asyncio.sleep(0)  # what is done lets go of what it was waiting for
        gc.collect()
        assert unseen == []
    finally:
        loop.set_exception_handler(None)


@pytest.mark.parametrize("what", ["run", "deliver", "release"])
def test_what_cannot_be_sent_any_more_is_no_error_once_it_was_cancelled(what):
    """As by a step that has ended, to a task that is killed then."""

    async def check():
        async with _nothing_unseen():
            await _lose_a_task_after_cancelling(what)

    on_loop(check())


async def _lose_a_task_after_cancelling(what):
    """Sends two messages, of which the second waits for the first one, to a task that is lost."""
    async with _stuck_server() as (address, _, _):
        peer = peer_of(TASK, address)
        await peer.connect(PATIENCE_S)
        first = asyncio.create_task(delivered(peer, 1, {1: large()}))
        await eventually_async(peer._link._stream._writing.locked)
        calls = {
            "run": lambda: peer.run_plans(INCARNATION, 1, 1, []),
            "deliver": lambda: delivered(peer, 2, {1: large()}),
            "release": lambda: peer.release(INCARNATION, 8),
        }
        second = asyncio.create_task(calls[what]())
        await asyncio.sleep(0)
        first.cancel()
        second.cancel()
        await asyncio.wait([first, second])
    await eventually_async(lambda: not peer.connection)
    await peer.close()


def test_an_answer_that_comes_as_its_call_is_cancelled_is_seen():
    """In one iteration of the event loop, whichever is first."""

    async def check():
        async with _stuck_server() as (address, _, _), peer_at(address) as peer, _nothing_unseen():
            await peer.connect(PATIENCE_S)
            for is_first in (False, True):
                call = asyncio.create_task(peer.run_plans(INCARNATION, 1, 1, []))
                await eventually_async(lambda: peer._link._pending)
                (reply,) = peer._link._pending.values()
                if is_first:
                    call.cancel()
                reply.put(errors.CancelledError("the call was cancelled; it waited"))
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                assert not peer._link._pending
                del call, reply

    on_loop(check())


def test_a_cancellation_does_not_overtake_its_call():
    """Else the other end would begin what is not wanted any more, and nothing would stop it."""

    async def check():
        async with _stuck_server() as (address, go_on, read), peer_at(address) as peer:
            await peer.connect(PATIENCE_S)
            sending = asyncio.create_task(peer.run_plans(INCARNATION, 1, 1, [large()]))
            await eventually_async(peer._link._stream._writing.locked)
            sending.cancel()
            await asyncio.sleep(0)
            go_on.set()
            await eventually_async(lambda: len(read) == 2)
            (call, _), (cancellation, _) = read
            assert call.WhichOneof("body") == "run_plans"
            assert cancellation.cancel.id == call.id

    on_loop(check())


def test_cancelling_a_connect_leaves_nothing_behind():
    async def check():
        (port,) = free_ports(1)
        before = asyncio.all_tasks()
        async with peer_at(f"127.0.0.1:{port}") as peer:
            connecting = asyncio.create_task(peer.connect(PATIENCE_S))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            connecting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await connecting
        await eventually_async(lambda: asyncio.all_tasks() <= before)

    on_loop(check())
