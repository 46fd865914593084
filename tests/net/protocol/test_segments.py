"""Segments: what an array refers to is never overwritten, and the limits hold, in any order."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow.errors import InvalidArgumentError
from jflow.net.protocol.frame import HEADER_BYTES
from jflow.net.protocol.segments import (
    MAX_SEGMENTS,
    MAX_SEGMENTS_BYTES,
    N_MISSED,
    Dropped,
    Freed,
    InSegment,
    ReceivedSegments,
    SentSegments,
    Shared,
    parse_segment_frame,
    segment_frame,
)

MIB = 1 << 20
SIZES = [MIB, 100 * MIB, 200 * MIB, 400 * MIB, 600 * MIB]


def _made(sent, n_bytes):
    """Makes the segment that messages of a size ask for; returns its number and capacity."""
    for _ in range(N_MISSED):
        assert sent.allocate(n_bytes) is None
    capacity, _ = sent.to_make()
    return sent.made([]), capacity


class Ends:
    """Both ends of one direction, with what is on its way between them."""

    def __init__(self):
        self.sent, self.received = SentSegments(), ReceivedSegments()
        self.there, self.back = deque(), deque()
        self.held = []  # what the receiver refers to: number, memory and contents
        self.n_messages = 0
        self.making = None

    def send(self, n_bytes):
        self.n_messages += 1
        taken = self.sent.allocate(n_bytes)
        if taken is not None:
            number, memory = taken
            memory[:] = [self.n_messages]
            self.there.append(InSegment(1, b"", number, n_bytes))
        capacity, displaced = self.sent.to_make()
        self.there.extend(map(Dropped, displaced))
        assert capacity is None or self.making is None
        self.making = capacity or self.making

    def make(self, fails):
        if self.making is not None and fails:
            self.sent.not_made()
        elif self.making is not None:
            memory = []
            number = self.sent.made(memory)
            self.there.append((Shared(number, self.making), memory))
        self.making = None

    def deliver(self):
        if not self.there:
            return
        match self.there.popleft():
            case InSegment() as message:
                memory = self.received.received(message.number, message.n_bytes)
                self.held.append((message.number, memory, list(memory)))
            case Dropped() as one:
                self.received.dropped(one.number)
            case one, memory:
                self.received.check(one.number, one.capacity)
                self.received.shared(one.number, memory, one.capacity)

    def give_back(self, which):
        if self.held:
            number, _, _ = self.held.pop(which % len(self.held))
            self.received.given_back(number)
            self.back.append(number)

    def free(self):
        if self.back:
            self.sent.freed(self.back.popleft())

    def sweep(self):
        self.there.extend(map(Dropped, self.sent.sweep()))

    def check(self):
        assert all(memory == contents for _, memory, contents in self.held)
        for end in (self.sent, self.received):
            assert len(end) <= MAX_SEGMENTS
        assert self.sent.n_bytes <= MAX_SEGMENTS_BYTES


EVENTS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(SIZES)),
    st.tuples(st.just("make"), st.booleans()),
    st.tuples(st.just("give_back"), st.integers(0, 3)),
    st.tuples(st.sampled_from(["deliver", "deliver", "free", "sweep"])),
)


@given(st.lists(EVENTS, max_size=120))
def test_what_is_referred_to_is_not_overwritten_and_both_ends_agree_in_any_order(events):
    ends = Ends()
    for name, *arguments in events:
        getattr(ends, name)(*arguments)
        ends.check()


def test_a_segment_is_made_for_the_second_message_that_finds_none():
    sent = SentSegments()
    assert sent.allocate(MIB) is None
    assert sent.to_make() == (None, [])
    assert sent.allocate(MIB) is None
    capacity, displaced = sent.to_make()
    assert MIB <= capacity <= MIB * 9 // 8
    assert displaced == []
    assert sent.to_make() == (None, [])  # one at a time
    assert sent.made("memory") == 1
    assert sent.allocate(MIB) == (1, "memory")
    assert sent.allocate(MIB) is None  # in use
    sent.freed(1)
    assert sent.allocate(MIB) == (1, "memory")


def test_one_that_was_not_used_between_two_sweeps_is_dropped():
    sent = SentSegments()
    number, _ = _made(sent, MIB)
    assert sent.sweep() == []
    assert sent.allocate(MIB) is not None
    sent.freed(number)
    assert sent.sweep() == []
    assert sent.sweep() == [number]
    assert sent.allocate(MIB) is None


def test_one_that_is_in_use_is_not_dropped():
    sent = SentSegments()
    number, _ = _made(sent, MIB)
    sent.allocate(MIB)
    for _ in range(3):
        assert sent.sweep() == []
    sent.freed(number)
    assert [sent.sweep(), sent.sweep()] == [[], [number]]


def test_a_larger_one_takes_the_place_of_the_smallest_and_never_the_reverse():
    sent = SentSegments()
    small = [_made_and_taken(sent, MIB) for _ in range(MAX_SEGMENTS)]
    for number in small:
        sent.freed(number)
    for _ in range(N_MISSED):
        assert sent.allocate(64 * MIB) is None
    capacity, displaced = sent.to_make()
    assert capacity >= 64 * MIB
    assert displaced == [small[0]]
    large = sent.made([])
    taken = [sent.allocate(MIB)[0] for _ in range(MAX_SEGMENTS)]
    assert taken[-1] == large  # small messages fit into it too
    for _ in range(N_MISSED):
        assert sent.allocate(MIB) is None
    assert sent.to_make() == (None, [])


def _made_and_taken(sent, n_bytes):
    number, _ = _made(sent, n_bytes)
    assert sent.allocate(n_bytes)[0] == number
    return number


def test_a_message_above_the_limit_never_gets_a_segment():
    sent = SentSegments()
    for _ in range(3 * N_MISSED):
        assert sent.allocate(MAX_SEGMENTS_BYTES + 1) is None
        assert sent.to_make() == (None, [])


def test_a_segment_that_is_not_in_use_cannot_be_given_back():
    sent = SentSegments()
    number, _ = _made(sent, MIB)
    for wrong in (number, 7):
        with pytest.raises(InvalidArgumentError, match=f"segment {wrong} was given back"):
            sent.freed(wrong)


def test_a_receiver_refuses_what_the_other_end_may_not_do():
    received = ReceivedSegments()
    for number, capacity in [(1, 0), (1, MAX_SEGMENTS_BYTES + 1)]:
        with pytest.raises(InvalidArgumentError, match="the limits are"):
            received.check(number, capacity)
    for number in range(1, MAX_SEGMENTS + 1):
        received.check(number, MIB)
        received.shared(number, [], MIB)
    with pytest.raises(InvalidArgumentError, match="the limits are"):
        received.check(9, MIB)
    received.dropped(1)
    with pytest.raises(InvalidArgumentError, match=r"segment 2 is shared after segment 4"):
        received.check(2, MIB)
    with pytest.raises(InvalidArgumentError, match="lies in segment 1, which was never shared"):
        received.received(1, MIB)
    with pytest.raises(InvalidArgumentError, match="lies in segment 2, which has"):
        received.received(2, MIB + 1)
    received.received(2, MIB)
    with pytest.raises(InvalidArgumentError, match="lies in segment 2, which is in use"):
        received.received(2, MIB)
    with pytest.raises(InvalidArgumentError, match="drops segment 2, which is in use"):
        received.dropped(2)


@given(
    st.one_of(
        st.builds(
            InSegment,
            st.integers(1, 1 << 60),
            st.binary(max_size=40),
            st.integers(0, (1 << 32) - 1),
            st.integers(0, 1 << 40),
        ),
        st.builds(Shared, st.integers(0, 1 << 40), st.integers(0, 1 << 40)),
        st.builds(Freed, st.integers(0, 1 << 40)),
        st.builds(Dropped, st.integers(0, 1 << 40)),
    )
)
def test_frames_about_segments_mean_the_same_after_encoding(frame):
    assert parse_segment_frame(b"".join(segment_frame(frame))) == frame


@given(st.binary(min_size=HEADER_BYTES, max_size=HEADER_BYTES + 8))
def test_bytes_that_are_no_such_frame_are_refused(data):
    try:
        frame = parse_segment_frame(data)
    except InvalidArgumentError:
        return
    assert b"".join(segment_frame(frame)) == data
