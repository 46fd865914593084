import itertools
from collections import Counter

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
    rng = np.random.default_rng(7)
    orders = Counter()
    for _ in range(2400):
        queue = make("RandomShuffleQueue", seed=rng)
        put(queue, 1, 2, 3, 4)
        orders[tuple(take(queue) for _ in range(4))] += 1
    assert orders.keys() == {*itertools.permutations([1, 2, 3, 4])}
    assert 60 < min(orders.values()) <= max(orders.values()) < 150  # 100 of each, sigma 10


def test_the_same_seed_gives_the_same_order():
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
    queue.cancel(five, errors.CancelledError("stop"))
    submit(queue, Enqueue((np.array(0), *element(3))), four)
    assert four.result()[1].tolist() == [0, 1, 2, 3]


PADDED = (TensorSpec((None, 2), "int32"), TensorSpec((None,), "string"), TensorSpec((), "bool"))


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
    queue = make("PaddingFIFOQueue", -1, components=(TensorSpec((None, None), "int8"),))
    tall, wide = np.zeros((2**40, 0), np.int8), np.zeros((0, 2**40), np.int8)
    two, one, other = DequeueMany(2), Dequeue(), Dequeue()
    submit(queue, Enqueue((tall,)), Enqueue((wide,)), two, one, other)
    with pytest.raises(errors.ResourceExhaustedError, match=r"batch of 2 elements.*'q'"):
        two.result()
    assert one.result() == (tall,)
    assert other.result() == (wide,)
