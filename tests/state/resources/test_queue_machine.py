"""Queues of every kind against a model made of lists."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jflow.base.cluster import Task
from jflow.base.values import TensorSpec
from jflow.errors import AbortedError, DeadlineExceededError, OutOfRangeError
from jflow.state import quotas
from jflow.state.quotas import DEFAULT, Usage
from jflow.state.resources.queue import (
    Close,
    Dequeue,
    DequeueMany,
    Enqueue,
    EnqueueMany,
    Queue,
    QueueSpec,
)
from tests.drawn import examples
from tests.state.resources.queue_model import Failure, Get, Model, Put, Row, Shut

NUMBER, TEXT = TensorSpec((), "int64"), TensorSpec((), "string")
BLOCK = 16  # of the bytes that are charged: so small that most moves pass one
SIZES = st.sampled_from([0, 1, 5])  # lengths of the second component, where they may differ


class QueueMachine(RuleBasedStateMachine):
    """Every move does the same to the queue and to the model; what completes must agree."""

    kind = "FIFOQueue"
    components = (NUMBER, TEXT)
    number_of = 0  # the component that says which row it is
    bounds = st.sampled_from([None, 20, 40])

    def __init__(self):
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(quotas, "_BLOCK_BYTES", BLOCK)
        self.n_rows = 0
        self.delivered = []
        self.saved = None
        self.end = None

    @initialize(
        capacity=st.sampled_from([-1, 0, 1, 3, 3, 5]),
        data=st.data(),
        min_after_dequeue=st.integers(0, 2),
        seed=st.integers(0, 9),
    )
    def make(self, capacity, data, min_after_dequeue, seed):
        self.is_shuffle = self.kind == "RandomShuffleQueue"
        if not self.is_shuffle:
            min_after_dequeue = 0
        elif 0 <= capacity <= min_after_dequeue:
            capacity = min_after_dequeue + 1
        spec = QueueSpec(
            self.kind,
            capacity,
            data.draw(self.bounds),
            self.components,
            min_after_dequeue=min_after_dequeue,
        )
        self.queue = Queue(spec, "q", np.random.default_rng(seed))
        self.usage = Usage(Task("ps", 0))
        self.queue.allowance.charge_to(self.usage, DEFAULT, 0)
        self.model = Model(spec)

    def row(self, priority, length):
        """A new row, and its arrays as lists."""
        self.n_rows += 1
        length = 1 if self.is_shuffle else length
        return Row(priority, self.n_rows, length, n_bytes=8 + 8 + length)

    def cells(self, row):
        """A row's components as plain values."""
        return row.number, b"x" * row.length

    def batch(self, rows):
        """Rows stacked, as arrays."""
        columns = zip(*map(self.cells, rows), strict=True) if rows else [(), ()]
        return tuple(
            np.array([*column], component.numpy_dtype)
            for column, component in zip(columns, self.components, strict=True)
        )

    def expected(self, rows):
        """What a dequeue_many of rows brings, as lists."""
        return [[self.cells(row)[i] for row in rows] for i in range(2)]

    def check(self, completed, expected):
        """The attempts that completed, and what with, are those of the model."""
        if self.end is not None:
            assert [attempt.error for attempt in completed] == [self.end]
            return
        assert completed == [op.attempt for op, _ in expected]
        for op, outcome in expected:
            if isinstance(outcome, Failure):
                assert outcome.matches(op.attempt.error), op.attempt.error
            elif isinstance(op, Get):
                self.check_got(op, outcome)
            else:
                assert op.attempt.result() == ()

    def check_got(self, get, rows):
        values = get.attempt.result()
        found = [value.tolist() for value in values]
        assert all(isinstance(value, np.ndarray) for value in values)
        assert [v.dtype for v in values] == [c.numpy_dtype for c in self.components]
        if isinstance(get.attempt, Dequeue):
            found = [[value] for value in found]
        if self.is_shuffle:
            rows = self.found_rows(found[0])
        assert found == self.expected(rows)
        self.delivered += rows

    def found_rows(self, numbers):
        """Which rows a shuffle queue gave: any that entered and were not given before."""
        rows = {row.number: row for row in self.model.entered if row not in self.delivered}
        assert len({*numbers}) == len(numbers)
        return [rows[number] for number in numbers]

    @rule(priority=st.integers(-2, 2), length=SIZES)
    def enqueue(self, priority, length):
        row = self.row(priority, length)
        attempt = Enqueue(tuple(column[0, ...] for column in self.batch([row])))
        self.check(self.queue.submit(attempt), self.model.submit(Put(attempt, [row])))

    @rule(shapes=st.lists(st.tuples(st.integers(-2, 2), SIZES), max_size=6))
    def enqueue_many(self, shapes):
        rows = [self.row(*shape) for shape in shapes]
        attempt = EnqueueMany(self.batch(rows))
        completed = self.queue.submit(attempt)
        if rows or self.end is not None:
            self.check(completed, self.model.submit(Put(attempt, rows)))
        else:
            assert completed == [attempt]
            assert attempt.result() == ()

    @rule()
    def dequeue(self):
        attempt = Dequeue()
        self.check(self.queue.submit(attempt), self.model.submit(Get(attempt, 1, 1, 1)))

    @rule(count=st.integers(0, 6))
    def dequeue_many(self, count):
        self.get(DequeueMany(count), count, count, count)

    @rule(count=st.integers(0, 6))
    def dequeue_up_to(self, count):
        self.get(DequeueMany(count, up_to=True), count, count, min(count, 1))

    @rule(count=st.integers(1, 6), data=st.data())
    def dequeue_what_is_there(self, count, data):
        minimum = data.draw(st.integers(1, count))
        self.get(DequeueMany(count, minimum=minimum), count, minimum, minimum)

    def get(self, attempt, count, wanted, wanted_when_closed):
        completed = self.queue.submit(attempt)
        if count or self.end is not None:
            get = Get(attempt, count, wanted, wanted_when_closed)
            self.check(completed, self.model.submit(get))
        else:
            assert completed == [attempt]
            assert [len(value) for value in attempt.result()] == [0, 0]

    @precondition(lambda self: self.n_rows > 6)
    @rule()
    def close(self):
        attempt = Close()
        self.check(self.queue.submit(attempt), self.model.submit(Shut(attempt)))

    @precondition(lambda self: self.n_rows > 12)
    @rule()
    def close_and_cancel(self):
        attempt = Close(cancel_pending_enqueues=True)
        completed = self.queue.submit(attempt)
        if self.end is None:
            assert completed[0] is attempt
            assert attempt.result() == ()
            self.check(completed[1:], self.model.close_now())

    @precondition(lambda self: self.end is None and self.model.puts + self.model.gets)
    @rule(data=st.data())
    def cancel(self, data):
        self.give_up(data.draw(st.sampled_from(self.model.puts + self.model.gets)))

    def give_up(self, op):
        error = DeadlineExceededError("too late")
        completed = self.queue.cancel(op.attempt, error)
        assert completed[0] is op.attempt
        assert op.attempt.error is error
        self.check(completed[1:], self.model.cancel(op))
        assert self.queue.cancel(op.attempt, error) == []

    @precondition(lambda self: self.end is None)
    @rule()
    def save(self):
        """What is saved are the rows that entered and were not given out."""
        snapshot, model = self.queue.snapshot(), self.model
        numbers = snapshot.elements[self.number_of].tolist()
        rows = {row.number: row for row in model.entered}
        found = [rows[number] for number in numbers]
        assert sorted(found) == sorted({*model.entered} - {*self.delivered})
        if not self.is_shuffle:
            assert found == model.contents()
        assert snapshot.is_closed == model.closed
        self.check_fresh(snapshot, found)
        self.saved = snapshot, found

    def check_fresh(self, snapshot, rows):
        """Another queue that is restored from a snapshot gives out its rows."""
        queue = Queue(self.queue.spec, "fresh", np.random.default_rng(99))
        assert queue.restore(snapshot) == []
        assert (queue.size, queue.size_bytes) == (len(rows), sum(row.n_bytes for row in rows))
        queue.submit(Close(cancel_pending_enqueues=True))
        if rows:
            (attempt,) = queue.submit(DequeueMany(len(rows)))
            found = [value.tolist() for value in attempt.result()]
            if self.is_shuffle:
                assert sorted(found[0]) == sorted(row.number for row in rows)
            else:
                assert found == self.expected(rows)

    @precondition(lambda self: self.end is None and self.saved is not None)
    @rule()
    def restore(self):
        snapshot, rows = self.saved
        completed = self.queue.restore(snapshot)
        self.model.entered, self.delivered = [*rows], []
        self.check(completed, self.model.restore(rows, snapshot.is_closed))

    @precondition(lambda self: self.n_rows > 25 and self.end is None)
    @rule()
    def free_all(self):
        waiting = [op.attempt for op in self.model.puts + self.model.gets]
        self.end = AbortedError("reset")
        assert self.queue.close(self.end) == waiting
        assert all(attempt.error is self.end for attempt in waiting)
        assert (self.queue.size, self.queue.size_bytes, self.queue.n_waiting) == (0, 0, (0, 0))

    @invariant()
    def sizes_are_those_of_the_model(self):
        if self.end is None:
            queue, model = self.queue, self.model
            assert queue.size == len(model.inside)
            assert queue.size_bytes == model.n_bytes
            assert queue.is_closed == model.closed
            assert queue.n_waiting == (len(model.puts), len(model.gets))

    @invariant()
    def all_elements_are_charged(self):
        queue = self.queue
        has = queue.size_bytes + queue.held_bytes
        attempts = [one for one in queue.waiting() if isinstance(one, DequeueMany)]
        held = [block for one in attempts for block in one.taken_elements()]
        assert queue.held_bytes == sum(map(queue._table.block_bytes, held))
        charged = self.usage.accounts().get(DEFAULT, 0)
        assert has <= charged == queue.allowance.most <= 2 * (has + BLOCK)
        if self.end is not None:
            assert charged == 0

    def teardown(self):
        """Every element that ever entered was given out once, or is still inside."""
        self.patch.undo()
        if self.end is not None or self.n_rows == 0:
            return
        self.close_and_cancel()
        while self.model.gets:
            self.give_up(self.model.gets[0])
        for _ in range(self.queue.size):
            self.dequeue()
        assert sorted(self.delivered) == sorted(self.model.entered)
        last = Dequeue()
        self.queue.submit(last)
        assert isinstance(last.error, OutOfRangeError)


