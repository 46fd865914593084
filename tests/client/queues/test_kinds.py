"""What each kind of queue does in its own way."""

from __future__ import annotations

import numpy as np
import pytest

import jflow as tf
from tests.client.queues.helpers import SHORT, Driver, got, row, session, wait_until
from tests.clusters import Backend


def shuffled(capacity: int = 100, minimum: int = 0, **options: object) -> tf.RandomShuffleQueue:
    return tf.RandomShuffleQueue(capacity, minimum, [tf.int32], [()], **options)


def test_a_shuffle_queue_mixes_and_loses_nothing(backend: Backend) -> None:
    with session(backend) as sess:
        driver = Driver(shuffled(), sess)
        driver.put(*range(60))
        taken = driver.take(60)
        assert sorted(taken) == [*range(60)]
        assert taken != [*range(60)]


def test_a_seed_fixes_the_order(backend: Backend) -> None:
    queues = [shuffled(seed=seed) for seed in (5, 5, 6, -5, -5)]
    with session(backend) as sess:
        for queue in queues:
            sess.run(queue.enqueue_many(row(*range(40))))
        orders = [sess.run(queue.dequeue_many(40)).tolist() for queue in queues]
    one, same, other, negative, same_negative = orders
    assert one == same
    assert negative == same_negative
    assert one != other != negative != one
    assert all(sorted(order) == [*range(40)] for order in orders)


def test_the_minimum_stays_in_an_open_shuffle_queue(backend: Backend) -> None:
    queue = shuffled(10, 3)
    with session(backend) as sess:
        driver = Driver(queue, sess)
        driver.put(*range(5))
        taken = driver.take(2)
        with pytest.raises(tf.errors.DeadlineExceededError):
            sess.run(queue.dequeue(), options=SHORT)
        assert driver.size == 3
        sess.run(queue.close())
        assert sorted(taken + driver.take(3)) == [*range(5)]


def test_a_batch_from_a_shuffle_queue_stops_half_way_at_the_minimum(backend: Backend) -> None:
    queue = shuffled(10, 3)
    with session(backend) as sess:
        driver = Driver(queue, sess)
        driver.put(*range(5))
        waiting = driver.begin(queue.dequeue_many(4))
        wait_until(lambda: driver.size == 3)
        driver.put(5, 6)
        taken = got(waiting).tolist()
        assert driver.size == 3
        waiting = driver.begin(queue.dequeue_many(5))
        driver.put(7)
        wait_until(lambda: driver.size == 3)
        sess.run(queue.close())
        with pytest.raises(tf.errors.OutOfRangeError):
            got(waiting)
        assert driver.size == 4
        assert sorted(taken + driver.take(4)) == [*range(8)]


@pytest.mark.parametrize(("capacity", "minimum"), [(5, 5), (5, 6), (10, -1), (0, 0)])
def test_a_minimum_that_cannot_be_is_refused(capacity: int, minimum: int) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="min_after_dequeue must be"):
        shuffled(capacity, minimum)


def test_elements_of_different_sizes_are_padded_to_the_largest_of_the_batch(
    backend: Backend,
) -> None:
    dtypes = [tf.int32, tf.string, tf.bool]
    queue = tf.PaddingFIFOQueue(10, dtypes, [(None,), (None,), (None, 2)])
    numbers, words = tf.placeholder(tf.int32, (None,)), tf.placeholder(tf.string, (None,))
    flags = tf.placeholder(tf.bool, (None, 2))
    enqueue = queue.enqueue([numbers, words, flags])
    batch = queue.dequeue_many(3)
    one, up_to = queue.dequeue(), queue.dequeue_up_to(5)
    assert [tensor.shape[0] for tensor in batch] == [3, 3, 3]
    with session(backend) as sess:
        for n in (1, 3, 0, 2, 4):
            feeds = {
                numbers: np.arange(1, n + 1),
                words: ["x" * i for i in range(1, n + 1)],
                flags: np.ones((n, 2), bool),
            }
            sess.run(enqueue, feeds)
        got_numbers, got_words, got_flags = sess.run(batch)
        assert got_numbers.tolist() == [[1, 0, 0], [1, 2, 3], [0, 0, 0]]
        assert got_words.tolist() == [[b"x", b"", b""], [b"x", b"xx", b"xxx"], [b"", b"", b""]]
        assert got_flags.sum((1, 2)).tolist() == [2, 6, 0]
        assert got_flags.shape == (3, 3, 2)
        assert [value.tolist() for value in sess.run(one)[:2]] == [[1, 2], [b"x", b"xx"]]
        sess.run(queue.close())
        assert sess.run(up_to)[0].tolist() == [[1, 2, 3, 4]]


def test_a_padding_queue_needs_ranks() -> None:
    for shapes in (None, [None], [(2,), None]):
        dtypes = [tf.int32] * (len(shapes) if shapes else 1)
        with pytest.raises(ValueError, match="needs a shape for each component"):
            tf.PaddingFIFOQueue(10, dtypes, shapes)
    with pytest.raises(TypeError):
        tf.PaddingFIFOQueue(10, [tf.int32])  # type: ignore[call-arg]


