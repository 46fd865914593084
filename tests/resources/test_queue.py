import numpy as np
import pytest

from jflow import errors
from jflow.resources import (
    Close,
    Component,
    Dequeue,
    DequeueMany,
    Enqueue,
    EnqueueMany,
    Queue,
    QueueSpec,
)

FLOAT = Component("float32", ())


def first(n):
    """Chance for queues that should not ask for it, or whose choice does not matter."""
    return 0


def make(kind="FIFOQueue", capacity=10, components=(FLOAT,), choose=first, **rest):
    if kind == "PriorityQueue":
        components = (Component("int64", ()), *components)
    return Queue(QueueSpec(kind, capacity, components=components, **rest), "q", choose)


def element(*values, dtype=np.float32):
    return tuple(np.array(value, dtype) for value in values)


def submit(queue, *attempts):
    """Submits attempts and returns those that settled on the way."""
    return [settled for attempt in attempts for settled in queue.submit(attempt)]


def put(queue, *values):
    """Adds single numbers, which must not have to wait."""
    for value in values:
        attempt = Enqueue(element(value))
        assert queue.submit(attempt)[0] is attempt
        attempt.result()


def take(queue):
    """Takes a single number, which must be there."""
    attempt = Dequeue()
    assert queue.submit(attempt) == [attempt]
    return attempt.result()[0].item()


def many(count, **rest):
    return DequeueMany(count, **rest)


def values(attempt):
    """The first component of what an attempt brought."""
    return attempt.result()[0].tolist()


def test_elements_come_out_in_the_order_in_which_they_went_in():
    queue = make()
    put(queue, 1, 2, 3)
    assert queue.size == 3
    assert [take(queue) for _ in range(3)] == [1, 2, 3]
    assert queue.size == queue.size_bytes == 0


def test_the_queue_hands_out_the_very_arrays_it_was_given():
    queue, given, attempt = make(), element(1), Dequeue()
    submit(queue, Enqueue(given), attempt)
    assert attempt.result()[0] is given[0]


def test_a_dequeue_waits_for_an_element_and_later_ones_stand_behind_it():
    queue = make()
    one, two, more = Dequeue(), Dequeue(), Enqueue(element(5))
    assert submit(queue, one, two) == []
    assert queue.n_waiting == (0, 2)
    assert submit(queue, more) == [more, one]
    assert values(one) == 5
    assert not two.is_settled
    assert queue.n_waiting == (0, 1)


def test_an_enqueue_waits_while_the_queue_is_full():
    queue, late, behind, get = make(capacity=1), Enqueue(element(2)), Enqueue(element(3)), Dequeue()
    put(queue, 1)
    assert submit(queue, late, behind) == []
    assert submit(queue, get) == [get, late]
    assert (values(get), queue.size, queue.n_waiting) == (1, 1, (1, 0))


@pytest.mark.parametrize(("capacity", "enters"), [(-1, True), (-7, True), (0, False)])
def test_a_negative_capacity_bounds_nothing_and_none_lets_nothing_in(capacity, enters):
    queue = make(capacity=capacity)
    batch = EnqueueMany((np.zeros(1000, np.float32),))
    assert bool(submit(queue, batch)) is enters
    assert queue.size == (1000 if enters else 0)


def test_a_waiting_dequeue_many_takes_what_comes_and_blocks_those_behind():
    queue, five, one = make(), many(5), Dequeue()
    put(queue, 1, 2, 3)
    assert submit(queue, five, one) == []
    assert (queue.size, queue.size_bytes) == (0, 0)
    put(queue, 4)
    assert not one.is_settled
    last, after = Enqueue(element(5)), Enqueue(element(6))
    assert submit(queue, last, after) == [last, five, after, one]
    assert values(five) == [1, 2, 3, 4, 5]
    assert values(one) == 6


def test_what_a_waiting_dequeue_many_holds_leaves_room_for_more():
    queue, batch, all_of_it = make(capacity=2), EnqueueMany(element(range(7))), many(7)
    assert submit(queue, batch) == []
    assert queue.size == 2
    assert submit(queue, all_of_it) == [batch, all_of_it]
    assert values(all_of_it) == [0, 1, 2, 3, 4, 5, 6]


def test_close_lets_the_rest_be_taken_and_nothing_in():
    queue, close = make(), Close()
    put(queue, 1)
    assert submit(queue, close) == [close]
    assert queue.is_closed
    late = Enqueue(element(2))
    submit(queue, late)
    with pytest.raises(errors.CancelledError, match="'q' is closed"):
        late.result()
    assert take(queue) == 1
    attempt = Dequeue()
    submit(queue, attempt)
    with pytest.raises(
        errors.OutOfRangeError, match=r"closed and has insufficient .*requested 1, current size 0"
    ):
        attempt.result()
