import itertools
import sys
import weakref
from collections import Counter

import ml_dtypes
import numpy as np
import pytest

from jflow import errors
from jflow.resources import Component
from jflow.resources.accumulator import TakeGradient
from jflow.resources.queue import (
    Close,
    Dequeue,
    DequeueMany,
    Enqueue,
    EnqueueMany,
    Queue,
    QueueSpec,
)

FLOAT = Component("float32", ())


def make(kind="FIFOQueue", capacity=10, components=(FLOAT,), seed=0, **rest):
    if kind == "PriorityQueue":
        components = (Component("int64", ()), *components)
    spec = QueueSpec(kind, capacity, components=components, **rest)
    return Queue(spec, "q", np.random.default_rng(seed))


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
    assert queue.submit(attempt)[0] is attempt
    return attempt.result()[0].item()


def values(attempt):
    """The first component of what an attempt brought."""
    return attempt.result()[0].tolist()


def test_elements_come_out_in_the_order_in_which_they_went_in():
    queue = make()
    put(queue, 1, 2, 3)
    assert queue.size == 3
    assert [take(queue) for _ in range(3)] == [1, 2, 3]
    assert queue.size == queue.size_bytes == 0


@pytest.mark.parametrize("shape", [(3,), (None,)])
def test_an_element_is_copied_when_it_enters(shape):
    queue, attempt = make(components=(Component("float32", shape),)), Dequeue()
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
    queue, text = make(kind, components=(Component("string", ()),)), b"x" * 100
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
    queue, five, one = make(), DequeueMany(5), Dequeue()
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


def test_a_close_that_cancels_fails_who_waits_to_enqueue_and_keeps_what_is_inside():
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
def test_a_dequeue_that_is_given_up_loses_nothing_and_lets_the_next_go_on(kind):
    queue = make(kind)
    numbers = [3, 1, 2]
    for number in numbers:
        priority = element(number, dtype=np.int64) if kind == "PriorityQueue" else ()
        submit(queue, Enqueue((*priority, *element(number))))
    five, two = DequeueMany(5), DequeueMany(2)
    late = errors.DeadlineExceededError("too late")
    assert submit(queue, five, two) == []
    assert queue.size == 0
    assert queue.withdraw(five, late) == [five, two]
    assert five.error is late
    rest = Dequeue()
    submit(queue, rest)
    found = [*two.result()[-1].tolist(), rest.result()[-1].item()]
    if kind == "RandomShuffleQueue":
        found = sorted(found)
        numbers = sorted(numbers)
    assert found == (sorted(numbers) if kind == "PriorityQueue" else numbers)


@pytest.mark.parametrize("kind", ["FIFOQueue", "RandomShuffleQueue", "PriorityQueue"])
def test_what_came_out_for_nobody_is_first_in_line_again(kind):
    queue = make(kind, 4, components=(Component("string", ()),))
    texts = np.array([b"a", b"bc", b"def", b""], object)
    priorities = (np.arange(4),) if kind == "PriorityQueue" else ()
    n_bytes = sum(8 + len(text) + 8 * len(priorities) for text in texts)
    one, two, behind = Dequeue(), DequeueMany(2), EnqueueMany((*priorities, texts))
    submit(queue, EnqueueMany((*priorities, texts)), one, two)
    for attempt in (two, one, one):
        assert queue.restore(attempt) == []
    assert (queue.size, queue.size_bytes) == (4, n_bytes)
    assert submit(queue, behind) == []
    all_of_it = DequeueMany(4)
    assert submit(queue, all_of_it) == [all_of_it, behind]
    found = all_of_it.result()[-1].tolist()
    assert (sorted(found) if kind == "RandomShuffleQueue" else found) == (
        sorted(texts) if kind == "RandomShuffleQueue" else texts.tolist()
    )


def test_what_has_settled_cannot_be_given_up_and_what_was_given_up_is_not_taken_in():
    queue, early, get = make(), Enqueue(element(1)), Dequeue()
    late = errors.CancelledError("stop")
    assert queue.withdraw(early, late) == [early]
    assert submit(queue, early) == []
    assert submit(queue, get) == []
    assert submit(queue, Enqueue(element(2)))[1] is get
    assert queue.withdraw(get, late) == []
    assert values(get) == 2


def test_an_abandoned_queue_is_empty_and_fails_who_waits_and_who_comes():
    queue, five, late = make(capacity=3), DequeueMany(5), Dequeue()
    put(queue, 1, 2)
    submit(queue, five)
    gone = errors.AbortedError("reset")
    assert queue.abandon(gone) == [five]
    assert (queue.size, queue.size_bytes, queue.n_waiting) == (0, 0, (0, 0))
    assert submit(queue, late) == [late]
    assert five.error is late.error is gone
    assert queue.abandon(errors.AbortedError("again")) == []


def test_rows_are_copied_when_they_enter():
    queue, batch = make(capacity=1), np.arange(3, dtype=np.float32)
    submit(queue, EnqueueMany((batch,)))
    batch[:] = 9
    assert [take(queue) for _ in range(3)] == [0, 9, 9]
    queue, get = make(components=(Component("float32", (2,)),)), Dequeue()
    submit(queue, EnqueueMany((np.zeros((1000, 2), np.float32),)), get)
    assert get.result()[0].base is None


