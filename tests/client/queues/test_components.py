"""What an element is made of where it is enqueued, as TensorFlow reads tuples and lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jflow as tf
from tests.client.queues.helpers import got, integers, session, started, wait_until
from tests.clusters import Backend

KINDS = {
    "fifo": lambda: tf.FIFOQueue(10, tf.float32),
    "fifo of a list": lambda: tf.FIFOQueue(10, [tf.float32]),
    "shuffle": lambda: tf.RandomShuffleQueue(10, 0, tf.float32),
    "padding": lambda: tf.PaddingFIFOQueue(10, tf.float32, ()),
    "selected": lambda: tf.QueueBase.from_list(1, [tf.FIFOQueue(10, tf.float32) for _ in "ab"]),
    "priority": lambda: tf.PriorityQueue(10),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_of_one_is_the_components_of_an_element(backend: Backend, kind: str) -> None:
    queue = KINDS[kind]()
    dtype = queue.dtypes[0] if kind != "priority" else tf.int32
    tensor = tf.constant(3, dtype)
    elements = [(1,), [2], (tensor,), [tensor], tensor]
    ops = [queue.enqueue(element) for element in elements]
    dequeue, size = queue.dequeue(), queue.size()
    many = [
        queue.enqueue_many(batch) for batch in (([4, 5, 6],), [[7, 8]], (tf.numpy.stack([tensor]),))
    ]
    with session(backend) as sess:
        found = []
        for op in ops:
            sess.run(op)
            found.append(sess.run(dequeue))
        assert all(value.shape == () for value in found)
        assert found == [1, 2, 3, 3, 3]
        for op, n in zip(many, (3, 2, 1), strict=True):
            sess.run(op)
            assert sess.run(size) == n
            assert len([sess.run(dequeue) for _ in range(n)]) == n


def test_the_queues_of_eager_code_read_a_sequence_of_one_alike(backend: Backend) -> None:
    with tf.connect(backend.targets[0]):
        queue = tf.FIFOQueue(10, tf.float32)
        queue.enqueue((1.0,))
        queue.enqueue_many(([2.0, 3.0],))

        @tf.function
        def step(x: Any) -> None:
            queue.enqueue((x,))
            queue.enqueue([x + 1])
            queue.enqueue_many((tf.numpy.stack([x, x]),))

        step(np.float32(4))
        assert [queue.get().tolist() for _ in range(int(queue.size()))] == [1, 2, 3, 4, 5, 4, 4]


def test_put_takes_a_sequence_of_one_as_the_value_that_it_is(backend: Backend) -> None:
    with tf.connect(backend.targets[0]):
        one = tf.FIFOQueue(10, tf.float32)
        one.put([1.0])
        one.put((2.0,))
        one.put(3.0)
        assert [one.get().tolist() for _ in range(3)] == [[1.0], [2.0], 3.0]
        listed = tf.FIFOQueue(10, [tf.float32])
        listed.put([1.0])
        assert listed.get().tolist() == 1.0


def test_what_has_no_names_takes_no_dict() -> None:
    for dtypes in (tf.int32, [tf.int32]):
        queue = tf.FIFOQueue(10, dtypes, name="q")
        for enqueue in (queue.enqueue, queue.enqueue_many):
            with pytest.raises(ValueError, match=r"'a'.*no names; create the queue with names="):
                enqueue({"a": 1})
    two = tf.FIFOQueue(10, [tf.int32, tf.int32])
    with pytest.raises(ValueError, match="no names; create the queue with names="):
        two.enqueue({"a": 1, "b": 2})
    with tf.connect(), pytest.raises(ValueError, match="no names; create the queue with names="):
        tf.FIFOQueue(10, tf.int32).put({"a": 1})


def test_batches_of_different_sizes_are_refused_where_they_are_written() -> None:
    queue = tf.FIFOQueue(10, [tf.int32, tf.float32], name="q")
    with pytest.raises(ValueError, match=r"'q'.*same number of rows.*component 1 has 2.*0 has 3"):
        queue.enqueue_many([[1, 2, 3], tf.constant([1.0, 2.0])])
    with pytest.raises(ValueError, match=r"first dimension of a batch is its rows.*component 1"):
        queue.enqueue_many([[1, 2], 3.0])
    with pytest.raises(ValueError, match=r"first dimension of a batch is its rows.*component 0"):
        tf.FIFOQueue(10, tf.int32).enqueue_many(5)
    assert queue.enqueue_many([tf.placeholder(tf.int32, (None,)), [1.0, 2.0]]) is not None
    with tf.connect():
        eager = tf.FIFOQueue(10, [tf.int32, tf.float32], name="q")
        with pytest.raises(ValueError, match="same number of rows"):
            eager.put_many([[1, 2, 3], [1.0, 2.0]])
        with pytest.raises(ValueError, match="same number of rows"):
            tf.function(lambda: eager.enqueue_many([[1, 2, 3], [1.0, 2.0]]))()
        assert eager.size() == 0


def test_a_dequeue_that_waits_gives_the_smallest_priorities_in_their_order(
    backend: Backend,
) -> None:
    queue = tf.PriorityQueue(10, [tf.int32], [()])
    priority = tf.placeholder(tf.int32, ())
    enqueue, size = queue.enqueue([priority, priority * 10]), queue.size()
    many = queue.enqueue_many([[3, 0, 4], [30, 0, 40]])
    two, four = queue.dequeue_many(2), queue.dequeue_up_to(4)
    with session(backend) as sess:
        sess.run(enqueue, {priority: 7})
        waiting = started(sess.run, two)
        wait_until(lambda: sess.run(size) == 0)
        sess.run(enqueue, {priority: 1})
        found = got(waiting)
        assert [part.tolist() for part in found] == [[1, 7], [10, 70]]
        sess.run(enqueue, {priority: 5})
        waiting = started(sess.run, two)
        wait_until(lambda: sess.run(size) == 0)
        sess.run(many)
        assert got(waiting)[0].tolist() == [0, 3]
        waiting = started(sess.run, four)
        wait_until(lambda: sess.run(size) == 0)
        sess.run(enqueue, {priority: 2})
        sess.run(queue.close())
        assert got(waiting)[0].tolist() == [2, 4, 5]


def test_a_shuffle_queue_is_joined_without_its_seed(cluster: Backend) -> None:
    def pool(seed: int | None) -> tf.RandomShuffleQueue:
        return tf.RandomShuffleQueue(10, 0, [tf.int32], [()], seed=seed, shared_name="q")

    with session(cluster, 0) as here, tf.Graph().as_default(), session(cluster, 1) as there:
        with here.graph.as_default():
            seeded = pool(3)
            here.run(seeded.enqueue(1))
        joined = pool(None)
        assert there.run([joined.size(), joined.dequeue()])[1] == 1
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"another seed.*Expected 4.* 3"):
            there.run(pool(4).size())
    cluster.reset()
    with session(cluster) as sess:
        sess.run(pool(None).enqueue(1))
        assert sess.run(pool(None).size()) == 1
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"another seed.*Expected 4.*None"):
            sess.run(pool(4).size())


def test_queues_of_other_kinds_have_no_seed_to_agree_on(cluster: Backend) -> None:
    queue = integers(shared_name="q")
    with session(cluster) as sess:
        sess.run(queue.enqueue((1,)))
        with pytest.raises(tf.errors.InvalidArgumentError, match="another kind"):
            sess.run(tf.RandomShuffleQueue(10, 0, [tf.int32], [()], shared_name="q").size())
