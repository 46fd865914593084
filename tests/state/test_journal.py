"""The journal of a task: what it keeps, and how it travels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jflow as tf
from jflow.base.cluster import Device
from jflow.plan import Call, Plan, Run, VariableKey, VariableSpec
from jflow.state.journal import (
    N_ATTEMPTS,
    N_IDS,
    RECORDED,
    Journal,
    JournalEntry,
    PackedEntries,
    packed,
    recorded_ids,
)

SPECS = tuple(VariableSpec(VariableKey("", name), "float32", ()) for name in "abc")
RUN, CALL = Run(None, reads=(0,), writes=(1,)), Call("queue.dequeue", outputs=(0,), resources=(0,))
PLANS = [
    Plan(Device.parse(f"/job:ps/task:0/device:CPU:{i}"), 1, SPECS, ((RUN,), (CALL,)))
    for i in range(2)
]
TOUCHED = st.tuples(st.integers(0, 2), st.integers(-1, 2**40), st.booleans())


@given(st.lists(st.tuples(st.integers(RECORDED, 2**64 - 1), st.integers(0, 1), st.lists(TOUCHED))))
def test_programs_come_back_as_they_were_noted(noted):
    entries = [
        JournalEntry(step, PLANS[device], RUN, tuple(touched)) for step, device, touched in noted
    ]
    part = packed(5, entries, 7)
    assert (part.first, part.n_entries, part.n_left) == (5, len(noted), 7)
    content = PackedEntries.from_bytes(part.packed)
    found = [
        (one.step, content.devices[one.device], one.instruction, [*one.variables()])
        for one in content.entries
    ]
    assert found == [
        (step, f"/job:ps/task:0/device:CPU:{device}", 0, touched) for step, device, touched in noted
    ]


def test_results_of_calls_follow_in_order():
    values = [np.arange(n) for n in range(3)]
    entries = [
        JournalEntry(RECORDED, PLANS[0], CALL, values=(values[0],)),
        JournalEntry(RECORDED, PLANS[0], RUN, ((0, 4, True),)),
        JournalEntry(RECORDED, PLANS[1], CALL, values=(values[1], values[2])),
    ]
    part = packed(0, entries, 0)
    assert [one.n_values for one in PackedEntries.from_bytes(part.packed).entries] == [1, 0, 2]
    assert all(a is b for a, b in zip(part.values, values, strict=True))


def test_the_oldest_entries_go_first_and_the_reader_sees_that_they_are_missing():
    journal = Journal(max_bytes=10_000)
    for n in range(100):
        journal.add(JournalEntry(RECORDED + n, PLANS[0], CALL, values=(np.zeros(100, np.uint8),)))
    first, entries, n_left = journal.read(0)
    assert first + len(entries) == 100
    assert 95 > first > 50
    assert not n_left
    assert entries[0].step == RECORDED + first
    assert journal.read(100) == (100, [], 0)
    large = JournalEntry(RECORDED, PLANS[0], CALL, values=(np.zeros(20_000, np.uint8),))
    journal.add(large)
    assert journal.read(0) == (100, [large], 0), "one entry is kept, however large it is"


def test_it_is_read_in_parts():
    journal = Journal()
    for n in range(25_000):
        journal.add(JournalEntry(RECORDED + n, PLANS[0], RUN, ((0, n, True),)))
    position, sizes = 0, []
    while True:
        first, entries, n_left = journal.read(position)
        assert first == position
        sizes.append(len(entries))
        position += len(entries)
        assert n_left == 25_000 - position
        if not n_left:
            break
    assert sum(sizes) == 25_000
    assert len(sizes) > 5


def test_numbers_of_recorded_steps_are_those_of_one_session():
    first = RECORDED + 5 * N_IDS + 3 * N_ATTEMPTS
    ids = recorded_ids(first)
    assert (ids.start, len(ids)) == (first, N_IDS)
    for number in (0, RECORDED - N_ATTEMPTS, RECORDED + 1, 2 * RECORDED):
        with pytest.raises(tf.errors.InvalidArgumentError, match="cannot have the number"):
            recorded_ids(number)