class ShuffleMachine(QueueMachine):
    kind = "RandomShuffleQueue"


class PriorityMachine(QueueMachine):
    kind = "PriorityQueue"
    components = (NUMBER, NUMBER)
    number_of = 1

    def cells(self, row):
        return row.priority, row.number

    def row(self, priority, length):
        self.n_rows += 1
        return Row(priority, self.n_rows, length, n_bytes=16)


class PaddingMachine(QueueMachine):
    kind = "PaddingFIFOQueue"
    components = (NUMBER, TensorSpec((None,), "int32"))
    bounds = st.sampled_from([None, 20, 30])

    def row(self, priority, length):
        self.n_rows += 1
        return Row(priority, self.n_rows, length, n_bytes=8 + 4 * length)

    def cells(self, row):
        return row.number, [row.number] * row.length

    def batch(self, rows):
        """Rows of one batch have one length."""
        length = rows[0].length if rows else 0
        return (
            np.array([row.number for row in rows], np.int64),
            np.array([[row.number] * length for row in rows], np.int32).reshape(len(rows), length),
        )

    @rule(shapes=st.lists(st.integers(-2, 2), max_size=6), length=SIZES)
    def enqueue_many(self, shapes, length):
        super().enqueue_many([(priority, length) for priority in shapes])

    def expected(self, rows):
        longest = max(row.length for row in rows)
        cells = [[row.number] * row.length + [0] * (longest - row.length) for row in rows]
        return [[row.number for row in rows], cells]


TestFifo = QueueMachine.TestCase
TestShuffle = ShuffleMachine.TestCase
TestPriority = PriorityMachine.TestCase
TestPadding = PaddingMachine.TestCase

TestFifo.settings = TestShuffle.settings = TestPriority.settings = TestPadding.settings = settings(
    max_examples=examples(30), stateful_step_count=40
)
