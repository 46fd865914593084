"""Messages that take long to come: what is known of a call before all of it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from jflow import errors
from jflow.net.protocol import frame
from jflow.net.protocol.frame import LONG_BYTES, Assembler, Message, encode
from jflow.net.protocol.framing import ByteFraming
from jflow.net.protocol.parser import Parser, delimited
from jflow.net.protocol.rpcs import RUN_STEP
from jflow.net.protocol.templates import TemplateEncoder
from jflow.net.protocol.v1 import service_pb2 as pb
from jflow.net.wire.socket_stream import PartsFraming
from tests.net.protocol.hosts import Host, connected, eventually_async, on_loop, serving

CALL = 2


def frames(n_bytes: int, *, repeats: bool = True) -> list[bytes]:
    """Those of a call that runs step 7 with one fed value."""
    value = np.zeros(n_bytes, np.uint8)
    if repeats:
        control = RUN_STEP.prepared(7, [value]).control(TemplateEncoder(), CALL, 0)
    else:
        envelope, _ = RUN_STEP.envelope(7, [value])
        envelope.id = CALL
        envelope.tensors.add(dtype="uint8", shape=value.shape)
        control = envelope.SerializeToString()
    return list(encode(99, control, [value]))


async def ping(client: Any) -> pb.Envelope:
    """The next answer, once the server has read all that was sent before."""
    await client.send(id=50, ping=pb.Ping())
    answer, _ = await client.receive()
    return answer


@pytest.mark.parametrize("repeats", [True, False])
def test_a_call_that_can_only_fail_is_answered_before_its_message_is_there(
    repeats: bool,
) -> None:
    watched = []

    async def lost(handle: int) -> None:
        watched.append(handle)
        raise errors.UnavailableError("a task was lost")

    async def check() -> None:
        async with serving(host) as address, connected(address) as client:
            first, *others = frames(LONG_BYTES, repeats=repeats)
            await client.call.write(first)
            answer, _ = await client.receive()
            assert (answer.id, answer.status.message) == (CALL, "a task was lost")
            for other in others:
                await client.call.write(other)
            assert (await ping(client)).id == 50, "it is answered once"

    host = Host(script={"watch_tasks": lost})
    on_loop(check())
    assert watched == [7]
    assert host.calls == [], "and not run"


@pytest.mark.parametrize("repeats", [True, False])
def test_a_call_that_is_there_is_run_and_not_watched_any_more(repeats: bool) -> None:
    async def check() -> None:
        async with serving(host) as address, connected(address) as client:
            first, *others = frames(LONG_BYTES, repeats=repeats)
            await client.call.write(first)
            await eventually_async(lambda: watching)
            for other in others:
                await client.call.write(other)
            answer, (value,) = await client.receive()
            assert (answer.id, answer.status.code, value.nbytes) == (CALL, 0, LONG_BYTES)
            await eventually_async(watching[0].done)
            assert watching[0].cancelled()

    watching, watch = tracked()
    host = Host(script={"watch_tasks": watch})
    on_loop(check())
    assert [name for name, *_ in host.calls] == ["run"]


def test_a_call_whose_message_never_comes_is_not_watched_beyond_its_stream() -> None:
    async def check() -> None:
        async with serving(host) as address:
            async with connected(address) as client:
                await client.call.write(frames(LONG_BYTES)[0])
                await eventually_async(lambda: watching)
            await eventually_async(watching[0].done)

    watching, watch = tracked()
    host = Host(script={"watch_tasks": watch})
    on_loop(check())


def tracked() -> tuple[list[asyncio.Future[None]], Callable[[int], Any]]:
    """Futures that watches wait for, and what begins a watch."""
    watching: list[asyncio.Future[None]] = []

    async def watch(_: int) -> None:
        watching.append(asyncio.get_running_loop().create_future())
        await watching[-1]

    return watching, watch


def feed_bytes(framing: ByteFraming, message: list[bytes]) -> list[Message | None]:
    return [framing.feed(one) for one in message]


def feed_parts(parser: Parser, message: list[bytes]) -> list[Message | None]:
    found: list[Message | None] = []
    for one in message:
        whole = memoryview(b"".join(delimited([memoryview(one)])))
        while whole:
            room = parser.buffer()
            n_bytes = min(len(room), len(whole))
            room[:n_bytes], whole = whole[:n_bytes], whole[n_bytes:]
            found += parser.received(n_bytes)
    return found


@pytest.mark.parametrize("n_bytes", [100, LONG_BYTES - frame.ALIGNMENT, LONG_BYTES])
def test_both_framings_tell_of_long_messages_only_and_at_their_beginning(n_bytes: int) -> None:
    parser = Parser()
    message = frames(n_bytes)
    stream: Any = Mock(parser=parser)
    for framing, feed in (
        (ByteFraming(), feed_bytes),
        (PartsFraming(stream), lambda _, parts: feed_parts(parser, parts)),
    ):
        told: list[Message] = []
        framing.watch_long(told.append)
        feed(framing, message[:-1])
        assert [one.id for one in told] == ([99] if n_bytes >= LONG_BYTES else [])
        feed(framing, message[-1:])
        assert len(told) <= 1


def test_an_assembler_that_is_not_watched_assembles_long_messages() -> None:
    assembler = Assembler()
    assert [assembler.feed(one) is None for one in frames(LONG_BYTES)].count(False) == 1
