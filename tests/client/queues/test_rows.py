"""The common rules of queues, row by row: order, batches, closing, giving up."""

from __future__ import annotations

import pytest

import jflow as tf
from tests.client.queues.helpers import SHORT, Driver, got, integers, row, session, wait_until
from tests.clusters import Backend


def test_elements_come_out_as_they_came_in(backend: Backend) -> None:
    queue = integers()
    with session(backend) as sess:
        driver = Driver(queue, sess)
        driver.put(3, 1, 2)
        assert driver.size == 3
        assert driver.take(3) == [3, 1, 2]
        assert driver.size == 0


def test_two_fetches_of_one_dequeue_dequeue_once_and_two_dequeues_twice(backend: Backend) -> None:
    queue = integers()
    one, other = queue.dequeue(), queue.dequeue()
    doubled = one * 2
    with session(backend) as sess:
        driver = Driver(queue, sess)
        driver.put(1, 2, 3)
        assert sess.run([one, one, doubled]) == [1, 1, 2]
        assert sess.run({"a": one.op, "b": doubled}) == {"a": None, "b": 4}
        driver.put(4)
        assert sorted(sess.run([one, other])) == [3, 4]


def test_a_dequeue_waits_behind_one_that_came_before_it(backend: Backend) -> None:
    queue = integers()
    with session(backend) as sess:
        driver = Driver(queue, sess)
        driver.put(0, 1)
        three = driver.begin_taking(3)
        two = driver.begin(queue.dequeue_many(2))
        driver.put(2, 3, 4)
        assert got(three).tolist() == [0, 1, 2]
        assert got(two).tolist() == [3, 4]


def test_an_enqueue_waits_behind_one_that_came_before_it(backend: Backend) -> None:
    queue = integers(2)
    with session(backend) as sess:
        driver = Driver(queue, sess)
        many = driver.begin(queue.enqueue_many(row(0, 1, 2, 3)))
        taken = driver.take(1)  # waits until the first ones are in
        one = driver.begin(queue.enqueue(9))
        taken += driver.take(4)
        assert (got(many), got(one)) == (None, None)
        assert taken == [0, 1, 2, 3, 9]


def test_a_batch_larger_than_the_queue_enters_as_others_make_room(backend: Backend) -> None:
    queue = integers(2)
    with session(backend) as sess:
        driver = Driver(queue, sess)
        numbers = [*range(20)]
        entering = driver.begin(queue.enqueue_many(row(*numbers)))
        assert sess.run(queue.dequeue_many(15)).tolist() == numbers[:15]
        assert driver.take(5) == numbers[15:]
        assert got(entering) is None


def test_a_batch_that_times_out_half_way_leaves_what_had_entered(backend: Backend) -> None:
    queue = integers(3)
    with session(backend) as sess:
        driver = Driver(queue, sess)
        many = queue.enqueue_many(row(*range(5)))

        def times_out_half_way() -> bool:
            """Whether the batch began to enter before its time was over."""
            with pytest.raises(tf.errors.DeadlineExceededError):
                sess.run(many, options=SHORT)
            return driver.size > 0

        wait_until(times_out_half_way)
        assert driver.take(3) == [0, 1, 2]
        assert driver.size == 0


def test_empty_batches_never_wait(backend: Backend) -> None:
    queue = integers(1)
    none = tf.placeholder(tf.int32, (None,))
    nothing = queue.enqueue_many(none)
    zero, up_to_zero = queue.dequeue_many(0), queue.dequeue_up_to(0)
    with session(backend) as sess:
        driver = Driver(queue, sess)
        for _ in range(2):
            driver.session.run(nothing, {none: []})
            assert sess.run([zero, up_to_zero])[0].shape == (0,)
            assert sess.run(zero).dtype == "int32"
            sess.run(queue.close(cancel_pending_enqueues=True))
        assert driver.is_closed


