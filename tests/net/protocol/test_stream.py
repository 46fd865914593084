"""One end of a stream, before a call that is a pair of queues."""

import asyncio
from collections import Counter

import numpy as np
import pytest

from jflow.errors import InvalidArgumentError, ResourceExhaustedError
from jflow.net.protocol.frame import CHUNK_BYTES
from jflow.net.protocol.stream import MessageStream
from jflow.net.protocol.transport import BrokenStreamError, EndedStreamError
from jflow.net.protocol.v1 import service_pb2 as pb
from tests.net.protocol.hosts import same

N_CHUNKS = 5
LARGE = np.zeros(N_CHUNKS * CHUNK_BYTES, np.uint8)


class Call:
    """What a transport offers: one write at a time, which takes a turn of the loop, and reads."""

    eof = None
    errors = ()

    def __init__(self):
        self.written = []
        self.incoming = asyncio.Queue()
        self._is_writing = False

    async def write(self, frame):
        assert not self._is_writing, "a transport takes one write at a time"
        self._is_writing = True
        await asyncio.sleep(0)
        self.written.append(frame)
        self._is_writing = False

    async def read(self):
        return await self.incoming.get()


def _id(frame):
    return int.from_bytes(frame[1:9], "little")


def test_messages_that_are_sent_at_the_same_time_take_turns():
    async def check():
        call = Call()
        stream = MessageStream(call)
        large = [asyncio.create_task(stream.send(pb.Envelope(), [LARGE])) for _ in range(2)]
        await asyncio.sleep(0)
        await stream.send(pb.Envelope(id=3))
        assert not any(task.done() for task in large), "the small one need not wait"
        await asyncio.gather(*large)
        order = [_id(frame) for frame in call.written]
        assert sorted(Counter(order).values()) == [1, N_CHUNKS, N_CHUNKS]
        assert order[: N_CHUNKS + 1] != [order[0]] * (N_CHUNKS + 1)

    asyncio.run(check())


def test_what_one_end_sends_the_other_receives():
    async def check():
        ours, theirs = Call(), Call()
        stream = MessageStream(ours)
        tensors = [np.arange(5.0), LARGE, np.array(True)]
        await asyncio.gather(
            stream.send(pb.Envelope(id=1), tensors), stream.send(pb.Envelope(id=2)), _nothing()
        )
        for frame in (*ours.written, None):
            theirs.incoming.put_nowait(frame)
        stream = MessageStream(theirs)
        received = {}
        while (message := await stream.receive()) is not None:
            envelope, got = message
            received[envelope.id] = got
        assert sorted(received) == [1, 2]
        assert received[2] == []
        for got, sent in zip(received[1], tensors, strict=True):
            same(got, sent)

    async def _nothing():
        pass

    asyncio.run(check())


def test_a_message_that_is_too_large_sends_nothing():
    async def check():
        call = Call()
        with pytest.raises(ResourceExhaustedError):
            await MessageStream(call).send(
                pb.Envelope(method_call=pb.MethodCall(arguments=bytes(5 << 20)))
            )
        assert call.written == []

    asyncio.run(check())


def test_nothing_is_sent_on_a_stream_that_is_over():
    async def check():
        call = Call()
        stream = MessageStream(call)
        sending = asyncio.create_task(stream.send(pb.Envelope(), [LARGE]))
        await asyncio.sleep(0)
        stream.end()
        with pytest.raises(BrokenStreamError) as raised:
            await sending
        # Else its caller would send it again, though a part of it has been sent.
        assert not isinstance(raised.value, EndedStreamError)
        assert 0 < len(call.written) < N_CHUNKS
        with pytest.raises(EndedStreamError):
            await stream.send(pb.Envelope(id=1))

    asyncio.run(check())


def test_a_frame_that_cannot_be_read_is_an_error_of_the_reader():
    async def check():
        call = Call()
        call.incoming.put_nowait(b"noise")
        with pytest.raises(InvalidArgumentError):
            await MessageStream(call).receive()

    asyncio.run(check())
