"""Frames: what goes in comes out, in any mixture, and nothing that comes in does harm."""

import struct
import sys
from collections import deque
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jflow.errors import InvalidArgumentError, OpError, ResourceExhaustedError
from jflow.net.protocol import frame
from jflow.net.protocol.buffers import aligned_buffer
from jflow.net.protocol.codec import open_message
from jflow.net.protocol.frame import Assembler, aligned, encode
from jflow.net.protocol.v1 import service_pb2 as pb
from tests.drawn import examples

FIRST, MORE = 1, 2
HEADER = struct.Struct("<BQIQ")

CONTROLS = st.binary(max_size=300)
TENSORS = st.lists(st.binary(max_size=700).map(lambda raw: np.frombuffer(raw, np.uint8)))
MESSAGES = st.tuples(CONTROLS, TENSORS)


@pytest.fixture(scope="module", autouse=True)
def _small_chunks():
    """Small enough that Hypothesis sees messages of many frames; the format is the same."""
    with mock.patch.object(frame, "CHUNK_BYTES", 256):
        yield


@pytest.fixture
def _real_chunks():
    with mock.patch.object(frame, "CHUNK_BYTES", 1 << 20):
        yield


def _payload(tensors):
    """What a payload is by definition: every tensor, and zeros up to the next multiple of 64."""
    return b"".join(t.tobytes().ljust(aligned(t.nbytes), b"\0") for t in tensors)


def _check(message, message_id, control, tensors):
    assert (message.id, message.control) == (message_id, control)
    assert message.payload.tobytes() == _payload(tensors)


def _first(message_id=1, control=b"", total=0, body=b"", control_length=None):
    length = len(control) if control_length is None else control_length
    return HEADER.pack(FIRST, message_id, length, total) + control + body


def _more(message_id=1, body=b""):
    return HEADER.pack(MORE, message_id, 0, 0) + body


# What goes in comes out ---------------------------------------------------------------------------


@given(MESSAGES)
def test_a_message_comes_back_as_it_was_sent(message):
    control, tensors = message
    assembler = Assembler()
    *early, last = [assembler.feed(f) for f in encode(7, control, tensors)]
    assert early == [None] * len(early)
    _check(last, 7, control, tensors)


@given(st.lists(MESSAGES, min_size=1, max_size=5), st.data())
def test_frames_of_several_messages_may_be_mixed_in_any_order(messages, data):
    waiting = {i: deque(encode(i, *message)) for i, message in enumerate(messages, 1)}
    assembler = Assembler()
    came = {}
    while waiting:
        i = data.draw(st.sampled_from(sorted(waiting)))
        message = assembler.feed(waiting[i].popleft())
        if message is not None:
            came[message.id] = message
        if not waiting[i]:
            del waiting[i]
            assert i in came, "a message is complete with its last frame"
    for i, message in enumerate(messages, 1):
        _check(came[i], i, *message)


@given(MESSAGES, MESSAGES)
def test_the_number_of_a_message_may_be_used_again_when_the_message_is_whole(one, other):
    assembler = Assembler()
    for message in (one, other):
        last = [assembler.feed(f) for f in encode(1, *message)][-1]
        _check(last, 1, *message)


@given(TENSORS)
def test_each_tensor_of_a_payload_that_is_not_small_starts_at_a_multiple_of_64_bytes(tensors):
    tensors = [*tensors, np.ones(frame.SMALL_BYTES + 1, np.uint8)]
    payload = _payload(tensors)
    message = Assembler().feed(_first(total=len(payload), body=payload))
    start = 0
    for tensor in tensors:
        if tensor.nbytes:
            assert (message.payload.ctypes.data + start) % 64 == 0
        assert message.payload[start : start + tensor.nbytes].tobytes() == tensor.tobytes()
        start += aligned(tensor.nbytes)
    assert start == len(message.payload)


@given(st.integers(1, 10_000))
def test_a_buffer_is_aligned_whatever_its_size(n_bytes):
    buffer = aligned_buffer(n_bytes)
    assert (buffer.nbytes, buffer.ctypes.data % 64) == (n_bytes, 0)


@given(MESSAGES)
def test_no_frame_has_more_payload_than_a_chunk(message):
    control, tensors = message
    first, *rest = encode(1, control, tensors)
    assert len(first) <= HEADER.size + len(control) + 256
    assert all(len(f) <= HEADER.size + 256 for f in rest)
    assert all(len(f) == HEADER.size + 256 for f in rest[:-1]), "chunks are full but the last one"


