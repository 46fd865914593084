import sys
import weakref

import numpy as np
import pytest

from jflow import errors
from jflow.base.values import TensorSpec
from jflow.state.resources.queue import (
    Close,
    Dequeue,
    DequeueMany,
    Enqueue,
    EnqueueMany,
)
from tests.state.resources.queues import element, make, put, submit, take, values


def test_elements_come_out_in_the_order_in_which_they_went_in():
    queue = make()
    put(queue, 1, 2, 3)
    assert queue.size == 3
    assert [take(queue) for _ in range(3)] == [1, 2, 3]
    assert queue.size == queue.size_bytes == 0


@pytest.mark.parametrize("shape", [(3,), (None,)])
def test_an_element_is_copied_when_it_enters(shape):
    queue, attempt = make(components=(TensorSpec(shape, "float32"),)), Dequeue()
    message = np.arange(1000, dtype=np.float32)
    lives = weakref.ref(message)
    submit(queue, Enqueue((message[1:4],)))
    del message
    assert lives() is None  # what it was a part of is not kept
    submit(queue, attempt)
    assert values(attempt) == [1, 2, 3]


@pytest.mark.parametrize("kind", ["FIFOQueue", "RandomShuffleQueue", "PriorityQueue"])
def test_what_came_out_is_not_overwritten(kind):
    queue = make(kind, 4)
    priorities = (np.zeros(4, np.int64),) if kind == "PriorityQueue" else ()
    one, three = Dequeue(), DequeueMany(3)
    submit(queue, EnqueueMany((*priorities, *element([1, 1, 1, 1]))), one, three)
    submit(queue, EnqueueMany((*priorities, *element([2, 2, 2, 2]))))
    assert one.result()[-1] == 1
    assert three.result()[-1].tolist() == [1, 1, 1]


@pytest.mark.parametrize("kind", ["FIFOQueue", "RandomShuffleQueue", "PriorityQueue"])
def test_a_string_that_came_out_is_forgotten(kind):
    queue, text = make(kind, components=(TensorSpec((), "string"),)), b"x" * 100
    before = sys.getrefcount(text)
    priorities = (np.zeros(3, np.int64),) if kind == "PriorityQueue" else ()
    submit(queue, EnqueueMany((*priorities, np.array([text] * 3, object))))
    assert sys.getrefcount(text) == before + 3
    submit(queue, Dequeue())
    assert sys.getrefcount(text) == before + 2
    submit(queue, DequeueMany(2))
    assert sys.getrefcount(text) == before


def test_a_dequeue_waits_for_an_element_and_later_ones_stand_behind_it():
    queue = make()
    one, two, more = Dequeue(), Dequeue(), Enqueue(element(5))
    assert submit(queue, one, two) == []
    assert queue.n_waiting == (0, 2)
    assert submit(queue, more) == [more, one]
    assert values(one) == 5
    assert not two.is_complete
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
    queue, five, one = make(), DequeueMany(5), Dequeue()
    put(queue, 1, 2, 3)
    assert submit(queue, five, one) == []
    assert (queue.size, queue.size_bytes) == (0, 0)
    put(queue, 4)
    assert not one.is_complete
    last, after = Enqueue(element(5)), Enqueue(element(6))
    assert submit(queue, last, after) == [last, five, after, one]
    assert values(five) == [1, 2, 3, 4, 5]
    assert values(one) == 6


def test_what_a_waiting_dequeue_many_holds_leaves_room_for_more():
    queue, batch, all_of_it = make(capacity=2), EnqueueMany(element(range(7))), DequeueMany(7)
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


def test_close_stands_behind_waiting_enqueues():
    queue, late, close, after = make(capacity=1), Enqueue(element(2)), Close(), Enqueue(element(3))
    put(queue, 1)
    assert submit(queue, late, close, after) == []
    assert not queue.is_closed
    get = Dequeue()
    assert submit(queue, get) == [get, late, close, after]
    assert queue.is_closed
    assert isinstance(after.error, errors.CancelledError)
    assert take(queue) == 2


def test_close_twice_is_an_error_but_for_one_that_cancels():
    queue, again = make(), Close()
    submit(queue, Close(), again)
    with pytest.raises(errors.CancelledError, match="'q' is already closed"):
        again.result()
    for _ in range(2):
        cancelling = Close(cancel_pending_enqueues=True)
        assert submit(queue, cancelling) == [cancelling]
        cancelling.result()


def test_a_close_that_cancels_fails_waiting_enqueues_and_keeps_what_is_inside():
    queue, batch, close = make(capacity=2), EnqueueMany(element(range(5))), Close()
    cancelling = Close(cancel_pending_enqueues=True)
    submit(queue, batch, close)
    assert submit(queue, cancelling) == [cancelling, batch, close]
    with pytest.raises(
        errors.CancelledError, match=r"Enqueue operation was cancelled.*2 of 5 had entered"
    ):
        batch.result()
    with pytest.raises(errors.CancelledError, match="already closed"):
        close.result()
    assert [take(queue), take(queue)] == [0, 1]


def test_closing_gives_the_elements_of_an_unfinished_dequeue_back_in_order():
    queue, five, close = make(), DequeueMany(5), Close()
    put(queue, 1, 2, 3)
    submit(queue, five)
    assert submit(queue, close) == [close, five]
    with pytest.raises(errors.OutOfRangeError, match="requested 2, current size 0"):
        five.result()
    assert [take(queue) for _ in range(3)] == [1, 2, 3]