def test_the_batches_of_components_must_be_equally_long(backend: Backend) -> None:
    queue = tf.FIFOQueue(10, [tf.int32, tf.float32], [(), ()])
    ints, floats = tf.placeholder(tf.int32, (None,)), tf.placeholder(tf.float32, (None,))
    enqueue = queue.enqueue_many([ints, floats])
    with session(backend) as sess:
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"same size.*has 3.*should have 2"
        ):
            sess.run(enqueue, {ints: [1, 2], floats: [1.0, 2.0, 3.0]})
        assert sess.run(queue.size()) == 0
        sess.run(enqueue, {ints: [1, 2], floats: [1.0, 2.0]})
        assert sess.run(queue.size()) == 2


def test_how_many_to_dequeue_may_be_a_tensor(backend: Backend) -> None:
    queue = integers()
    n = tf.placeholder(tf.int32, ())
    many, up_to = queue.dequeue_many(n), queue.dequeue_up_to(n + 1)
    with session(backend) as sess:
        driver = Driver(queue, sess)
        driver.put(*range(6))
        assert sess.run(many, {n: 2}).tolist() == [0, 1]
        assert sess.run(up_to, {n: 2}).tolist() == [2, 3, 4]
        assert sess.run(many, {n: 0}).tolist() == []
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"cannot dequeue -1 elements"):
            sess.run(many, {n: -1})
        assert driver.take(1) == [5]


def test_dequeue_up_to_waits_while_the_queue_is_open_and_takes_the_rest_after(
    backend: Backend,
) -> None:
    queue = integers()
    up_to = queue.dequeue_up_to(4)
    with session(backend) as sess:
        driver = Driver(queue, sess)
        driver.put(0, 1)
        with pytest.raises(tf.errors.DeadlineExceededError):
            sess.run(up_to, options=SHORT)
        assert driver.size == 2
        driver.put(2, 3, 4)
        assert sess.run(up_to).tolist() == [0, 1, 2, 3]
        sess.run(queue.close())
        assert sess.run(up_to).tolist() == [4]
        with pytest.raises(tf.errors.OutOfRangeError, match=r"requested 4, current size 0"):
            sess.run(up_to)


def test_a_waiting_dequeue_up_to_is_content_when_the_queue_is_closed(backend: Backend) -> None:
    queue = integers()
    with session(backend) as sess:
        driver = Driver(queue, sess)
        driver.put(0, 1)
        waiting = driver.begin(queue.dequeue_up_to(4))
        sess.run(queue.close())
        assert got(waiting).tolist() == [0, 1]


def test_closing_waits_for_the_enqueues_before_it(backend: Backend) -> None:
    queue = integers(1)
    with session(backend) as sess:
        driver = Driver(queue, sess)
        entering = driver.begin(queue.enqueue_many(row(0, 1, 2)))
        assert driver.take(1) == [0]
        closing = driver.begin(queue.close())
        assert not driver.is_closed
        assert not closing.done()
        assert driver.take(2) == [1, 2]
        assert (got(entering), got(closing)) == (None, None)
        assert driver.is_closed


def test_a_closed_queue_takes_nothing_and_gives_what_it_has(backend: Backend) -> None:
    queue = integers()
    with session(backend) as sess:
        driver = Driver(queue, sess)
        driver.put(0, 1)
        sess.run(queue.close())
        with pytest.raises(tf.errors.CancelledError, match=r"'fifo_queue' is closed"):
            sess.run(queue.enqueue(2))
        with pytest.raises(tf.errors.CancelledError, match=r"is closed; 0 of 2 had entered"):
            driver.put(2, 3)
        assert driver.size == 2
        with pytest.raises(tf.errors.OutOfRangeError, match=r"\(requested 3, current size 2\)"):
            sess.run(queue.dequeue_many(3))
        assert driver.take(2) == [0, 1]
        with pytest.raises(
            tf.errors.OutOfRangeError,
            match=r"is closed and has insufficient elements \(requested 1, current size 0\)",
        ) as caught:
            sess.run(queue.dequeue(name="last"))
        assert caught.value.op == "last"


