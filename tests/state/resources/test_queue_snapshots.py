"""Snapshots of queues: every dtype, independence, refusals, and what waits meanwhile.

That they contain what they should in the middle of any operations, test_queue_machine.py checks.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from jflow.base.values import NUMBERS, TensorSpec
from jflow.errors import CancelledError, InvalidArgumentError, OpError
from jflow.state.resources import Cell
from jflow.state.resources.accumulator import Accumulator, AccumulatorSpec
from jflow.state.resources.queue import (
    Close,
    Dequeue,
    DequeueMany,
    Enqueue,
    EnqueueMany,
    Queue,
    QueueSpec,
    RngState,
)
from jflow.state.resources.queue.spec import KINDS, PADDING, PRIORITY, SHUFFLE
from tests.samples import assert_same, numbers
from tests.state.resources.queues import FLOAT, element, make, put, submit, take, values

NUMBER, TEXT, RAGGED = (
    TensorSpec((), "int64"),
    TensorSpec((), "string"),
    TensorSpec((None,), "int32"),
)


def restored(queue, seed=77):
    """Another queue with the spec of a queue and the state of its snapshot."""
    other = Queue(queue.spec, "other", np.random.default_rng(seed))
    assert other.restore(queue.snapshot()) == []
    return other


def plain(snapshot):
    """A snapshot as something that can be compared."""
    columns = [[np.asarray(row).tolist() for row in rows] for rows in snapshot.elements]
    return snapshot.spec, columns, snapshot.is_closed, snapshot.rng


# Any operations before, the same ones after -------------------------------------------------------

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["put"]), st.integers(-2, 2)),
        st.tuples(st.sampled_from(["put many", "get many", "up to"]), st.integers(1, 5)),
        st.just(("get", 1)),
        st.just(("close", 0)),
        st.tuples(st.just("cancel"), st.integers(0, 20)),
    ),
    max_size=25,
)


class Driver:
    """Does operations on a queue and tells what each attempt came to."""

    def __init__(self, queue, number=0):
        self.queue = queue
        self.number = number
        self.attempts = []

    def elements(self, priorities):
        self.number += len(priorities)
        rows = range(self.number - len(priorities), self.number)
        if self.queue.spec.kind == PADDING:
            length = self.number % 3
            last = np.array([[row] * length for row in rows], np.int32).reshape(len(rows), length)
        else:
            last = np.array([b"x" * (row % 4) for row in rows], object)
        return np.array(priorities, np.int64), np.array(rows, np.int64), last

    def do(self, name, amount):
        if name == "cancel":
            if self.attempts:
                attempt = self.attempts[amount % len(self.attempts)]
                self.queue.cancel(attempt, CancelledError("given up"))
            return
        match name:
            case "put":
                attempt = Enqueue(tuple(column[0, ...] for column in self.elements([amount])))
            case "put many":
                attempt = EnqueueMany(self.elements([n % 3 - 1 for n in range(amount)]))
            case "get":
                attempt = Dequeue()
            case "close":
                attempt = Close()
            case _:
                attempt = DequeueMany(amount, up_to=name == "up to")
        self.attempts.append(attempt)
        self.queue.submit(attempt)

    def cancel_all(self):
        """Cancels what waits, the newest first, so that nothing else acts meanwhile."""
        for attempt in reversed(self.attempts):
            self.queue.cancel(attempt, CancelledError("given up"))

    def outcomes(self):
        return [self.outcome(attempt) for attempt in self.attempts]

    def outcome(self, attempt):
        if attempt.error is not None:
            return str(attempt.error).replace(self.queue.name, "the queue")
        return [value.tolist() for value in attempt.values] if attempt.is_complete else "waits"


@st.composite
def specs(draw):
    kind = draw(st.sampled_from(KINDS))
    minimum = draw(st.integers(0, 2)) if kind == SHUFFLE else 0
    return QueueSpec(
        kind,
        draw(st.sampled_from([-1, 3, 5])),
        draw(st.sampled_from([None, 60, 90])),
        (NUMBER, NUMBER, RAGGED if kind == PADDING else TEXT),
        min_after_dequeue=minimum,
    )


@given(spec=specs(), before=OPERATIONS, after=OPERATIONS, seed=st.integers(0, 5))
def test_a_restored_queue_goes_on_as_the_saved_one_once_nothing_waits(spec, before, after, seed):
    saved = Driver(Queue(spec, "saved", np.random.default_rng(seed)))
    for operation in before:
        saved.do(*operation)
    snapshot = saved.queue.snapshot()
    found = plain(snapshot)
    saved.cancel_all()
    assert plain(saved.queue.snapshot()) == found, "it is what cancelling all that waits leaves"
    other = Driver(Queue(spec, "other", np.random.default_rng(99)), saved.number)
    assert other.queue.restore(snapshot) == []
    saved.attempts = []
    for operation in after:
        saved.do(*operation)
        other.do(*operation)
    assert saved.outcomes() == other.outcomes()
    assert plain(saved.queue.snapshot()) == plain(other.queue.snapshot())
    assert saved.queue.size_bytes == other.queue.size_bytes
    assert plain(snapshot) == found, "later changes do not reach a snapshot"


@given(spec=specs(), before=OPERATIONS, after=OPERATIONS)
def test_restoring_the_latest_snapshot_in_place_loses_and_doubles_nothing(spec, before, after):
    """With attempts that wait in the middle of what they do."""
    plainly, again = (Driver(Queue(spec, "q", np.random.default_rng(3))) for _ in range(2))
    for operation in before:
        plainly.do(*operation)
        again.do(*operation)
    snapshot = again.queue.snapshot()
    completed = again.queue.restore(snapshot)
    if spec.kind == SHUFFLE:  # what a waiting attempt takes again may be other elements
        assert sorted(plain(again.queue.snapshot())[1][1]) == sorted(plain(snapshot)[1][1])
        return
    assert completed == []
    assert plain(again.queue.snapshot()) == plain(snapshot)
    for operation in after:
        plainly.do(*operation)
        again.do(*operation)
    assert plainly.outcomes() == again.outcomes()


# What waits meanwhile -----------------------------------------------------------------------------


def test_rows_that_an_unfinished_dequeue_many_has_taken_are_still_in_the_snapshot():
    queue = make()
    put(queue, 1, 2)
    waiting = DequeueMany(3)
    assert queue.submit(waiting) == []
    assert queue.size == 0
    snapshot = queue.snapshot()
    assert snapshot.elements[0].tolist() == [1, 2]
    put(queue, 3)
    assert values(waiting) == [1, 2, 3]
    assert queue.restore(snapshot) == []
    assert [take(queue), take(queue)] == [1, 2]


def test_rows_that_an_unfinished_enqueue_many_has_not_put_are_not_in_the_snapshot():
    queue = make(capacity=2)
    waiting = EnqueueMany((np.array([1, 2, 3, 4], np.float32),))
    assert queue.submit(waiting) == []
    snapshot = queue.snapshot()
    assert snapshot.elements[0].tolist() == [1, 2]
    assert queue.restore(snapshot) == []
    assert [take(queue) for _ in range(4)] == [1, 2, 3, 4]
    assert waiting.is_complete


def test_a_restore_completes_attempts_for_which_the_new_state_is_enough():
    full = make()
    put(full, 1, 2, 3)
    queue = make()
    several, one = DequeueMany(2), Dequeue()
    assert submit(queue, several, one) == []
    assert queue.restore(full.snapshot()) == [several, one]
    assert values(several) == [1, 2]
    assert one.result()[0] == 3


def test_a_restore_makes_room_for_enqueues_and_lets_attempts_fail_on_a_closed_queue():
    queue, empty = make(capacity=1), make(capacity=1)
    put(queue, 1)
    waiting = Enqueue(element(2.0))
    assert queue.submit(waiting) == []
    assert queue.restore(empty.snapshot()) == [waiting]
    assert take(queue) == 2
    dequeue = Dequeue()
    assert queue.submit(dequeue) == []
    submit(empty, Close())
    assert queue.restore(empty.snapshot()) == [dequeue]
    assert "insufficient elements" in dequeue.error.message


def test_a_restore_opens_a_closed_queue_again():
    queue = make()
    put(queue, 1)
    snapshot = queue.snapshot()
    submit(queue, Close())
    queue.restore(snapshot)
    put(queue, 2)
    assert [take(queue), take(queue)] == [1, 2]


def test_elements_of_an_attempt_from_before_a_restore_do_not_return_to_the_new_state():
    queue = make()
    put(queue, 1, 2)
    snapshot = queue.snapshot()
    first = Dequeue()
    queue.submit(first)
    assert queue.restore(snapshot) == []
    assert queue.unread(first) == []
    assert [take(queue), take(queue), queue.size] == [1, 2, 0]
    again = Dequeue()
    queue.submit(again)
    put(queue, 5)
    assert queue.unread(again) == []
    assert take(queue) == 5, "a dequeue that waits is not one that was done before"


def test_an_attempt_that_waits_across_a_restore_can_be_unread_after_it():
    queue, full = make(), make()
    put(full, 7)
    waiting = Dequeue()
    queue.submit(waiting)
    assert queue.restore(full.snapshot()) == [waiting]
    assert queue.size == 0
    queue.unread(waiting)
    assert take(queue) == 7


def test_a_cell_wakes_what_a_restore_completes():
    full = make()
    put(full, 4)
    cell = Cell(make(), "")
    waiting, woken = Dequeue(), []
    assert not cell.submit(waiting, woken.append)
    empty = cell.snapshot()
    cell.restore(full.snapshot())
    assert woken == [waiting]
    assert values(waiting) == 4
    assert len(empty.elements[0]) == 0


def test_elements_beyond_the_capacity_are_restored_and_let_nothing_else_enter():
    """A dequeue that waits for more than the capacity has taken some, and others have entered."""
    queue = make(capacity=2)
    queue.submit(DequeueMany(5))
    put(queue, 1, 2, 3)
    snapshot = queue.snapshot()
    assert len(snapshot.elements[0]) == 3
    other = restored(queue)
    waiting = Enqueue(element(4.0))
    assert other.submit(waiting) == []
    assert [take(other) for _ in range(4)] == [1, 2, 3, 4]


def test_a_queue_that_was_closed_for_good_has_no_state():
    queue = make()
    put(queue, 1)
    snapshot = queue.snapshot()
    queue.close(CancelledError("queue 'q' is gone"))
    with pytest.raises(CancelledError, match="gone"):
        queue.snapshot()
    with pytest.raises(CancelledError, match="gone"):
        queue.restore(snapshot)
    assert queue.size == 0


# Dtypes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 3), (None, 3), None], ids=str)
@pytest.mark.parametrize("name", [*NUMBERS, "string"])
def test_elements_of_every_dtype_are_saved_bit_by_bit(name, shape):
    array = (
        np.array([[b"", b"a\x00b", "é".encode()]] * 2, object)
        if name == "string"
        else numbers(name, (2, 3))
    )
    queue = make(PRIORITY, components=(TensorSpec(shape, name), TEXT))
    for priority, word in ((2, b"later"), (1, b"\xff\x00"), (1, b"")):
        entered = Enqueue((np.array(priority), array, np.array(word, object)))
        assert queue.submit(entered) == [entered]
        entered.result()
    other = restored(queue)
    assert other.size_bytes == queue.size_bytes
    for word in (b"\xff\x00", b"", b"later"):
        dequeue = Dequeue()
        other.submit(dequeue)
        _, found, text = dequeue.result()
        assert_same(found, array)
        assert text.item() == word


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("component", [FLOAT, TEXT, TensorSpec((None,), "float32")], ids=str)
def test_a_snapshot_shares_no_memory_with_the_queue_nor_with_what_was_given_out(kind, component):
    queue = make(kind, components=(component,))
    array = np.zeros((2,) if component.shape else (), component.numpy_dtype)
    array[...] = b"one" if component.is_string else 1
    queue.submit(Enqueue((*([np.array(0)] if kind == PRIORITY else []), array)))
    snapshot = queue.snapshot()
    other = Queue(queue.spec, "other", np.random.default_rng(0))
    other.restore(snapshot)
    for one in (queue, other):
        dequeue = Dequeue()
        one.submit(dequeue)
        given = dequeue.result()[-1]
        given[...] = b"two" if component.is_string else 2
    saved = np.asarray(snapshot.elements[-1][0])
    assert (saved == (b"one" if component.is_string else 1)).all()


@pytest.mark.parametrize("words", [(0,) * 6, (2**64 - 1,) * 4 + (1, 2**32 - 1)], ids=["0", "max"])
def test_a_random_state_is_64_bit_integers_and_is_restored_exactly(words):
    queue = make(SHUFFLE)
    snapshot = dataclasses.replace(queue.snapshot(), rng=RngState("PCG64", words))
    queue.restore(snapshot)
    assert queue.snapshot().rng == snapshot.rng


def test_a_shuffle_queue_without_a_seed_goes_on_from_one_with_a_seed():
    seeded = make(SHUFFLE, components=(FLOAT,))
    put(seeded, *range(9))
    other = Queue(structs.replace(seeded.spec, seed=5), "other", np.random.default_rng([5, 0]))
    other.restore(seeded.snapshot())
    assert [take(other) for _ in range(9)] == [take(seeded) for _ in range(9)]


# Refusals -----------------------------------------------------------------------------------------

SPEC = QueueSpec(SHUFFLE, 10, 1000, (FLOAT, RAGGED), ("a", "b"), 1)


def with_one_element():
    queue = Queue(SPEC, "q", np.random.default_rng(0))
    queue.submit(Enqueue((np.array(1, np.float32), np.array([1, 2], np.int32))))
    return queue


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "FIFOQueue", "min_after_dequeue": 0}, "kind RandomShuffleQueue.*kind FIFOQueue"),
        ({"capacity": 9}, "has capacity 10, but.*with capacity 9"),
        ({"capacity_bytes": None}, "capacity in bytes 1000.*capacity in bytes None"),
        ({"components": (FLOAT, TEXT)}, "component types.*int32.*string"),
        ({"components": (FLOAT, NUMBER)}, "component types.*int64"),
        (
            {"components": (FLOAT, TensorSpec((2,), "int32"))},
            r"component shapes.*\(None,\).*\(2,\)",
        ),
        ({"names": ("a", "c")}, "names"),
        ({"min_after_dequeue": 2}, "min_after_dequeue 1.*min_after_dequeue 2"),
    ],
    ids=str,
)
def test_a_snapshot_of_another_spec_is_refused_and_changes_nothing(change, message):
    queue = with_one_element()
    waiting = Dequeue()  # one element has to stay
    other = Queue(structs.replace(SPEC, **change), "o", np.random.default_rng(0))
    queue.submit(waiting)
    before = plain(queue.snapshot())
    with pytest.raises(
        InvalidArgumentError, match=f"cannot restore RandomShuffleQueue 'q'.*{message}"
    ):
        queue.restore(other.snapshot())
    assert plain(queue.snapshot()) == before
    assert not waiting.is_complete


def test_a_snapshot_of_another_kind_of_resource_is_refused():
    accumulator = Accumulator(AccumulatorSpec("float32", ()), "a")
    with pytest.raises(
        InvalidArgumentError, match="FIFOQueue 'q': expected a QueueSnapshot, got a Accumulator"
    ):
        make().restore(accumulator.snapshot())


@pytest.mark.parametrize(
    ("elements", "message"),
    [
        ((np.zeros(1, np.float32),), "1 components, expected 2"),
        ((np.zeros(2, np.float32), (np.zeros(1, np.int32),)), r"different numbers.*\[2, 1\]"),
        ((np.zeros(1), (np.zeros(1, np.int32),)), "Type mismatch in component 0 of the snapshot"),
        (
            (np.zeros((1, 2), np.float32), (np.zeros(1, np.int32),)),
            r"Shape mismatch in component 0 of the snapshot. Expected \(None,\), got \(1, 2\)",
        ),
        (
            (np.zeros(1, np.float32), (np.zeros((1, 1), np.int32),)),
            r"component 1 of the snapshot. Expected \(None,\), got \(1, 1\)",
        ),
    ],
    ids=str,
)
def test_elements_that_do_not_fit_the_spec_are_refused(elements, message):
    queue = with_one_element()
    snapshot = dataclasses.replace(queue.snapshot(), elements=elements)
    with pytest.raises(InvalidArgumentError, match=message):
        queue.restore(snapshot)
    assert queue.size == 1


@pytest.mark.parametrize(
    ("rng", "message"),
    [
        (None, "a random state belongs to a shuffle queue"),
        (RngState("MT19937", (0,) * 6), "of 'MT19937', expected 'PCG64'"),
        (RngState("PCG64", (0,) * 5), "is not a random state"),
        (RngState("PCG64", (2**64, 0, 0, 0, 0, 0)), "is not a random state"),
        (RngState("PCG64", (0, 0, 0, 0, 2, 0)), "is not a random state"),
        (RngState("PCG64", (-1, 0, 0, 0, 0, 0)), "is not a random state"),
    ],
    ids=str,
)
def test_a_random_state_that_is_none_is_refused(rng, message):
    queue = with_one_element()
    before = plain(queue.snapshot())
    with pytest.raises(InvalidArgumentError, match=message):
        queue.restore(dataclasses.replace(queue.snapshot(), rng=rng))
    assert plain(queue.snapshot()) == before
    with pytest.raises(OpError, match="a random state belongs"):
        make().restore(dataclasses.replace(make().snapshot(), rng=RngState("PCG64", (0,) * 6)))
