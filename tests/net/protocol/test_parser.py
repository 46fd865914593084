"""`Parser` and `Outbox` on a stream of bytes: whatever the pieces, the same messages come out."""

import contextlib
import struct
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow.errors import InvalidArgumentError, ResourceExhaustedError
from jflow.net.protocol import frame
from jflow.net.protocol.frame import (
    CHUNK_BYTES,
    MAX_CONTROL_BYTES,
    MAX_FRAME_BYTES,
    Assembler,
    encode,
    encode_parts,
)
from jflow.net.protocol.outbox import Outbox
from jflow.net.protocol.parser import SCRATCH_BYTES, Parser, delimited
from jflow.net.protocol.segments import IN_SEGMENT, parse_segment_frame

SIZES = [0, 1, 64, 5000, SCRATCH_BYTES - 30, SCRATCH_BYTES, CHUNK_BYTES - 1, 2 * CHUNK_BYTES + 7]


def _bytes_of(message_id, control, tensors):
    return b"".join(
        bytes(part)
        for parts in encode_parts(message_id, control, tensors)
        for part in delimited(parts)
    )


def _parsed(parser, data, pieces):
    """The messages of `data`, received in pieces of the sizes that an iterator gives."""
    messages, data = [], memoryview(data)
    while data:
        room = parser.buffer()
        n_bytes = min(next(pieces, 1 << 30), len(room), len(data))
        room[:n_bytes] = data[:n_bytes]
        messages += parser.received(n_bytes)
        data = data[n_bytes:]
    return messages


def _random(size, seed=0):
    return np.random.default_rng(seed).bytes(size)


@st.composite
def _messages(draw):
    return [
        (
            i,
            _random(draw(st.sampled_from([0, 10, 300, SCRATCH_BYTES + 1])), i),
            [
                _random(draw(st.sampled_from(SIZES)), 7 * i + j)
                for j in range(draw(st.integers(0, 2)))
            ],
        )
        for i in range(1, draw(st.integers(2, 4)))
    ]


@given(
    sent=_messages(), pieces=st.lists(st.integers(1, 2 * CHUNK_BYTES), max_size=40), data=st.data()
)
def test_messages_arrive_as_they_were_sent_however_their_bytes_are_split_and_frames_alternate(
    sent, pieces, data
):
    outbox = Outbox()
    for message_id, control, tensors in sent:
        outbox.put(message_id, encode_parts(message_id, control, tensors))
    stream = b""
    while (parts := outbox.next_frame()) is not None:
        stream += b"".join(map(bytes, delimited(parts)))
    parser = Parser()
    got = {m.id: m for m in _parsed(parser, stream, iter(pieces))}
    assert sorted(got) == [message_id for message_id, *_ in sent]
    for message_id, control, tensors in sent:
        expected = Assembler()
        (message,) = filter(None, map(expected.feed, encode(message_id, control, tensors)))
        assert got[message_id].control == control
        assert bytes(got[message_id].payload) == bytes(message.payload)
    assert not parser.assembler.unfinished


@pytest.mark.parametrize("size", [1, 2, 3, 5, 24, 26, 100])
def test_every_split_of_small_messages_gives_the_same(size):
    data = _bytes_of(1, b"control", [b"x" * 10]) + _bytes_of(2, b"", []) + _bytes_of(3, b"c", [])
    messages = _parsed(Parser(), data, iter([size] * 1000))
    assert [(m.id, m.control) for m in messages] == [(1, b"control"), (2, b""), (3, b"c")]


def test_the_payload_of_a_large_message_is_received_in_the_memory_of_the_message():
    payload = _random(3 * CHUNK_BYTES)
    parser, begins = Parser(), set()
    data = memoryview(_bytes_of(1, b"c", [payload]))
    messages = []
    while data:
        room = parser.buffer()
        begins.add(np.frombuffer(room, np.uint8).ctypes.data)
        n_bytes = min(len(room), len(data), 200_000)
        room[:n_bytes], data = data[:n_bytes], data[n_bytes:]
        messages += parser.received(n_bytes)
    (message,) = messages
    start = message.payload.ctypes.data
    assert any(start <= begin < start + len(payload) for begin in begins)
    assert start % 64 == 0
    assert bytes(message.payload) == payload


def test_the_largest_control_part_arrives_and_its_memory_is_returned():
    control = _random(MAX_CONTROL_BYTES)
    parser = Parser()
    (message,) = _parsed(parser, _bytes_of(1, control, [b"x" * 100]), iter(()))
    assert message.control == control


def test_a_frame_that_is_too_large_is_refused_before_memory_is_taken():
    data = struct.pack("<I", MAX_FRAME_BYTES + 1)
    with pytest.raises(ResourceExhaustedError, match=f"frame of {MAX_FRAME_BYTES + 1} bytes"):
        _parsed(Parser(), data, iter(()))


def test_a_message_that_is_too_large_is_refused_before_memory_is_taken():
    (head,) = encode_parts(1, b"", [])
    declared = struct.pack("<BQIQ", 1, 1, 0, 1 << 50)
    data = struct.pack("<I", len(declared) + CHUNK_BYTES) + declared
    assert len(declared) == len(head[0])
    with (
        mock.patch.object(frame, "receive_buffer", side_effect=AssertionError("took memory")),
        pytest.raises(ResourceExhaustedError, match=str(1 << 50)),
    ):
        _parsed(Parser(), data, iter(()))


class _AnySegments:
    """Takes every frame about segments that is one."""

    def receive(self, frame):
        parse_segment_frame(frame)


@pytest.mark.parametrize("segments", [None, _AnySegments()], ids=["without", "with segments"])
@pytest.mark.parametrize("kind", [0, IN_SEGMENT])
@pytest.mark.parametrize("size", [0, 1, 20])
def test_a_frame_that_is_too_small_for_its_header_is_an_error(size, kind, segments):
    data = struct.pack("<I", size) + bytes([kind] * size)
    with pytest.raises(InvalidArgumentError, match=f"{size} bytes are too few"):
        _parsed(Parser(segments=segments), data, iter(()))


@given(st.binary(max_size=200), st.lists(st.integers(1, 50), max_size=20))
def test_bytes_that_are_no_messages_are_errors_or_nothing(data, pieces):
    with contextlib.suppress(InvalidArgumentError, ResourceExhaustedError):
        _parsed(Parser(Assembler(max_bytes=1 << 20), _AnySegments()), data, iter(pieces))


@given(st.binary(min_size=21, max_size=60), st.integers(IN_SEGMENT, 7))
def test_bytes_that_are_no_frames_about_segments_are_errors_or_nothing(data, kind):
    frame = struct.pack("<IB", len(data) + 1, kind) + data
    with contextlib.suppress(InvalidArgumentError, ResourceExhaustedError):
        _parsed(Parser(segments=_AnySegments()), frame, iter(()))


def test_a_frame_of_many_small_tensors_is_few_buffers():
    tensors = [b"x" * 8] * 5000
    (large,) = map(delimited, encode_parts(1, b"c", tensors))
    assert len(large) == 1
    (message,) = _parsed(Parser(), b"".join(map(bytes, large)), iter(()))
    assert len(message.payload) == 5000 * 64


def test_small_frames_become_one_buffer_and_large_ones_are_not_copied():
    tensor = memoryview(_random(CHUNK_BYTES))
    (small,) = delimited(next(encode_parts(1, b"c", [b"x"])))
    assert small.startswith(struct.pack("<I", len(small) - 4))
    large = delimited(next(encode_parts(1, b"c", [tensor])))
    assert any(isinstance(part, memoryview) and part.obj is tensor.obj for part in large)