def test_a_message_without_tensors_is_one_frame():
    (only,) = encode(1, b"control", [])
    _check(Assembler().feed(only), 1, b"control", [])


def test_tensors_of_no_bytes_take_no_room():
    empty = np.empty(0, np.uint8)
    (only,) = encode(1, b"", [empty, empty])
    assert len(only) == HEADER.size
    assert Assembler().feed(only).payload.nbytes == 0


def test_the_bytes_on_the_wire_are_the_documented_ones():
    (only,) = encode(3, b"hi", [np.arange(3, dtype=np.uint8)])
    header = b"\x01" + b"\x03" + bytes(7) + b"\x02\0\0\0" + b"\x40" + bytes(7)
    assert only == header + b"hi" + b"\0\x01\x02" + bytes(61)


@pytest.mark.usefixtures("_real_chunks")
@pytest.mark.parametrize("n_bytes", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, (3 << 20) - 64])
def test_no_frame_is_larger_than_grpc_is_told_to_take(n_bytes):
    control = bytes(frame.MAX_CONTROL_BYTES)
    tensors = [np.full(n_bytes, 5, np.uint8), np.full(100, 6, np.uint8)]
    frames = list(encode(1, control, tensors))
    assert max(map(len, frames)) <= frame.MAX_FRAME_BYTES
    assembler = Assembler()
    _check([assembler.feed(f) for f in frames][-1], 1, control, tensors)


@pytest.mark.usefixtures("_real_chunks")
def test_a_control_part_that_is_too_large_is_refused_by_the_sender():
    with pytest.raises(ResourceExhaustedError, match="4194305 bytes"):
        list(encode(1, bytes(frame.MAX_CONTROL_BYTES + 1), []))


# What must not come in ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"\x01"],
        [_first()[:-1]],
        [HEADER.pack(0, 1, 0, 0)],
        [HEADER.pack(3, 1, 0, 0)],
        [HEADER.pack(255, 1, 0, 0)],
        [_more()],
        [_first(1, total=64), _more(2, bytes(64))],
        [_first(1, total=64), HEADER.pack(3, 1, 0, 0) + bytes(64)],
        [_first(1, total=64), _first(1, total=64)],
        [_first(control=b"abc", control_length=4)],
        [_first(control_length=2**32 - 1)],
        [_first(total=64, body=bytes(65))],
        [_first(total=0, body=b"x")],
        [_first(total=64, body=bytes(60)), _more(body=bytes(5))],
        [_first(total=64, body=bytes(64)), _more(body=bytes(1))],
    ],
    ids=[
        "empty",
        "one byte",
        "short by one",
        "kind 0",
        "kind 3",
        "kind 255",
        "more of nothing",
        "more of another",
        "more of an unknown kind",
        "first twice",
        "control longer than the frame",
        "control much longer than the frame",
        "payload longer than declared",
        "payload where none was declared",
        "more than was left",
        "more of a whole one",
    ],
)
def test_a_frame_that_is_malformed_or_out_of_order_is_an_error(frames):
    *good, bad = frames
    assembler = Assembler()
    for f in good:
        assembler.feed(f)
    with pytest.raises(InvalidArgumentError):
        assembler.feed(bad)


@pytest.mark.parametrize("total", [(16 << 30) + 1, 1 << 60, 2**64 - 1])
def test_a_size_beyond_the_limit_is_refused_before_memory_is_taken(total):
    with (
        mock.patch.object(frame, "receive_buffer", side_effect=AssertionError("took memory")),
        pytest.raises(ResourceExhaustedError, match=str(total)),
    ):
        Assembler().feed(_first(total=total))


def test_the_limit_is_for_all_unfinished_messages_together():
    assembler = Assembler(max_bytes=200)
    assembler.feed(_first(1, total=128, body=bytes(64)))
    with pytest.raises(ResourceExhaustedError, match=r"declares 128 .* beside 128 unfinished"):
        assembler.feed(_first(2, total=128))
    assembler = Assembler(max_bytes=200)
    for i in range(1, 10):
        assembler.feed(_first(i, total=128, body=bytes(64)))
        assert assembler.feed(_more(i, bytes(64))) is not None


def test_the_control_parts_of_unfinished_messages_count_as_well():
    assembler = Assembler(max_bytes=1000)
    assembler.feed(_first(1, total=64, control=bytes(500)))
    with pytest.raises(ResourceExhaustedError, match=r"declares 564 .* beside 564 unfinished"):
        assembler.feed(_first(2, total=64, control=bytes(500)))