def test_a_padding_queue_whose_sizes_are_known_batches_too(backend: Backend) -> None:
    queue = tf.PaddingFIFOQueue(10, [tf.float32], [(2,)])
    with session(backend) as sess:
        Driver(queue, sess).put([1.0, 2.0], [3.0, 4.0])
        assert sess.run(queue.dequeue_many(2)).tolist() == [[1, 2], [3, 4]]


def test_the_smallest_priority_comes_first(backend: Backend) -> None:
    queue = tf.PriorityQueue(10, [tf.string], [()])
    priority, word = tf.placeholder(tf.int32, ()), tf.placeholder(tf.string, ())
    enqueue = queue.enqueue([priority, word])
    first = queue.dequeue()
    with session(backend) as sess:
        for number, text in ((3, "c"), (-(2**31), "a"), (7, "d"), (0, "b")):
            sess.run(enqueue, {priority: number, word: text})
        sess.run(queue.enqueue([2**31 - 1, "e"]))
        found = [sess.run(first) for _ in range(5)]
    assert [text for _, text in found] == [b"a", b"b", b"c", b"d", b"e"]
    assert [number for number, _ in found] == [-(2**31), 0, 3, 7, 2**31 - 1]
    assert found[0][0].dtype == np.int64


def test_equal_priorities_lose_nothing(backend: Backend) -> None:
    queue = tf.PriorityQueue(100, [tf.int32], [()])
    with session(backend) as sess:
        sess.run(queue.enqueue_many([row(*[1, 0] * 10), row(*range(20))]))
        priorities, values = sess.run(queue.dequeue_many(20))
    assert priorities.tolist() == [0] * 10 + [1] * 10
    assert sorted(values) == [*range(20)]


def test_a_priority_may_be_all_there_is(backend: Backend) -> None:
    queue = tf.PriorityQueue(10)
    with session(backend) as sess:
        sess.run(queue.enqueue_many(row(3, 1, 2)))
        assert sess.run(queue.dequeue_many(3)).tolist() == [1, 2, 3]


def test_a_dequeue_that_waits_for_priorities_gives_back_in_order(backend: Backend) -> None:
    queue = tf.PriorityQueue(10, [tf.int32], [()])
    with session(backend) as sess:
        sess.run(queue.enqueue_many([row(2, 1), row(20, 10)]))
        with pytest.raises(tf.errors.DeadlineExceededError):
            sess.run(queue.dequeue_many(3), options=SHORT)
        sess.run(queue.enqueue([0, 0]))
        assert sess.run(queue.dequeue_many(3))[1].tolist() == [0, 10, 20]


def test_names_of_a_priority_queue_include_the_priority_s(backend: Backend) -> None:
    queue = tf.PriorityQueue(10, [tf.int32], [()], names=["priority", "value"])
    with session(backend) as sess:
        sess.run(queue.enqueue({"value": 5, "priority": 1}))
        assert sess.run(queue.dequeue()) == {"priority": 1, "value": 5}


def test_priorities_have_64_bits_though_programs_have_32(backend: Backend) -> None:
    queue = tf.PriorityQueue(10, [tf.int32], [()])
    with tf.device(backend.devices[0]):
        near = queue.dequeue()[0]
    with tf.device(backend.devices[1]):
        far = tf.identity(near)
    with session(backend) as sess:
        for priority in (2**62 + 1, -(2**63), 2**40):
            sess.run(queue.enqueue([priority, 0]))
        assert sess.run(far) == -(2**63)
        assert sess.run(far) == 2**40
        assert sess.run([near, far]) == [2**62 + 1, 2**62 + 1]
        assert sess.run(far, {near: 2**50}) == 2**50


@pytest.mark.parametrize("dtype", [tf.int8, tf.uint32, tf.int32], ids=lambda dtype: dtype.__name__)
def test_any_integers_are_priorities(backend: Backend, dtype: object) -> None:
    queue = tf.PriorityQueue(10)
    numbers = tf.placeholder(dtype, (None,))
    with session(backend) as sess:
        sess.run(queue.enqueue_many(numbers * 1), {numbers: [5, 0, 100]})
        assert sess.run(queue.dequeue_many(3)).tolist() == [0, 5, 100]


@pytest.mark.parametrize("priority", [1.5, "1", None, 2**63, -(2**63) - 1])
def test_a_priority_is_an_integer(priority: object) -> None:
    queue = tf.PriorityQueue(10)
    with pytest.raises((TypeError, OverflowError)):
        queue.enqueue(priority)


@pytest.mark.parametrize("dtype", [tf.float32, tf.bool, tf.string], ids=str)
def test_a_tensor_of_priorities_is_of_integers(dtype: object) -> None:
    queue = tf.PriorityQueue(10)
    with pytest.raises(TypeError, match="expected dtype int64, got"):
        queue.enqueue(tf.placeholder(dtype, ()))
