"""One end of a data stream: how often the loop passes for large frames; small ones at once."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest

from jflow.net.protocol.frame import CHUNK_BYTES, Buffers, Message, aligned, encode_parts
from jflow.net.protocol.parser import SCRATCH_BYTES, delimited, delimited_message
from jflow.net.wire.connections import SEND_BYTES, SocketConnection
from jflow.net.wire.socket_stream import PartsFraming, SocketStream
from jflow.testing import PATIENCE_S

PIECE_BYTES = 16 << 10
_LIMIT = Path("/proc/sys/net/core/wmem_max")


def _bytes(n: int) -> np.ndarray:
    return np.resize(np.arange(256, dtype=np.uint8), n)


def _frame(n_bytes: int) -> Buffers:
    (frame,) = encode_parts(1, b"control", [memoryview(_bytes(n_bytes))])
    return frame


def _check(use: Callable[[SocketStream, socket.socket, list[None]], Awaitable[None]]) -> None:
    """Runs `use(stream, other end, passes)`; there is an item for each pass in which it read."""

    async def main() -> None:
        near, far = socket.socketpair(socket.AF_UNIX)
        stream, passes = SocketStream(SocketConnection(near)), []
        on_readable = stream._on_readable

        def counted() -> None:
            passes.append(None)
            on_readable()

        stream._on_readable = counted  # type: ignore[method-assign]
        with far:
            await asyncio.wait_for(use(stream, far, passes), PATIENCE_S)
            await stream.close()

    asyncio.run(main())


def _send(far: socket.socket, sent: bytes) -> None:
    for start in range(0, len(sent), PIECE_BYTES):
        far.sendall(sent[start : start + PIECE_BYTES])


def test_a_large_frame_that_is_there_is_taken_in_one_pass() -> None:
    async def use(stream: SocketStream, far: socket.socket, passes: list[None]) -> None:
        _send(far, b"".join(delimited(_frame(2 * SCRATCH_BYTES))))
        message = await stream.read()
        assert message is not None
        assert message.payload.tobytes() == _bytes(2 * SCRATCH_BYTES).tobytes()
        assert len(passes) == 1

    _check(use)


def test_a_large_frame_that_comes_in_parts_is_waited_for() -> None:
    async def use(stream: SocketStream, far: socket.socket, passes: list[None]) -> None:
        sent = b"".join(delimited(_frame(2 * SCRATCH_BYTES)))
        reading = asyncio.ensure_future(stream.read())
        _send(far, sent[:-1])
        while not passes:
            await asyncio.sleep(0)
        assert not reading.done()
        far.sendall(sent[-1:])
        message = await reading
        assert message is not None
        assert message.payload.tobytes() == _bytes(2 * SCRATCH_BYTES).tobytes()

    _check(use)


def test_a_message_behind_a_large_one_is_taken_too() -> None:
    async def use(stream: SocketStream, far: socket.socket, _: list[None]) -> None:
        (small,) = encode_parts(2, b"small", [])
        _send(far, b"".join(delimited(_frame(2 * SCRATCH_BYTES)) + delimited(small)))
        assert [message.id for message in [await stream.read(), await stream.read()]] == [1, 2]

    _check(use)


def test_messages_are_offered_in_order_while_the_reader_waits_and_what_is_left_is_read() -> None:
    async def use(stream: SocketStream, far: socket.socket, _: list[None]) -> None:
        offered: list[int] = []

        def first(message: Message) -> object | None:
            offered.append(message.id)
            return None if message.id < 4 else f"left of {message.id}"

        stream.offer_first(first)
        frames = [delimited_message(number, b"control", b"") for number in range(1, 7)]
        _send(far, b"".join(frames))
        assert await stream.read() == "left of 4"
        assert offered == [1, 2, 3, 4]
        assert [(await stream.read()).id for _ in range(2)] == [5, 6], "behind what was not taken"

    _check(use)


def test_the_kernel_takes_a_message_of_some_hundred_kilobytes_while_its_receiver_is_busy() -> None:
    if not _LIMIT.exists() or int(_LIMIT.read_text()) < SEND_BYTES:
        pytest.skip("this system limits the send buffers of sockets to less than that")

    async def use(stream: SocketStream, far: socket.socket, _: list[None]) -> None:
        await stream.write(_frame(3 * CHUNK_BYTES // 4))

    _check(use)


def test_a_frame_that_counts_as_a_sign_of_life_is_not_taken_unless_it_is_read() -> None:
    near, far = socket.socketpair(socket.AF_UNIX)
    with near, far:
        frame = _frame(CHUNK_BYTES)
        assert PartsFraming.is_sign_of_life(frame)
        assert SocketConnection(near).send(delimited(frame)) < CHUNK_BYTES


def test_a_small_frame_leaves_at_once_and_is_the_message_that_frames_would_be() -> None:
    async def use(stream: SocketStream, far: socket.socket, _: list[None]) -> None:
        tensors = [b"abc", b"x" * 64]
        payload = b"".join(one.ljust(aligned(len(one)), b"\0") for one in tensors)
        frame = delimited_message(1, b"control", payload)
        (parts,) = encode_parts(1, b"control", [memoryview(one) for one in tensors])
        assert frame == b"".join(delimited(parts))
        assert stream.write_now(frame) is True
        assert far.recv(2 * len(frame)) == frame

    _check(use)


def test_what_the_kernel_leaves_of_a_small_frame_is_sent_before_the_next() -> None:
    async def use(stream: SocketStream, far: socket.socket, _: list[None]) -> None:
        first, second = (delimited_message(i, b"control", b"abc".ljust(64, b"\0")) for i in (1, 2))

        def send_half(buffers: Buffers) -> int:
            """The kernel takes 10 bytes, once."""
            connection.send = send  # type: ignore[method-assign]
            return send([memoryview(buffers[0])[:10]])

        connection = stream._connection
        send, connection.send = connection.send, send_half  # type: ignore[method-assign, assignment]
        assert stream.write_now(first) is False
        assert stream.write_now(second) is None
        await stream.write([second[4:]])
        assert far.recv(4096) == first + second

    _check(use)


def test_nothing_leaves_at_once_when_the_kernel_takes_nothing() -> None:
    async def use(stream: SocketStream, far: socket.socket, _: list[None]) -> None:
        frame = delimited_message(1, b"control", bytes(2048))
        n_sent = 0
        while stream.write_now(frame):
            n_sent += 1
        writing = asyncio.create_task(stream.write([frame[4:]]))
        received = bytearray()
        while len(received) < (n_sent + 1) * len(frame):
            with contextlib.suppress(BlockingIOError):
                received += far.recv(1 << 20, socket.MSG_DONTWAIT)
            await asyncio.sleep(0)
        await writing
        assert received == frame * (n_sent + 1)

    _check(use)