def test_a_stream_has_no_more_unfinished_messages_than_the_limit():
    assembler = Assembler(max_unfinished=3)
    for i in range(1, 4):
        assembler.feed(_first(i, total=128, body=bytes(64)))
    whole = assembler.feed(_first(4, total=128, body=bytes(128)))
    assert whole is not None, "what is complete at once does not count"
    with pytest.raises(ResourceExhaustedError, match="beside 3 unfinished ones; that is the limit"):
        assembler.feed(_first(5, total=128, body=bytes(64)))
    assert assembler.feed(_more(2, bytes(64))) is not None
    assembler.feed(_first(6, total=128, body=bytes(64)))


def test_no_sender_of_jflow_exceeds_the_number_of_unfinished_messages():
    # Each has a full chunk at least, so the limit on their bytes is reached first.
    assert frame.MAX_UNFINISHED * (1 << 20) >= frame.MAX_PAYLOAD_BYTES


def test_a_frame_costs_the_same_whatever_is_unfinished():
    def n_calls_of_a_frame(n_unfinished):
        assembler, n_calls = Assembler(), 0

        def count(*_):
            nonlocal n_calls
            n_calls += 1

        for i in range(1, n_unfinished + 1):
            assembler.feed(_first(i, total=128))
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            assembler.feed(_first(n_unfinished + 1, total=128))
        finally:
            sys.setprofile(before)
        return n_calls

    assert n_calls_of_a_frame(1000) == n_calls_of_a_frame(10)


def test_memory_that_is_not_there_is_an_error_of_the_stream():
    with (
        mock.patch.object(np, "empty", side_effect=MemoryError),
        pytest.raises(ResourceExhaustedError),
    ):
        Assembler().feed(_first(total=1 << 30))


def _flip(draw, frames):
    i = draw(st.integers(0, len(frames) - 1))
    if frames[i]:
        # Most often in the header: that is where most of the meaning is.
        last = len(frames[i]) - 1
        where = draw(st.integers(0, min(last, 40)) | st.integers(0, last))
        changed = bytearray(frames[i])
        changed[where] = draw(st.integers(0, 255))
        frames[i] = bytes(changed)


def _cut(draw, frames):
    i = draw(st.integers(0, len(frames) - 1))
    frames[i] = frames[i][: draw(st.integers(0, len(frames[i])))]


def _lengthen(draw, frames):
    i = draw(st.integers(0, len(frames) - 1))
    frames[i] += draw(st.binary(max_size=80))


def _repeat(draw, frames):
    frames.insert(draw(st.integers(0, len(frames))), frames[draw(st.integers(0, len(frames) - 1))])


def _drop(draw, frames):
    if len(frames) > 1:
        del frames[draw(st.integers(0, len(frames) - 1))]


HARMS = [_flip, _cut, _lengthen, _repeat, _drop]


@st.composite
def _damaged(draw):
    frames = [f for i in range(1, draw(st.integers(2, 4))) for f in encode(i, *draw(_ENVELOPES))]
    for harm in draw(st.lists(st.sampled_from(HARMS), max_size=6)):
        harm(draw, frames)
    return frames


def _envelope(arrays):
    envelope = pb.Envelope(id=5, run_step=pb.RunStep(handle=9), timeout_s=0.1)
    for array in arrays:
        envelope.tensors.add(dtype=array.dtype.name, shape=array.shape)
    return envelope.SerializeToString(), [a.reshape(-1).view(np.uint8) for a in arrays]


_ENVELOPES = st.lists(
    st.sampled_from(
        [np.arange(100.0), np.zeros((3, 0), np.float32), np.array(True), np.ones((7, 5), np.int8)]
    ),
    max_size=3,
).map(_envelope)


@settings(max_examples=examples(150))
@given(_damaged())
def test_damaged_frames_give_messages_or_errors_of_jflow_and_nothing_else(frames):
    assembler = Assembler(max_bytes=1 << 20)
    try:
        for f in frames:
            message = assembler.feed(f)
            if message is not None:
                open_message(message)
    except OpError:
        pass


@settings(max_examples=examples(80))
@given(st.lists(st.binary(max_size=100), max_size=5))
def test_noise_gives_errors_of_jflow_and_nothing_else(frames):
    assembler = Assembler(max_bytes=1 << 20)
    try:
        for f in frames:
            assembler.feed(f)
    except OpError:
        pass
