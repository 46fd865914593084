"""Accumulators on every backend: sums, stale gradients, blocking."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jflow as tf
from tests.client.queues.helpers import SHORT, got, session, started, wait_until
from tests.clusters import Backend


class Driver:
    """A dense accumulator of scalars, and its steps."""

    def __init__(self, sess: tf.Session, **options: Any) -> None:
        self.session = sess
        self.accumulator = tf.ConditionalAccumulator(tf.float32, (), **options)
        self._gradient, self._step = tf.placeholder(tf.float32, ()), tf.placeholder(tf.int32, ())
        self._apply = self.accumulator.apply_grad(self._gradient, self._step)
        self._count = self.accumulator.num_accumulated()
        self._n = tf.placeholder(tf.int32, ())
        self._take = self.accumulator.take_grad(self._n)

    def apply(self, *gradients: float, step: int = 0) -> None:
        for gradient in gradients:
            self.session.run(self._apply, {self._gradient: gradient, self._step: step})

    def take(self, n: int, **options: Any) -> float:
        return float(self.session.run(self._take, {self._n: n}, **options))

    @property
    def count(self) -> int:
        return int(self.session.run(self._count))


@pytest.mark.parametrize(("reduction", "taken"), [("MEAN", 3.0), ("SUM", 9.0)])
def test_taking_gives_the_reduction_of_all_there_are(
    backend: Backend, reduction: str, taken: float
) -> None:
    with session(backend) as sess:
        driver = Driver(sess, reduction_type=reduction)
        driver.apply(1, 2, 6)
        assert driver.count == 3
        assert driver.take(2) == taken
        assert driver.count == 0


def test_gradients_of_steps_that_are_over_are_dropped_in_silence(backend: Backend) -> None:
    with session(backend) as sess:
        driver = Driver(sess)
        driver.apply(1)
        driver.take(1)  # the step is 1 now
        driver.apply(100, step=0)
        assert driver.count == 0
        driver.apply(2, step=1)
        driver.apply(4, step=7)
        assert driver.take(2) == 3
        driver.apply(100, step=1)
        assert driver.count == 0


def test_the_step_can_be_set_forth_and_back(backend: Backend) -> None:
    step = tf.placeholder(tf.int32, ())
    with session(backend) as sess:
        driver = Driver(sess)
        set_step = driver.accumulator.set_global_step(step)
        sess.run(set_step, {step: 5})
        driver.apply(1, step=4)
        assert driver.count == 0
        sess.run(set_step, {step: 4})
        driver.apply(1, step=4)
        assert driver.take(1) == 1


def test_takes_are_served_in_their_order(backend: Backend) -> None:
    with session(backend) as sess:
        driver = Driver(sess)
        driver.apply(1)
        three = started(driver.take, 3)

        def waits_too() -> bool:
            """Whether one gradient is not enough, because the other worker waits."""
            try:
                driver.take(1, options=SHORT)
            except tf.errors.DeadlineExceededError:
                return True
            driver.apply(1, step=100)
            return False

        wait_until(waits_too)
        driver.apply(3, 5, step=100)
        assert got(three) == 3
        driver.apply(9, step=100)
        assert driver.take(1) == 9


def test_a_take_that_gives_up_leaves_what_there_is(backend: Backend) -> None:
    with session(backend) as sess:
        driver = Driver(sess)
        driver.apply(4)
        with pytest.raises(tf.errors.DeadlineExceededError):
            driver.take(2, options=SHORT)
        assert driver.count == 1
        assert driver.take(1) == 4


def test_closing_the_session_ends_a_take(backend: Backend) -> None:
    sess = session(backend)
    driver = Driver(sess)
    driver.apply(4)
    taking = started(driver.take, 2)
    sess.close()
    with pytest.raises((tf.errors.CancelledError, RuntimeError)):
        got(taking)


def test_numbers_of_gradients_that_cannot_be_are_refused(backend: Backend) -> None:
    with session(backend) as sess:
        driver = Driver(sess)
        driver.apply(1)
        for n in (0, -1):
            with pytest.raises(
                tf.errors.InvalidArgumentError, match=rf"reduction of {n} .*TakeGrad' was made at"
            ):
                driver.take(n)
        assert driver.count == 1


def test_shapes_and_dtypes_are_checked_early_where_they_are_known(backend: Backend) -> None:
    accumulator = tf.ConditionalAccumulator(tf.float32, (2, None))
    with pytest.raises(ValueError, match=r"shape \(2, None\)"):
        accumulator.apply_grad(np.ones(2, np.float32))
    with pytest.raises(TypeError, match="float32"):
        accumulator.apply_grad(tf.constant(np.ones((2, 1), np.int32)))
    with pytest.raises(TypeError, match="integers"):
        accumulator.take_grad(tf.constant(1.5))
    x = tf.placeholder(tf.float32, (None, None))
    apply, take = accumulator.apply_grad(x), accumulator.take_grad(1)
    with session(backend) as sess:
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"ApplyGrad' was made at"):
            sess.run(apply, {x: np.ones((3, 1))})
        sess.run(apply, {x: np.ones((2, 1))})
        with pytest.raises(tf.errors.InvalidArgumentError):
            sess.run(apply, {x: np.ones((2, 2))})
        np.testing.assert_array_equal(sess.run(take), np.ones((2, 1)))


def test_a_sparse_mean_is_for_each_slice_of_those_that_gave_it(backend: Backend) -> None:
    accumulator = tf.SparseConditionalAccumulator(tf.float32, (None, 2))
    indices, values = tf.placeholder(tf.int32, (None,)), tf.placeholder(tf.float32, (None, 2))
    apply, take = accumulator.apply_grad(indices, values, [9, 2]), accumulator.take_grad(2)
    doubled = take[1] * 2  # it is an array like any other
    with session(backend) as sess:
        sess.run(apply, {indices: [3, 1], values: [[1, 2], [3, 4]]})
        sess.run(apply, {indices: [3, 7], values: [[3, 4], [5, 6]]})
        found = sess.run([*take, doubled])
        assert found[0].tolist() == [1, 3, 7]
        np.testing.assert_array_equal(found[1], [[3, 4], [2, 3], [5, 6]])
        assert found[2].tolist() == [9, 2]
        np.testing.assert_array_equal(found[3], found[1] * 2)
        assert sess.run(accumulator.num_accumulated()) == 0
        sess.run(apply, {indices: [1], values: [[1, 1]]})  # of step 0, which is over
        assert sess.run(accumulator.num_accumulated()) == 0


def test_sparse_takes_wait_too_and_can_give_up(backend: Backend) -> None:
    accumulator = tf.SparseConditionalAccumulator(tf.float32, (4,), reduction_type="SUM")
    apply = accumulator.apply_grad([2, 2, 0], np.array([1, 2, 4], np.float32))
    take = accumulator.take_grad(2)
    with session(backend) as sess:
        sess.run(apply)
        with pytest.raises(tf.errors.DeadlineExceededError):
            sess.run(take, options=SHORT)
        taking = started(lambda: sess.run(take))
        sess.run(apply)
        indices, values, _ = got(taking)
        assert (indices.tolist(), values.tolist()) == ([0, 2], [8, 6])


def test_a_shared_accumulator_collects_from_all_sessions(backend: Backend) -> None:
    if not backend.shared:
        pytest.skip("local sessions share nothing")
    with session(backend) as one, session(backend, 1) as other:
        collecting, giving = (Driver(s, shared_name="sum") for s in (one, other))
        taking = started(collecting.take, 2)
        giving.apply(2)
        wait_until(lambda: collecting.count == 1)
        giving.apply(4)
        assert got(taking) == 3
        others = [
            tf.ConditionalAccumulator(tf.float32, (2,), shared_name="sum"),
            tf.ConditionalAccumulator(tf.float16, (), shared_name="sum"),
            tf.ConditionalAccumulator(tf.float32, (), "sum", reduction_type="SUM"),
            tf.SparseConditionalAccumulator(tf.float32, (2,), shared_name="sum"),
        ]
        for accumulator in others:
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"'sum'.*found"):
                other.run(accumulator.num_accumulated())
        assert collecting.count == 0


def test_one_that_nothing_could_use_is_refused_inside_of_a_connection():
    """Its operations would be in a graph that no session runs."""
    with tf.connect(), pytest.raises(RuntimeError, match="in graph code"):
        tf.ConditionalAccumulator(tf.float32, shape=())
    with tf.connect(), pytest.raises(RuntimeError, match="in graph code"):
        tf.TextLineReader()
    with tf.connect(), tf.Graph().as_default():
        tf.ConditionalAccumulator(tf.float32, shape=())


def test_rows_out_of_range_do_not_count_in_a_sparse_gradient(backend: Backend) -> None:
    accumulator = tf.SparseConditionalAccumulator(tf.float32, (4, 1))
    indices, values = tf.placeholder(tf.int32, (4,)), tf.placeholder(tf.float32, (4, 1))
    apply = accumulator.apply_indexed_slices_grad(tf.IndexedSlices(values, indices, (4, 1)), 3)
    take, whole = accumulator.take_grad(1), accumulator.take_indexed_slices_grad(1)
    with session(backend) as sess:
        sess.run(apply, {indices: [-1, 2, 4, 2], values: [[9], [1], [9], [2]]})
        found = sess.run(take)
        assert [part.tolist() for part in found] == [[2], [[3]], [4, 1]]
        sess.run(apply, {indices: [9, 9, 4, -4], values: [[9]] * 4})
        assert sess.run(accumulator.num_accumulated()) == 1
        rows = sess.run(whole)
    assert isinstance(rows, tf.IndexedSlices)
    np.testing.assert_array_equal(rows.to_tensor(), np.zeros((4, 1)))


@pytest.mark.parametrize(("n", "padded"), [(0, 1), (1, 1), (2, 2), (3, 4), (5, 8)])
def test_rows_are_padded_by_such_that_do_not_count(n: int, padded: int) -> None:
    accumulator = tf.SparseConditionalAccumulator(tf.float32, (6,))
    apply = accumulator.apply_grad(np.arange(n), np.arange(n, dtype=np.float32) + 1)
    with tf.Session() as sess:
        sess.run(apply)
        rows = sess.run(accumulator.take_indexed_slices_grad(1, is_padded=True))
    assert rows.indices.shape == (padded,)
    np.testing.assert_array_equal(rows.to_tensor(), [*range(1, n + 1), *[0] * (6 - n)])


def test_rows_that_do_not_fit_are_refused_when_the_graph_is_built() -> None:
    accumulator = tf.SparseConditionalAccumulator(tf.float32, (4, 2))
    with pytest.raises(TypeError, match="expected an IndexedSlices, got"):
        accumulator.apply_indexed_slices_grad(tf.constant([1.0]))
    rows = tf.IndexedSlices(tf.constant([[1.0, 1.0]]), tf.constant([0]), (5, 2))
    with pytest.raises(ValueError, match=r"gradient of shape \(4, 2\)"):
        accumulator.apply_indexed_slices_grad(rows)
    for shape in (None, (None, 2)):
        unknown = tf.SparseConditionalAccumulator(tf.float32, shape)
        with pytest.raises(
            ValueError, match=r"without unknown sizes, got .*; give the accumulator"
        ):
            unknown.take_indexed_slices_grad(1)