def test_dequeue_up_to_brings_the_rest_of_a_closed_queue_only():
    queue, up_to, close = make(), DequeueMany(5, up_to=True), Close()
    put(queue, 1, 2)
    assert submit(queue, up_to) == []
    assert submit(queue, close) == [close, up_to]
    assert values(up_to) == [1, 2]
    late = DequeueMany(5, up_to=True)
    submit(queue, late)
    with pytest.raises(errors.OutOfRangeError, match="requested 5, current size 0"):
        late.result()


def test_a_take_of_what_is_there_waits_for_the_minimum_only():
    queue, greedy = make(capacity=2), DequeueMany(10, minimum=2)
    put(queue, 1)
    assert submit(queue, greedy) == []
    more = EnqueueMany(element([2, 3, 4, 5]))
    assert submit(queue, more) == [more, greedy]  # what waits for room is there at once
    assert values(greedy) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", ["FIFOQueue", "RandomShuffleQueue", "PriorityQueue"])
def test_a_cancelled_dequeue_loses_nothing_and_lets_the_next_go_on(kind):
    queue = make(kind)
    numbers = [3, 1, 2]
    for number in numbers:
        priority = element(number, dtype=np.int64) if kind == "PriorityQueue" else ()
        submit(queue, Enqueue((*priority, *element(number))))
    five, two = DequeueMany(5), DequeueMany(2)
    late = errors.DeadlineExceededError("too late")
    assert submit(queue, five, two) == []
    assert queue.size == 0
    assert queue.cancel(five, late) == [five, two]
    assert five.error is late
    rest = Dequeue()
    submit(queue, rest)
    found = [*two.result()[-1].tolist(), rest.result()[-1].item()]
    if kind == "RandomShuffleQueue":
        found = sorted(found)
        numbers = sorted(numbers)
    assert found == (sorted(numbers) if kind == "PriorityQueue" else numbers)


@pytest.mark.parametrize("kind", ["FIFOQueue", "RandomShuffleQueue", "PriorityQueue"])
def test_unread_elements_are_the_first_to_come_out_again(kind):
    queue = make(kind, 4, components=(TensorSpec((), "string"),))
    texts = np.array([b"a", b"bc", b"def", b""], object)
    priorities = (np.arange(4),) if kind == "PriorityQueue" else ()
    n_bytes = sum(8 + len(text) + 8 * len(priorities) for text in texts)
    one, two, behind = Dequeue(), DequeueMany(2), EnqueueMany((*priorities, texts))
    submit(queue, EnqueueMany((*priorities, texts)), one, two)
    for attempt in (two, one, one):
        assert queue.unread(attempt) == []
    assert (queue.size, queue.size_bytes) == (4, n_bytes)
    assert submit(queue, behind) == []
    all_of_it = DequeueMany(4)
    assert submit(queue, all_of_it) == [all_of_it, behind]
    found = all_of_it.result()[-1].tolist()
    assert (sorted(found) if kind == "RandomShuffleQueue" else found) == (
        sorted(texts) if kind == "RandomShuffleQueue" else texts.tolist()
    )


def test_what_is_complete_cannot_be_cancelled_and_what_was_cancelled_does_not_begin():
    queue, early, get = make(), Enqueue(element(1)), Dequeue()
    late = errors.CancelledError("stop")
    assert queue.cancel(early, late) == [early]
    assert submit(queue, early) == []
    assert submit(queue, get) == []
    assert submit(queue, Enqueue(element(2)))[1] is get
    assert queue.cancel(get, late) == []
    assert values(get) == 2


def test_a_freed_queue_is_empty_and_fails_waiting_and_later_attempts():
    queue, five, late = make(capacity=3), DequeueMany(5), Dequeue()
    put(queue, 1, 2)
    submit(queue, five)
    gone = errors.AbortedError("reset")
    assert queue.close(gone) == [five]
    assert (queue.size, queue.size_bytes, queue.n_waiting) == (0, 0, (0, 0))
    assert submit(queue, late) == [late]
    assert five.error is late.error is gone
    assert queue.close(errors.AbortedError("again")) == []


def test_rows_are_copied_when_they_enter():
    queue, batch = make(capacity=1), np.arange(3, dtype=np.float32)
    submit(queue, EnqueueMany((batch,)))
    batch[:] = 9
    assert [take(queue) for _ in range(3)] == [0, 9, 9]
    queue, get = make(components=(TensorSpec((2,), "float32"),)), Dequeue()
    submit(queue, EnqueueMany((np.zeros((1000, 2), np.float32),)), get)
    assert get.result()[0].base is None


@pytest.mark.parametrize("is_closed", [False, True])
def test_nothing_is_put_and_nothing_is_taken_at_once(is_closed):
    queue = make(components=(TensorSpec((2,), "float32"), TensorSpec((), "string")))
    if is_closed:
        submit(queue, Close())
    nothing = EnqueueMany((np.zeros((0, 2), np.float32), np.empty(0, object)))
    assert submit(queue, nothing) == [nothing]
    for none in (DequeueMany(0), DequeueMany(0, up_to=True)):
        assert submit(queue, none) == [none]
        floats, strings = none.result()
        assert (floats.shape, floats.dtype) == ((0, 2), np.float32)
        assert (strings.shape, strings.dtype) == ((0,), object)