def test_a_dequeue_that_will_never_have_enough_gives_back_what_it_took(backend: Backend) -> None:
    queue = integers()
    with session(backend) as sess:
        driver = Driver(queue, sess)
        driver.put(0, 1)
        waiting = driver.begin_taking(5)
        sess.run(queue.close())
        with pytest.raises(tf.errors.OutOfRangeError, match=r"\(requested 3, current size 0\)"):
            got(waiting)
        assert driver.take(2) == [0, 1]


def test_closing_twice_is_an_error_unless_pending_enqueues_are_cancelled(backend: Backend) -> None:
    queue = integers()
    with session(backend) as sess:
        sess.run(queue.close())
        with pytest.raises(tf.errors.CancelledError, match="is already closed"):
            sess.run(queue.close())
        for _ in range(2):
            sess.run(queue.close(cancel_pending_enqueues=True))
        assert sess.run(queue.is_closed())


def test_closing_can_cancel_the_enqueues_that_wait(backend: Backend) -> None:
    queue = integers(2)
    with session(backend) as sess:
        driver = Driver(queue, sess)
        entering = driver.begin(queue.enqueue_many(row(0, 1, 2, 3)))
        assert driver.take(1) == [0]
        sess.run(queue.close(cancel_pending_enqueues=True))
        with pytest.raises(
            tf.errors.CancelledError, match=r"Enqueue operation was cancelled.*3 of 4 had entered"
        ):
            got(entering)
        assert driver.take(2) == [1, 2]


def test_a_dequeue_that_timed_out_does_not_take_the_next_element(backend: Backend) -> None:
    queue = integers()
    dequeue = queue.dequeue()
    with session(backend) as sess:
        driver = Driver(queue, sess)
        for _ in range(3):
            with pytest.raises(tf.errors.DeadlineExceededError):
                sess.run(dequeue, options=SHORT)
        driver.put(1)
        assert driver.size == 1
        assert sess.run(dequeue) == 1


def test_a_batch_that_timed_out_gives_back_what_it_had_taken(backend: Backend) -> None:
    queue = integers()
    with session(backend) as sess:
        driver = Driver(queue, sess)
        driver.put(0, 1, 2)
        with pytest.raises(tf.errors.DeadlineExceededError):
            sess.run(queue.dequeue_many(5), options=SHORT)
        assert driver.size == 3
        assert driver.take(3) == [0, 1, 2]


def test_an_enqueue_that_timed_out_does_not_enter_later(backend: Backend) -> None:
    queue = integers(1)
    with session(backend) as sess:
        driver = Driver(queue, sess)
        driver.put(0)
        with pytest.raises(tf.errors.DeadlineExceededError):
            sess.run(queue.enqueue(1), options=SHORT)
        assert driver.take(1) == [0]
        assert driver.size == 0


def test_giving_up_lets_those_behind_go_on(backend: Backend) -> None:
    queue = integers()
    with session(backend) as sess:
        driver = Driver(queue, sess)
        driver.put(7)
        waiting = driver.begin(queue.dequeue_many(2), options=tf.RunOptions(timeout_in_ms=400))
        behind = driver.begin(queue.dequeue())
        with pytest.raises(tf.errors.DeadlineExceededError):
            got(waiting)
        assert got(behind) == 7


def test_a_step_that_fails_elsewhere_takes_nothing(backend: Backend) -> None:
    good, bad = integers(), tf.FIFOQueue(10, [tf.float32])
    with tf.device(backend.devices[1]):
        far = tf.FIFOQueue(10, [tf.float32])
    waiting = good.dequeue_many(3)
    shaped = [tf.ensure_shape(queue.dequeue(), (2,)) for queue in (bad, far)]
    with session(backend) as sess:
        driver = Driver(good, sess)
        driver.put(0, 1)
        for queue, wrong in zip((bad, far), shaped, strict=True):
            sess.run(queue.enqueue(3.0))
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"shape \(2,\), got \(\)"):
                sess.run([waiting, wrong])
        assert driver.take(2) == [0, 1]