@pytest.mark.parametrize("is_closed", [False, True])
def test_nothing_is_put_and_nothing_is_taken_at_once(is_closed):
    queue = make(components=(Component("float32", (2,)), Component("string", ())))
    if is_closed:
        submit(queue, Close())
    nothing = EnqueueMany((np.zeros((0, 2), np.float32), np.empty(0, object)))
    assert submit(queue, nothing) == [nothing]
    for none in (DequeueMany(0), DequeueMany(0, up_to=True)):
        assert submit(queue, none) == [none]
        floats, strings = none.result()
        assert (floats.shape, floats.dtype) == ((0, 2), np.float32)
        assert (strings.shape, strings.dtype) == ((0,), object)


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (DequeueMany(-1), "cannot dequeue -1 elements from FIFOQueue 'q'"),
        (DequeueMany(3, minimum=4), "expected a minimum of 1 to 3"),
        (DequeueMany(3, minimum=0), "expected a minimum of 1 to 3"),
        (Enqueue(element(1, 2)), "Wrong number of components.*'q'. Expected 1, got 2"),
        (EnqueueMany(()), "Wrong number of components.*'q'. Expected 1, got 0"),
        (
            Enqueue(element([1, 2])),
            r"Shape mismatch in tuple component 0. Expected \[\], got \[2\] \(FIFOQueue 'q'\)",
        ),
        (
            Enqueue(element(1, dtype=np.int32)),
            r"Type mismatch in tuple component 0. Expected float32, got int32 \(FIFOQueue 'q'\)",
        ),
        (Enqueue(element(b"x", dtype=object)), "Expected float32, got string"),
        (EnqueueMany(element(1)), r"component 0. Expected \[\?\], got \[\]"),
        (EnqueueMany(element([[1]])), r"component 0. Expected \[\?\], got \[1,1\]"),
    ],
)
def test_what_can_never_work_is_refused_at_once_and_loses_nothing(attempt, message):
    queue = make(capacity=1)
    put(queue, 1)
    assert submit(queue, Enqueue(element(2))) == []
    assert submit(queue, attempt) == [attempt]
    with pytest.raises(errors.InvalidArgumentError, match=message):
        attempt.result()
    assert [take(queue), take(queue)] == [1, 2]


def test_batches_of_different_sizes_are_refused():
    attempt = EnqueueMany(element([1, 2], [1, 2, 3]))
    queue = make(components=(FLOAT, FLOAT))
    submit(queue, attempt)
    with pytest.raises(errors.InvalidArgumentError, match="1 has 3, and should have 2"):
        attempt.result()
    assert queue.size == 0


@pytest.mark.parametrize("shape", [None, (None,), (2, None)])
def test_elements_of_unknown_shapes_are_dequeued_one_by_one(shape):
    queue, two, get = make(components=(Component("float32", shape),)), DequeueMany(1), Dequeue()
    value = np.zeros((2, 3)[-len(shape) if shape else 0 :], np.float32)
    submit(queue, EnqueueMany((value[None],)), two, get)
    with pytest.raises(errors.InvalidArgumentError, match=r"'q' needs .* fully defined shapes"):
        two.result()
    assert get.result()[0].shape == value.shape


@pytest.mark.parametrize("dtype", [np.bool_, np.complex64, ml_dtypes.bfloat16, ml_dtypes.int4])
def test_batches_have_the_dtype_of_their_component(dtype):
    given = np.array([0, 1, 1], dtype)
    queue, three = make(components=(Component(given.dtype.name, ()),)), DequeueMany(3)
    submit(queue, EnqueueMany((given,)), three)
    (found,) = three.result()
    assert found.dtype == given.dtype
    assert found.tolist() == given.tolist()


def test_strings_come_out_as_bytes():
    given = np.array([[b"a", b"bc"], [b"", b"def"]], object)
    queue = make(components=(Component("string", (2,)), Component("string", ())))
    get, two = Dequeue(), DequeueMany(2)
    batch = EnqueueMany((given, given[0]))
    submit(queue, batch, EnqueueMany((given[:1], given[0, :1])), get, two)
    assert [value.tolist() for value in get.result()] == [[b"a", b"bc"], b"a"]
    assert get.result()[1].shape == ()
    assert [value.tolist() for value in two.result()] == [
        [[b"", b"def"], [b"a", b"bc"]],
        [b"bc", b"a"],
    ]


def test_bytes_bound_the_queue_too():
    queue = make(capacity_bytes=30, components=(Component("string", ()),))

    def string(n):
        return Enqueue(element(b"x" * n, dtype=object))

    first, second, large, small = string(10), string(4), string(5), string(1)
    assert submit(queue, first, second) == [first, second]
    assert (queue.size, queue.size_bytes) == (2, 30)
    assert submit(queue, large, small) == []
    one, two = Dequeue(), Dequeue()
    assert submit(queue, one) == [one, large]
    assert queue.size_bytes == 25
    assert submit(queue, two) == [two, small]
    never = string(23)
    assert submit(queue, never) == [never]
    with pytest.raises(errors.ResourceExhaustedError, match=r"31 bytes can never .*'q'.* 30 bytes"):
        never.result()


