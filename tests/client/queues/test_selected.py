"""One of several queues, chosen when a step runs."""

from __future__ import annotations

import pytest

import jflow as tf
from tests.client.queues.helpers import SHORT, session
from tests.clusters import Backend


def _queues(n: int = 3) -> list[tf.FIFOQueue]:
    return [tf.FIFOQueue(10, [tf.float32], [()], name=f"q{i}") for i in range(n)]


def test_each_operation_is_on_the_queue_of_the_number(backend: Backend) -> None:
    queues = _queues()
    which = tf.placeholder(tf.int32, ())
    x = tf.placeholder(tf.float32, ())
    chosen = tf.QueueBase.from_list(which, queues)
    put, take, close = chosen.enqueue(x), chosen.dequeue(), chosen.close()
    with session(backend) as sess:
        for number in (2, 0, 2):
            sess.run(put, {which: number, x: number + 0.5})
        assert sess.run([queue.size() for queue in queues]) == [1, 0, 2]
        assert sess.run(chosen.size(), {which: 2}) == 2
        assert sess.run(chosen.dequeue_many(2), {which: 2}).tolist() == [2.5, 2.5]
        assert sess.run(take, {which: 0}) == 0.5
        sess.run(close, {which: 1})
        assert sess.run([queue.is_closed() for queue in queues]) == [False, True, False]
        with pytest.raises(tf.errors.DeadlineExceededError):
            sess.run(take, {which: 0}, options=SHORT)


@pytest.mark.parametrize("number", [-1, 3])
def test_a_number_of_no_queue_is_an_error_of_the_step(backend: Backend, number: int) -> None:
    which = tf.placeholder(tf.int32, ())
    put = tf.QueueBase.from_list(which, _queues()).enqueue(1.0)
    with (
        session(backend) as sess,
        pytest.raises(tf.errors.InvalidArgumentError, match=f"queue index of 0 to 2, got {number}"),
    ):
        sess.run(put, {which: number})


def test_queues_to_select_from_are_alike() -> None:
    queue = _queues(1)[0]
    with pytest.raises(ValueError, match="expected a list of queues"):
        tf.QueueBase.from_list(0, [])
    with pytest.raises(TypeError, match="int32"):
        tf.QueueBase.from_list(0, [queue, tf.FIFOQueue(10, [tf.int32], [()])])
    with pytest.raises(ValueError, match="other names or shapes"):
        tf.QueueBase.from_list(0, [queue, tf.FIFOQueue(10, [tf.float32], [(2,)])])
    with pytest.raises(TypeError, match="which queue must be an integer"):
        tf.QueueBase.from_list(0.5, [queue])
