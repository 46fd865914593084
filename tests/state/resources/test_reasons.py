"""What attempts that wait say they wait for."""

import re

import numpy as np
import pytest

from jflow.state.records import open_records
from jflow.state.records.allowed_directories import AllowedDirectories
from jflow.state.resources.accumulator import (
    Accumulator,
    AccumulatorSpec,
    ApplyGradient,
    TakeGradient,
)
from jflow.state.resources.queue import Close, Dequeue, DequeueMany, Enqueue, EnqueueMany
from jflow.state.resources.reader import AcquireReader, ReaderSpec, ReaderState
from tests.state.resources.queues import element, make, put, submit

ROWS = (np.arange(5, dtype=np.float32),)


@pytest.mark.parametrize(
    ("attempt", "n_inside", "reason"),
    [
        (Dequeue(), 0, "to dequeue an element from FIFOQueue 'q', which has 0 elements"),
        (DequeueMany(9), 0, "to dequeue 9 elements from FIFOQueue 'q', which has 0 elements"),
        (
            DequeueMany(9),
            2,
            r"to dequeue 9 elements \(it has 2 of them\) from FIFOQueue 'q', which",
        ),
        (DequeueMany(9, minimum=3), 0, "to dequeue 3 to 9 elements from FIFOQueue 'q'"),
        (
            Enqueue(element(1.0)),
            3,
            r"to enqueue an element into FIFOQueue 'q', which has 3 elements",
        ),
        (EnqueueMany(ROWS), 3, "to enqueue 5 elements into FIFOQueue 'q', which has 3 elements"),
        (EnqueueMany(ROWS), 1, r"to enqueue 5 elements \(2 have entered\) into FIFOQueue 'q'"),
    ],
)
def test_an_attempt_on_a_queue_says_how_full_it_is(attempt, n_inside, reason):
    queue = make(capacity=3)
    put(queue, *range(n_inside))
    assert queue.submit(attempt) == []
    said = queue.reason(attempt)
    assert said.startswith("waited to ")
    assert said.endswith("(capacity 3)")
    assert re.match(f"waited {reason}", said), said


def test_a_queue_says_what_else_bounds_it():
    queue = make("RandomShuffleQueue", 5, capacity_bytes=40, min_after_dequeue=2)
    put(queue, 1)
    waiting = Dequeue()
    queue.submit(waiting)
    assert queue.reason(waiting).endswith(
        "1 element (capacity 5, 4 of 40 bytes, min_after_dequeue 2)"
    )
    unbounded = make(capacity=-1)
    unbounded.submit(first := Dequeue())
    assert unbounded.reason(first).endswith("which has 0 elements")


def test_an_attempt_says_how_many_came_before_it():
    queue = make(capacity=0)
    attempts = Enqueue(element(1.0)), Close(), Enqueue(element(1.0))
    assert submit(queue, *attempts) == []
    assert queue.reason(attempts[1]) == "waited to close FIFOQueue 'q', behind 1 earlier attempt"
    assert queue.reason(attempts[2]).endswith("(capacity 0), behind 2 earlier attempts")


def test_an_attempt_that_is_complete_or_was_not_submitted_says_nothing_wrong():
    queue = make()
    put(queue, 1)
    done = Dequeue()
    queue.submit(done)
    assert queue.reason(done) == ""
    assert queue.reason(TakeGradient(1)) == ""
    assert "FIFOQueue 'q'" in queue.reason(Dequeue())


def test_other_resources_say_what_is_missing():
    acc = Accumulator(AccumulatorSpec("float32", ()), "acc")
    acc.submit(ApplyGradient(np.array(1, np.float32), 0))
    take = TakeGradient(3)
    acc.submit(take)
    assert acc.reason(take) == (
        "waited to take 3 gradients from conditional accumulator 'acc', which has 1"
    )
    reader = ReaderState(
        ReaderSpec("TextLineReader"),
        "lines",
        lambda work, position: open_records("", work, {}, AllowedDirectories(()), position),
    )
    first, second = AcquireReader(), AcquireReader()
    submit(reader, first, second)
    assert reader.reason(second) == (
        "waited for TextLineReader 'lines', which another step is reading"
    )