def test_who_could_wait_for_ever_between_two_bounds_is_told():
    queue = make("RandomShuffleQueue", min_after_dequeue=2, capacity_bytes=8)
    batch, get = EnqueueMany(element([1, 2, 3])), Dequeue()
    assert submit(queue, get, batch) == [batch]
    with pytest.raises(errors.ResourceExhaustedError, match=r"holds 2 .* keeps 2"):
        batch.result()


def test_an_open_shuffle_queue_keeps_its_minimum():
    queue, three, one, close = (
        make("RandomShuffleQueue", min_after_dequeue=2),
        DequeueMany(3),
        Dequeue(),
        Close(),
    )
    put(queue, 1, 2, 3, 4)
    assert submit(queue, three, one) == []
    assert queue.size == 2
    assert submit(queue, close) == [close, three, one]
    assert sorted([*values(three), values(one)]) == [1, 2, 3, 4]


def test_a_shuffle_queue_gives_all_orders_alike():
    chance = np.random.default_rng(7)
    orders = Counter()
    for _ in range(2400):
        queue = make("RandomShuffleQueue", seed=chance)
        put(queue, 1, 2, 3, 4)
        orders[tuple(take(queue) for _ in range(4))] += 1
    assert orders.keys() == {*itertools.permutations([1, 2, 3, 4])}
    assert 60 < min(orders.values()) <= max(orders.values()) < 150  # 100 of each, sigma 10


def test_the_same_chance_gives_the_same_order():
    def order():
        queue = make("RandomShuffleQueue", 50, seed=3)
        put(queue, *range(50))
        return [take(queue) for _ in range(50)]

    assert order() == order() != sorted(order())


def test_a_priority_queue_gives_the_smallest_first_and_the_older_of_equals():
    queue, four = make("PriorityQueue"), DequeueMany(4)
    priorities = np.array([2, -1, 2, -(2**63)], np.int64)
    submit(queue, EnqueueMany((priorities, *element(range(4)))), four)
    assert [value.tolist() for value in four.result()] == [[-(2**63), -1, 2, 2], [3, 1, 0, 2]]


def test_equal_priorities_that_are_given_back_stand_before_those_that_came_later():
    queue, five, four = make("PriorityQueue"), DequeueMany(5), DequeueMany(4)
    submit(queue, five, EnqueueMany((np.zeros(3, np.int64), *element(range(3)))))
    queue.withdraw(five, errors.CancelledError("stop"))
    submit(queue, Enqueue((np.array(0), *element(3))), four)
    assert four.result()[1].tolist() == [0, 1, 2, 3]


PADDED = (Component("int32", (None, 2)), Component("string", (None,)), Component("bool", ()))


def padded(*lengths):
    """Elements with as many rows."""
    return [
        Enqueue(
            (
                np.full((n, 2), n, np.int32),
                np.array([b"s"] * n, object),
                np.array(True),
            )
        )
        for n in lengths
    ]


@pytest.mark.parametrize("up_to", [False, True])
def test_a_padding_queue_pads_to_the_largest_of_the_batch(up_to):
    queue = make("PaddingFIFOQueue", components=PADDED)
    two, one = DequeueMany(2, up_to=up_to), Dequeue()
    submit(queue, *padded(1, 2, 3), two, one)
    numbers, strings, flags = (value.tolist() for value in two.result())
    assert numbers == [[[1, 1], [0, 0]], [[2, 2], [2, 2]]]
    assert strings == [[b"s", b""], [b"s", b"s"]]
    assert flags == [True, True]
    assert [value.shape for value in one.result()] == [(3, 2), (3,), ()]
    nothing = DequeueMany(0)
    submit(queue, nothing)
    assert [value.shape for value in nothing.result()] == [(0, 0, 2), (0, 0), (0,)]


def test_a_batch_that_padding_makes_too_large_is_refused_and_loses_nothing():
    queue = make("PaddingFIFOQueue", -1, components=(Component("int8", (None, None)),))
    tall, wide = np.zeros((2**40, 0), np.int8), np.zeros((0, 2**40), np.int8)
    two, one, other = DequeueMany(2), Dequeue(), Dequeue()
    submit(queue, Enqueue((tall,)), Enqueue((wide,)), two, one, other)
    with pytest.raises(errors.ResourceExhaustedError, match=r"batch of 2 elements.*'q'"):
        two.result()
    assert one.result() == (tall,)
    assert other.result() == (wide,)


def test_a_queue_takes_no_attempt_of_another_resource():
    attempt = TakeGradient(1)
    assert submit(make(), attempt) == [attempt]
    with pytest.raises(errors.InvalidArgumentError, match="FIFOQueue 'q' takes no TakeGradient"):
        attempt.result()
