"""Branches and loops of graph code whose bodies use queues and other state, on all backends."""

import threading

import jax
import numpy as np
import pytest

import jflow as tf
from jflow.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    OutOfRangeError,
    UnimplementedError,
)
from tests.clusters import Backend


def after(*ops):
    return tf.control_dependencies(ops)


@pytest.fixture
def queue(backend: Backend):
    with tf.device(backend.devices[-1]):
        return tf.FIFOQueue(100, tf.int32, shapes=[()], shared_name="elements")


@pytest.fixture
def counter(backend: Backend):
    with tf.device(backend.devices[0]):
        return tf.Variable(0, name="counter")


def contents(session, queue):
    return session.run(queue.dequeue_many(session.run(queue.size()))).tolist()


def numbers_to(queue, n, start=0):
    """A loop that enqueues the numbers up to n, and returns it."""

    def body(i):
        with after(queue.enqueue(i)):
            return i + 1

    return tf.while_loop(lambda i: i < n, body, [start])


def test_a_loop_enqueues_and_another_one_takes_and_adds(queue, counter, backend: Backend):
    filled = numbers_to(queue, 10)

    def body(i, seen):
        x = queue.dequeue()
        with after(counter.assign_add(x)):
            return i + 1, seen + x * x

    taken = tf.while_loop(lambda i, _: i < 10, body, [0, 0])
    with backend.session() as session:
        session.run(counter.initializer)
        assert session.run(filled) == 10
        assert session.run(queue.size()) == 10
        assert session.run(taken) == [10, 285]
        assert session.run(counter) == 45
        # In one step both run at once: the second one waits for the first.
        assert session.run([filled, taken]) == [10, [10, 285]]
        assert session.run(counter) == 90


def test_a_loop_of_no_iteration_does_nothing(queue, counter, backend: Backend):
    n = tf.placeholder(tf.int32, [])

    def body(i):
        with after(queue.enqueue(i), counter.assign_add(1)):
            return i + 1

    loop = tf.while_loop(lambda i: i < n, body, [0])
    never = tf.while_loop(lambda i: i < n, body, [7], maximum_iterations=0)
    with backend.session() as session:
        session.run(counter.initializer)
        assert session.run([loop, never], {n: 0}) == [0, 7]
        assert session.run([queue.size(), counter]) == [0, 0]
        assert session.run(loop, {n: 3}) == 3
        assert contents(session, queue) == [0, 1, 2]
        assert session.run(counter) == 3


def test_the_number_of_iterations_is_bounded(queue, backend: Backend):
    def body(i):
        with after(queue.enqueue(i)):
            return i + 1

    loop = tf.while_loop(lambda i: i < 100, body, [0], maximum_iterations=4)
    with backend.session() as session:
        assert session.run(loop) == 4
        assert contents(session, queue) == [0, 1, 2, 3]


def test_a_branch_has_its_effects_only_if_it_is_chosen(queue, counter, backend: Backend):
    flag = tf.placeholder(tf.bool, [])

    def put():
        with after(queue.enqueue(1)):
            return counter.assign_add(10)

    chosen = tf.cond(flag, put, lambda: tf.constant(-1))
    taken = tf.cond(flag, lambda: queue.dequeue() + 0, lambda: tf.constant(-1))
    which = tf.placeholder(tf.int32, [])
    cases = tf.switch_case(
        which, [lambda: queue.enqueue(5), lambda: queue.enqueue(6), lambda: tf.constant(True)]
    )
    with backend.session() as session:
        session.run(counter.initializer)
        assert session.run(chosen, {flag: False}) == -1
        assert session.run([queue.size(), counter]) == [0, 0]
        assert session.run(chosen, {flag: True}) == 10
        assert session.run([queue.size(), counter]) == [1, 10]
        assert session.run(taken, {flag: False}) == -1
        assert session.run(taken, {flag: True}) == 1
        for number in (0, 1, 2, 7):
            assert session.run(cases, {which: number})
        assert contents(session, queue) == [5, 6]


def test_a_branch_reads_what_it_reads_only_if_it_is_chosen(queue, backend: Backend):
    with tf.device(backend.devices[0]):
        missing = tf.Variable(1, name="missing")
    flag = tf.placeholder(tf.bool, [])

    def with_missing():
        with after(queue.enqueue(1)):
            return missing.read_value()

    value = tf.cond(flag, with_missing, lambda: tf.constant(3))
    with backend.session() as session:
        assert session.run(value, {flag: False}) == 3
        with pytest.raises(FailedPreconditionError, match="missing"):
            session.run(value, {flag: True})