def test_a_step_whose_variable_has_no_value_takes_nothing(backend: Backend) -> None:
    queue, x = integers(), tf.Variable(10, name="x")
    element = queue.dequeue()
    steps = [x + element, tf.assign_add(x, element), [queue.enqueue(5), x * 2]]
    with tf.control_dependencies([element]):
        steps.append(x + 1)
    with session(backend) as sess:
        driver = Driver(queue, sess)
        driver.put(0, 1)
        for step in steps:
            with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized value x"):
                sess.run(step)
        assert driver.take(2) == [0, 1]
        driver.put(2, 3, 4, 5)
        sess.run(x.initializer)
        assert [sess.run(step) for step in (steps[0], steps[1], steps[3])] == [12, 13, 14]
        assert driver.take(1) == [5]


def test_a_step_may_initialize_a_variable_before_or_behind_a_queue(backend: Backend) -> None:
    queue, x = integers(), tf.Variable(10, name="x")
    assigned = tf.assign(x, queue.dequeue())
    with tf.control_dependencies([x.initializer]):
        element = queue.dequeue()
    with tf.control_dependencies([element]):
        grown = tf.assign_add(x, element)
    with session(backend) as sess:
        Driver(queue, sess).put(1, 2)
        assert sess.run(assigned) == 1
        assert sess.run(grown) == 12


def test_a_negative_capacity_is_no_bound_and_with_none_every_enqueue_waits(
    backend: Backend,
) -> None:
    with session(backend) as sess:
        driver = Driver(integers(-1), sess)
        driver.put(*range(2000))
        assert driver.size == 2000
        none = integers(0)
        with pytest.raises(tf.errors.DeadlineExceededError):
            sess.run(none.enqueue(1), options=SHORT)
        assert sess.run(none.size()) == 0


def test_memory_can_be_bounded_too(backend: Backend) -> None:
    queue = tf.FIFOQueue(-1, [tf.float32], [(4,)], capacity_bytes=40)
    with session(backend) as sess:
        driver = Driver(queue, sess)
        driver.put([1.0] * 4, [2.0] * 4)
        with pytest.raises(tf.errors.DeadlineExceededError):
            sess.run(queue.enqueue([3.0] * 4), options=SHORT)
        assert driver.take(1) == [[1.0] * 4]
        driver.put([3.0] * 4)
        assert driver.size == 2
        small = tf.FIFOQueue(-1, [tf.float32], [(4,)], capacity_bytes=10, name="small")
        with pytest.raises(tf.errors.ResourceExhaustedError, match="can never enter"):
            sess.run(small.enqueue([3.0] * 4))


def test_an_enqueue_and_a_dequeue_of_one_step_meet(backend: Backend) -> None:
    queue = integers(1)
    with tf.device(backend.devices[1]):
        far = queue.dequeue() * 2
    put = queue.enqueue(tf.placeholder(tf.int32, ()) + 1)
    number = put.inputs[0].op.inputs[0]
    with session(backend) as sess:
        for i in range(5):
            assert sess.run([far, put], {number: i}) == [2 * (i + 1), None]
            assert sess.run([put, far], {number: i}) == [None, 2 * (i + 1)]


def test_control_inputs_order_enqueues(backend: Backend) -> None:
    queue = integers()
    last: list[tf.Operation] = []
    for number in (5, 3, 8, 1):
        with tf.control_dependencies(last):
            last = [queue.enqueue(number)]
    with tf.control_dependencies(last):
        size = queue.size()
    with session(backend) as sess:
        assert sess.run(size) == 4
        assert sess.run(queue.dequeue_many(4)).tolist() == [5, 3, 8, 1]
