"""Encrypted connections: what the kernel has not taken, and what it has given, is not lost."""

import asyncio
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from queue import SimpleQueue

import numpy as np

from jflow.net.protocol.frame import encode_parts
from jflow.net.protocol.interrupts import Interrupts
from jflow.net.protocol.parser import SCRATCH_BYTES, delimited, delimited_message
from jflow.net.wire import load_tls, ports
from jflow.net.wire.socket_client import SocketClient
from jflow.net.wire.socket_stream import SocketStream, unsent
from jflow.net.wire.tls_connection import TlsConnection
from tests.net.protocol.hosts import PATIENCE_S, TASK


@contextmanager
def _ends(certificates):
    """Both ends of an encrypted connection, after the handshake of TLS; first the caller's."""
    listening, port = ports.listen(["127.0.0.1"])
    one = socket.create_connection(("127.0.0.1", port))
    other, _ = listening[0].accept()
    listening[0].close()
    environ = {"JFLOW_TLS_DIR": str(certificates)}
    ends = [
        TlsConnection(one, load_tls(None, environ).data_client_context(), "worker-3.jflow"),
        TlsConnection(other, load_tls(TASK, environ).data_server_context(), None),
    ]
    handshakes = [end.handshake() for end in ends]
    while handshakes:
        handshakes = [h for h in handshakes if next(h, None) is not None]
    try:
        yield ends
    finally:
        for end in ends:
            end.close()


def test_more_than_a_pass_takes_is_decrypted_although_no_poll_tells_of_it(certificates):
    """The bytes of many small messages come at once, and are larger than a buffer."""
    with _ends(certificates) as (far, near):
        sent, got, buffer = os.urandom(300_000), b"", memoryview(bytearray(1000))
        left = [memoryview(sent)]
        while len(got) < len(sent):
            try:
                if left or far.has_unsent:
                    n = far.send(left)
                    left = [left[0][n:]] if left and n < len(left[0]) else []
            except BlockingIOError:
                pass
            try:
                while n := near.receive_into(buffer, lambda _: None):
                    got += bytes(buffer[:n])
                    assert n == len(buffer) or not near.has_buffered
            except BlockingIOError:
                assert not near.has_buffered
        assert got == sent


def test_a_message_behind_a_large_one_is_taken_although_the_kernel_has_no_more(certificates):
    """The end of the large one and the small one are decrypted together."""
    with _ends(certificates) as (far, near):
        (large,) = encode_parts(1, b"", [bytes(2 * SCRATCH_BYTES)])
        (small,) = encode_parts(2, b"small", [])
        left = delimited(large) + delimited(small)
        while left or far.has_unsent:
            left = unsent(left, far.send(left))

        async def messages():
            async with asyncio.timeout(PATIENCE_S):
                stream = SocketStream(near)
                found = [await stream.read(), await stream.read()]
                await stream.close()
                return [message.id for message in found]

        assert asyncio.run(messages()) == [1, 2]


def _read_all(connection):
    """What has come to one end of an encrypted connection."""
    got, buffer = b"", memoryview(bytearray(1 << 16))
    with suppress(BlockingIOError):
        while n := connection.receive_into(buffer, lambda _: None):
            got += bytes(buffer[:n])
    return got


def test_small_frames_that_are_encrypted_and_not_taken_leave_with_the_next_write(certificates):
    """Until then none leaves at once: it would be in the memory of the process without a limit."""
    frame = delimited_message(1, b"control", bytes(2048))

    async def exchange(far, near):
        async with asyncio.timeout(PATIENCE_S):
            stream, n_written, got = SocketStream(near), 1, b""
            while stream.write_now(frame):
                n_written += 1
            assert near.has_unsent
            assert stream.write_now(frame) is None
            writing = asyncio.ensure_future(stream.write([]))
            while not writing.done() or len(got) < n_written * len(frame):
                got += _read_all(far)
                await asyncio.sleep(0)
            await writing
            assert got == frame * n_written
            assert stream.write_now(frame) is True
            await stream.close()

    with _ends(certificates) as (far, near):
        asyncio.run(exchange(far, near))


def test_a_request_that_is_encrypted_and_not_taken_leaves_when_its_caller_waits(certificates):
    with _ends(certificates) as (near, far):
        client, sent = SocketClient(near, lambda _: None, lambda _: None), b""
        while client.send_now(b"control", [np.zeros(2048, np.uint8)]):
            n_sent = len(sent) // len(delimited_message(1, b"control", bytes(2048)))
            sent += delimited_message(n_sent + 1, b"control", bytes(2048))
        assert near.has_unsent
        with ThreadPoolExecutor() as pool:
            answers = SimpleQueue()
            waiting = pool.submit(client.get, answers, PATIENCE_S, Interrupts())
            got, until = b"", time.monotonic() + PATIENCE_S
            while len(got) < len(sent) and time.monotonic() < until:
                got += _read_all(far)
            assert got == sent
            answers.put("answer")
            client.close()
            assert waiting.result(PATIENCE_S) == "answer"