def test_rows_are_taken_one_after_another(queue, backend: Backend):
    rows = tf.placeholder(tf.int32, [4])

    def put(row):
        with after(queue.enqueue(row)):
            return row * 2

    mapped = tf.map_fn(put, rows)
    folded = tf.foldr(lambda total, row: total * 10 + put(row) // 2, rows, 0)
    scanned = tf.scan(lambda total, row: total + queue.dequeue() * row, rows, 0, reverse=True)
    with backend.session() as session:
        given = {rows: [1, 2, 3, 4]}
        assert session.run(mapped, given).tolist() == [2, 4, 6, 8]
        assert contents(session, queue) == [1, 2, 3, 4]
        assert session.run(folded, given) == 4321
        assert session.run(scanned, given).tolist() == [30, 29, 25, 16]


def test_loops_and_branches_are_inside_of_each_other(queue, counter, backend: Backend):
    def inner(i, j):
        put = tf.cond(
            tf.equal((i + j) % 2, 0), lambda: queue.enqueue(10 * i + j), lambda: tf.constant(True)
        )
        with after(put):
            return i, j + 1

    def outer(i):
        _, j = tf.while_loop(lambda _, j: j < 3, inner, [i, 0])
        with after(counter.assign_add(j)):
            return i + 1

    loop = tf.while_loop(lambda i: i < 3, outer, [0])
    with backend.session() as session:
        session.run(counter.initializer)
        assert session.run(loop) == 3
        assert contents(session, queue) == [0, 2, 11, 20, 22]
        assert session.run(counter) == 9


def test_state_is_used_in_the_order_of_the_body(queue, counter, backend: Backend):
    """Each read sees the write before it, also through the queue and across iterations."""

    def body(i, seen):
        with after(counter.assign(counter * 2 + i)):
            now = counter.read_value()
        with after(queue.enqueue(now)):
            back = queue.dequeue()
        with after(counter.assign_add(back)):
            return i + 1, seen + counter.read_value()

    loop = tf.while_loop(lambda i, _: i < 6, body, [1, 0])
    value = total = 0
    for i in range(1, 6):
        value = 2 * (value * 2 + i)
        total += value
    with backend.session() as session:
        session.run(counter.initializer)
        assert session.run(loop) == [6, total]
        assert session.run(counter) == value


def test_a_loop_variable_can_be_a_variables_value(queue, counter, backend: Backend):
    """A value that goes on to the next iteration does not change with its variable."""

    def body(i, last):
        with after(queue.enqueue(last)):
            now = counter.assign_add(1)
        return i + 1, now

    loop = tf.while_loop(lambda i, _: i < 5, body, [0, counter.read_value()])
    with backend.session() as session:
        session.run(counter.initializer)
        assert session.run(loop) == [5, 5]
        assert contents(session, queue) == [0, 1, 2, 3, 4]


def test_others_see_what_iterations_write(queue, counter, backend: Backend):
    def body(i):
        with after(counter.assign_add(queue.dequeue())):
            return i + 1

    loop = tf.while_loop(lambda i: i < 3, body, [0])
    x = tf.placeholder(tf.int32, [])
    put = queue.enqueue(x)
    with backend.session() as session:
        session.run(counter.initializer)
        result = session.run_async(loop)
        total = 0
        for value in (5, 7, 9):
            assert session.run(counter) == total
            session.run(put, {x: value})
            total += value
            while session.run(counter) != total:
                assert not result.done() or value == 9
        assert result.result() == 3


def test_a_producer_ends_when_its_queue_is_closed(backend: Backend):
    with tf.device(backend.devices[-1]):
        few = tf.FIFOQueue(2, tf.int32, shapes=[()], shared_name="few")
    endless = numbers_to(few, 10**9)
    with backend.session() as session:
        result = session.run_async(endless)
        assert [session.run(few.dequeue()) for _ in range(20)] == [*range(20)]
        session.run(few.close(cancel_pending_enqueues=True))
        with pytest.raises(tf.errors.CancelledError, match=r"iteration 2[0-2]"):
            result.result()


def test_a_consumer_ends_when_there_is_nothing_more(queue, counter, backend: Backend):
    def body(i):
        with after(counter.assign_add(queue.dequeue())):
            return i + 1

    endless = tf.while_loop(lambda i: i < 10**6, body, [0])
    filled = numbers_to(queue, 5)
    with backend.session() as session:
        session.run(counter.initializer)
        session.run(filled)
        session.run(queue.close())
        with pytest.raises(OutOfRangeError, match=r"iteration 5 of the loop 'while.*'"):
            session.run(endless)
        assert session.run(counter) == 10  # what earlier iterations wrote stays


def test_a_deadline_ends_a_loop_that_waits(queue, counter, backend: Backend):
    def body(i):
        with after(counter.assign_add(queue.dequeue())):
            return i + 1

    n = tf.placeholder(tf.int32, [])
    endless = tf.while_loop(lambda i: i < n, body, [0])
    with backend.session() as session:
        session.run(counter.initializer)
        session.run(numbers_to(queue, 3))
        session.run(endless, {n: 0})  # so that it is compiled
        with pytest.raises(DeadlineExceededError, match="'elements'") as caught:
            session.run(endless, {n: 10**6}, options=tf.RunOptions(timeout_in_ms=1500))
        assert "iteration 3 of the loop" in str(caught.value)
        assert session.run(counter) == 3
        # What it waited for is left for others.
        session.run(queue.enqueue(8))
        assert session.run(queue.dequeue()) == 8


def test_cancelling_ends_a_loop_that_waits(queue, counter, backend: Backend):
    def body(i):
        with after(counter.assign_add(queue.dequeue() + 1)):
            return i + 1

    endless = tf.while_loop(lambda i: i < 10**6, body, [0])
    with backend.session() as session:
        session.run(counter.initializer)
        session.run(queue.enqueue(0))
        result = session.run_async(endless)
        while session.run(counter) != 1:
            assert not result.done()
        assert result.cancel()
        session.run(queue.enqueue(8))
        assert session.run(queue.dequeue()) == 8
        assert session.run(counter) == 1


def test_an_assertion_names_the_iteration(queue, backend: Backend):
    def body(i):
        with after(tf.Assert(i < 3, ["too large:", i]), queue.enqueue(i)):
            return i + 1

    loop = tf.while_loop(lambda i: i < 9, body, [0])
    with backend.session() as session:
        with pytest.raises(InvalidArgumentError, match=r"iteration 3 .*too large:"):
            session.run(loop)
        assert contents(session, queue) == [0, 1, 2]


def test_indices_are_checked_in_the_iteration_that_has_them(backend: Backend):
    with tf.device(backend.devices[-1]):
        table = tf.Variable(np.zeros(3, np.float32), name="table")

    def body(i):
        with after(tf.scatter_add(table, tf.stack([i]), [1.0])):
            return i + 1

    n = tf.placeholder(tf.int32, [])
    loop = tf.while_loop(lambda i: i < n, body, [0])
    chosen = tf.cond(
        n > 5, lambda: tf.scatter_add(table, tf.stack([n]), [1.0]) + 0.0, table.read_value
    )
    with backend.session() as session:
        session.run(table.initializer)
        assert session.run(chosen, {n: 2}).tolist() == [0.0] * 3
        with pytest.raises(InvalidArgumentError, match=r"6.*not in"):
            session.run(chosen, {n: 6})
        assert session.run(loop, {n: 2}) == 2
        assert session.run(table).tolist() == [1.0, 1.0, 0.0]
        with pytest.raises(InvalidArgumentError, match="iteration 3"):
            session.run(loop, {n: 9})
        assert session.run(table).tolist() == [2.0, 2.0, 1.0]


def test_a_condition_may_have_effects(queue, counter, backend: Backend):
    loop = tf.while_loop(lambda i: counter.assign_add(1) < 5, lambda i: i + queue.dequeue(), [0])
    with backend.session() as session:
        session.run(counter.initializer)
        session.run(numbers_to(queue, 9))
        assert session.run(loop) == 0 + 1 + 2 + 3
        assert session.run([counter, queue.size()]) == [5, 5]


def test_text_is_computed_in_bodies(backend: Backend):
    with tf.device(backend.devices[-1]):
        words = tf.FIFOQueue(10, tf.string, shapes=[()], shared_name="words")
    prefix = tf.placeholder(tf.string, [])

    def body(i):
        with after(words.enqueue(tf.string_join([prefix, tf.as_string(i)], "-"))):
            return i + 1

    loop = tf.while_loop(lambda i: i < 3, body, [0])
    lengths = tf.map_fn(
        lambda i: tf.string_to_number(tf.as_string(i + 1)), tf.constant([1, 2]), tf.float32
    )
    with backend.session() as session:
        assert session.run(loop, {prefix: "n"}) == 3
        assert session.run(words.dequeue_many(3)).tolist() == [b"n-0", b"n-1", b"n-2"]
        assert session.run(lengths).tolist() == [2.0, 3.0]


def test_random_numbers_differ_by_iteration_and_have_derivatives(backend: Backend):
    x = tf.placeholder(tf.float32, [3])
    noisy = tf.map_fn(lambda row: row * tf.random_uniform([]), x)
    flag = tf.placeholder(tf.bool, [])
    kept = tf.cond(flag, lambda: tf.nn.dropout(x, 0.5), lambda: x)
    (slope,) = tf.gradients(noisy, x)
    with backend.session() as session:
        given = {x: np.ones(3), flag: True}
        first, own = session.run([noisy, slope], given)
        assert len({*first.tolist()}) == 3
        np.testing.assert_array_equal(first, own)
        assert set(session.run(noisy, given).tolist()).isdisjoint(first.tolist())
        assert set(session.run(kept, given).tolist()) <= {0.0, 2.0}
        assert session.run(kept, {x: np.ones(3), flag: False}).tolist() == [1.0] * 3


def test_derivatives_of_a_loop_with_effects_are_refused(queue, backend: Backend):
    x = tf.placeholder(tf.float32, [])

    def body(i, y):
        with after(queue.enqueue(i)):
            return i + 1, y * x

    _, y = tf.while_loop(lambda i, _: i < 3, body, [0, x])
    with pytest.raises(UnimplementedError, match=r"test_control_effects\.py.*with effects"):
        tf.gradients(y, x)
    # Nor are they needed where none flows.
    flat = [tf.stop_gradient(y) * x, tf.to_float(tf.to_int32(y)) * x, tf.where(y > 1, x, 2 * x)]
    slopes = [tf.gradients(one, x)[0] for one in flat]
    with backend.session() as session:
        assert session.run(slopes, {x: 2.0}) == [16.0, 16.0, 1.0]


def test_operations_outside_run_before(queue, counter, backend: Backend):
    add = counter.assign_add(1)

    def body(i):
        with after(add):
            return i + 1

    def put(i):
        with after(add, queue.enqueue(i)):
            return i + 1

    loop = tf.while_loop(lambda i: i < 3, body, [0])
    other = tf.while_loop(lambda i: i < 3, put, [0])
    with backend.session() as session:
        session.run(counter.initializer)
        assert session.run([loop, counter])[0] == 3
        assert session.run(counter) == 1
        assert session.run(other) == 3
        assert session.run(counter) == 2


def test_what_cannot_be_in_a_body_with_effects_is_refused(queue, backend: Backend):
    n = tf.placeholder(tf.int32, [])
    rows = tf.placeholder(tf.int32, [None])

    def put(i):
        with after(queue.enqueue(i)):
            return i + 1

    for build, message in [
        (lambda: tf.map_fn(put, rows), "unknown number of rows"),
        (
            lambda: tf.while_loop(lambda i: i < n, put, [0], maximum_iterations=n),
            "its iterations at most is a tensor",
        ),
        (lambda: tf.cond(n > 0, lambda: tf.as_string(n), lambda: "x"), "text"),
    ]:
        with pytest.raises(UnimplementedError, match=message):
            build()


def test_many_sessions_run_loops_at_once(queue, counter, backend: Backend):
    def body(i):
        with after(queue.enqueue(i)):
            taken = queue.dequeue()
        with after(counter.assign_add(1)):
            return i + 1 + 0 * taken

    loop = tf.while_loop(lambda i: i < 20, body, [0])
    with backend.session() as session:
        session.run(counter.initializer)
        session.run(loop)
        threads = [threading.Thread(target=session.run, args=(loop,)) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert session.run([counter, queue.size()]) == [100, 0]


def test_jax_computes_what_a_loop_without_its_effects_does(queue, backend: Backend):
    key = jax.random.normal(jax.random.key(0), (5, 4))
    rows = tf.placeholder(tf.float32, [5, 4])

    def step(total, row):
        with after(queue.enqueue(tf.to_int32(tf.reduce_sum(row)))):
            return tf.tanh(total + row) * 0.5

    scanned = tf.scan(step, rows, tf.zeros([4]))
    wanted = jax.lax.scan(
        lambda t, r: ((new := jax.numpy.tanh(t + r) * 0.5), new), np.zeros(4, "f"), key
    )[1]
    with backend.session() as session:
        found = session.run(scanned, {rows: key})
        np.testing.assert_allclose(found, wanted, 1e-5)
        assert session.run(queue.size()) == 5


def test_what_is_read_goes_to_another_device_as_it_was(backend: Backend):
    """The buffer of a variable, which the next update writes to, is not what is on its way."""
    first, last = backend.devices[0], backend.devices[-1]
    with tf.device(first):
        big = tf.Variable(np.zeros(300_000, np.float32), name="big")
    with tf.device(last):
        sums = tf.FIFOQueue(100, tf.float32, shapes=[()], shared_name="sums")

    def body(i):
        with tf.device(first):
            now = big.read_value()
        with tf.device(last), after(sums.enqueue(tf.reduce_mean(now))):
            done = tf.identity(i)
        with tf.device(first), after(done, big.assign_add(tf.ones_like(now))):
            return i + 1

    loop = tf.while_loop(lambda i: i < 20, body, [0])
    with backend.session() as session:
        session.run(big.initializer)
        assert session.run(loop) == 20
        assert session.run(sums.dequeue_many(20)).tolist() == [float(i) for i in range(20)]


def test_the_next_write_does_not_change_what_was_read(backend: Backend):
    """It does not wait for what another device does with the value."""
    first, last = backend.devices[0], backend.devices[-1]
    with tf.device(first):
        big = tf.Variable(np.zeros(300_000, np.float32), name="big")
    with tf.device(last):
        seen = tf.FIFOQueue(100, tf.int32, shapes=[()], shared_name="seen")

    def body(i, total):
        with tf.device(first), after(big.assign_add(tf.ones([300_000]))):
            now = big.read_value()
        with tf.device(last):
            with after(now):
                number = seen.dequeue()
            return number, total + tf.reduce_mean(now) + 0.0 * tf.to_float(number)

    loop = tf.while_loop(lambda i, _: i < 20, body, [0, 0.0])
    with backend.session() as session:
        session.run([big.initializer, seen.enqueue_many([list(range(1, 21))])])
        assert session.run(loop) == [20, float(sum(range(21)))]


def hopping(devices, x):
    """One, which is known after three ways between two devices."""
    for device in (devices[-1], devices[0], devices[-1]):
        with tf.device(device):
            x = tf.minimum(x + 1.0, 1.0)
    return x


def test_a_read_comes_before_the_writes_of_a_loop_inside(backend: Backend):
    """Also if its value is used late."""
    with tf.device(backend.devices[0]):
        v = tf.Variable(0.0, name="v")
        filled = tf.FIFOQueue(100, tf.float32, shapes=[()], shared_name="filled")

    def write(j):
        with after(v.assign_add(1.0), filled.enqueue(2.0)):
            return j + 1

    def body(i, total):
        old = v.read_value()
        n = tf.while_loop(lambda j: j < 2, write, [0])
        with after(n):
            x = filled.dequeue()
        with after(x):
            y = filled.dequeue()
        return i + 1, total + (v.read_value() - old) * x * y

    loop = tf.while_loop(lambda i, _: i < 3, body, [0, 0.0])
    with backend.session() as session:
        session.run(v.initializer)
        assert session.run(loop) == [3, 24.0]


@pytest.mark.parametrize("reads_first", [False, True])
def test_a_read_comes_before_the_writes_of_the_next_iteration(reads_first, backend: Backend):
    first = backend.devices[0]
    with tf.device(first):
        v = tf.Variable(np.zeros(1000, np.float32), name="v")

    def body(i, seen):
        one = hopping(backend.devices, tf.to_float(i))
        with tf.device(first):
            if reads_first:
                read = v.read_value()
                written = v.assign_add(tf.ones([1000]))
            else:
                written = v.assign_add(tf.ones([1000]))
                with after(written):
                    read = v.read_value()
            with after(written, tf.Assert(i >= 0, ["never"])):
                return i + 1, seen * 10.0 + tf.reduce_mean(read * one)

    loop = tf.while_loop(lambda i, _: i < 5, body, [0, 0.0])
    with backend.session() as session:
        session.run(v.initializer)
        assert session.run(loop) == [5, 1234.0 if reads_first else 12345.0]


def test_text_of_an_argument_is_computed_inside(backend: Backend):
    numbers = tf.map_fn(
        lambda i: tf.string_to_number(tf.as_string(i)), tf.constant([3, 4]), tf.float32
    )
    last = tf.while_loop(
        lambda x: x < 4.0, lambda x: tf.string_to_number(tf.as_string(x)) + 1.0, [0.5]
    )
    with backend.session() as session:
        assert session.run(numbers).tolist() == [3.0, 4.0]
        assert session.run(last) == 4.5


def test_an_operation_from_outside_that_a_branch_returns_runs(queue, backend: Backend):
    put, other = queue.enqueue(1), queue.enqueue(2)
    flag = tf.placeholder(tf.bool, [])
    branch = tf.cond(flag, lambda: put, tf.no_op)
    with_effect = tf.cond(flag, lambda: other, lambda: queue.enqueue(3))
    with backend.session() as session:
        assert session.run(branch, {flag: True})
        assert contents(session, queue) == [1]
        session.run(with_effect, {flag: False})
        assert sorted(contents(session, queue)) == [2, 3]
