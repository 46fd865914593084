"""Queues of the rows of tensors, epoch after epoch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jflow as tf
from tests.clusters import in_process
from tests.training.input_queues.feeding import WAIT_S, columns, drained, feeding

ROWS = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


def epochs(values: list[Any], n: int) -> list[list[Any]]:
    return [values[i : i + n] for i in range(0, len(values), n)]


def test_a_tensor_can_be_used_a_number_of_times() -> None:
    limited = tf.train.limit_epochs(tf.constant(["a"]), 2)
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        assert columns(drained(session, limited)) == [[b"a"]] * 2
        # The counter stays at the limit.
        assert session.run(tf.local_variables()) == [2]
        with pytest.raises(tf.errors.OutOfRangeError, match="Reached limit of 2"):
            session.run(limited)
        session.run(tf.local_variables_initializer())
        assert len(drained(session, limited)) == 2


def test_without_a_limit_there_is_nothing_to_initialize() -> None:
    tensor = tf.constant(1)
    assert tf.train.limit_epochs(tensor) is tensor
    assert tf.local_variables() == []


def test_the_rows_come_in_their_order() -> None:
    queue = tf.train.input_producer(ROWS, num_epochs=2, shuffle=False)
    assert queue.shapes == [(2,)]
    row = queue.dequeue()
    assert row.shape == (2,)
    with feeding() as session:
        assert columns(drained(session, row)) == ROWS * 2


def test_without_a_number_of_epochs_there_is_no_end() -> None:
    with feeding() as session:
        row = tf.train.input_producer(ROWS, shuffle=False, capacity=2).dequeue()
        assert tf.local_variables() == []
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coord)
        assert [session.run(row).tolist() for _ in range(10)] == [*ROWS * 3, ROWS[0]]
        coord.request_stop()
        coord.join(threads, stop_grace_period_secs=WAIT_S)


def test_each_epoch_has_an_order_of_its_own() -> None:
    n, n_epochs = 12, 8
    number = tf.train.range_input_producer(n, n_epochs, capacity=5).dequeue()
    with feeding() as session:
        orders = epochs([int(value) for value in drained(session, number)], n)
    assert len(orders) == n_epochs
    assert all(sorted(order) == [*range(n)] for order in orders)
    # That even two of them are the same has a chance of 28 to 12!, less than one to ten million.
    assert len(set(map(tuple, orders))) == n_epochs


def test_a_seed_makes_the_orders_the_same() -> None:
    def orders(seed: int | None) -> list[int]:
        with tf.Graph().as_default():
            number = tf.train.range_input_producer(12, 3, seed=seed).dequeue()
            with feeding() as session:
                return [int(value) for value in drained(session, number)]

    assert orders(7) == orders(7)
    assert orders(7) != orders(8)


def test_strings_and_text() -> None:
    names = tf.train.string_input_producer(["a", b"b", "ü"], num_epochs=1).dequeue()
    with feeding() as session:
        assert set(drained(session, names)) == {b"a", b"b", "ü".encode()}


def test_a_tensor_of_strings_whose_number_only_the_step_knows() -> None:
    names = tf.placeholder("string", [None])
    queue = tf.train.string_input_producer(names, num_epochs=1, shuffle=False)
    enqueue = tf.get_default_graph().get_collection("queue_runners")[0].enqueue_ops[0]
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match="at least one row"):
            session.run(enqueue, {names: np.array([], object)})
        # That was no epoch.
        session.run(enqueue, {names: ["x", "y"]})
        assert [session.run(queue.dequeue()) for _ in "xy"] == [b"x", b"y"]


def test_numbers_in_a_range() -> None:
    queue = tf.train.range_input_producer(4, num_epochs=1, shuffle=False)
    assert queue.dtypes == [np.int32]
    number = queue.dequeue()
    with feeding() as session:
        assert columns(drained(session, number)) == [0, 1, 2, 3]


@pytest.mark.parametrize("shuffle", [False, True])
def test_slices_stay_together(shuffle: bool) -> None:
    letters, numbers = ["a", "b", "c"], np.arange(6).reshape(3, 2)
    slices = tf.train.slice_input_producer([letters, numbers], 2, shuffle=shuffle, seed=3)
    assert [x.shape for x in slices] == [(), (2,)]
    with feeding() as session:
        found = [(x, y.tolist()) for x, y in drained(session, slices)]
    wanted = [(b"a", [0, 1]), (b"b", [2, 3]), (b"c", [4, 5])]
    assert len(found) == 6
    for epoch in epochs(found, 3):
        assert (sorted(epoch) if shuffle else epoch) == wanted


def test_forgetting_the_local_variables_stops_the_runner() -> None:
    number = tf.train.range_input_producer(3, num_epochs=1).dequeue()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coord)
        # The queue is closed, so that nothing waits for ever.
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(number)
        with pytest.raises(tf.errors.FailedPreconditionError, match="epochs"):
            coord.join(threads, stop_grace_period_secs=WAIT_S)


def test_a_shared_queue_feeds_each_row_to_one_session() -> None:
    with in_process() as backend, tf.Graph().as_default():
        number = tf.train.range_input_producer(20, 1, capacity=4, shared_name="numbers").dequeue()
        with backend.session() as other, feeding(backend.targets[0]) as session:
            found = []
            for reader in [session, other] * 10:
                found.append(int(reader.run(number)))
            assert sorted(found) == [*range(20)]
            for reader in (session, other):
                with pytest.raises(tf.errors.OutOfRangeError):
                    reader.run(number)


def test_the_shape_of_a_row_must_be_known() -> None:
    rows = tf.placeholder("float32", [None, None])
    with pytest.raises(ValueError, match="element_shape"):
        tf.train.input_producer(rows)
    with pytest.raises(ValueError, match="element_shape"):
        tf.train.input_producer(rows, [3, 4])
    with pytest.raises(ValueError, match="element_shape"):
        tf.train.input_producer(ROWS, [3])
    assert tf.train.input_producer(rows, [3]).shapes == [(3,)]
    assert tf.train.input_producer(tf.placeholder("float32"), [3]).shapes == [(3,)]


def test_what_cannot_work_is_refused() -> None:
    for n in (0, -1):
        with pytest.raises(ValueError, match="num_epochs must be positive"):
            tf.train.range_input_producer(3, num_epochs=n)
    with pytest.raises(ValueError, match="empty list"):
        tf.train.string_input_producer([])
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least one row"):
        tf.train.string_input_producer(tf.constant([], "string"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least one row"):
        tf.train.range_input_producer(0)
    with pytest.raises(ValueError, match="at least one tensor"):
        tf.train.slice_input_producer([])
    with pytest.raises(ValueError, match="number of rows"):
        tf.train.slice_input_producer([[1, 2], [1, 2, 3]])
    with pytest.raises(ValueError, match="scalar"):
        tf.train.input_producer(3)


def test_the_queue_holds_32_rows() -> None:
    queue = tf.train.input_producer(np.arange(100), shuffle=False)
    size = queue.size()
    with feeding() as session:
        while session.run(size) < 32:
            pass
        assert session.run(size) == 32
