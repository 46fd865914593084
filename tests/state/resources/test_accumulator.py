import jax.numpy as jnp
import numpy as np
import pytest

from jflow import errors
from jflow.state.resources.accumulator import (
    Accumulator,
    AccumulatorSpec,
    ApplyGradient,
    ApplySparse,
    SetGlobalStep,
    TakeGradient,
)


def dense(dtype="float32", shape=(2,), reduction="MEAN"):
    return Accumulator(AccumulatorSpec(dtype, shape, reduction), "acc")


def sparse(dtype="float32", shape=(None, 2), reduction="MEAN"):
    return Accumulator(AccumulatorSpec(dtype, shape, reduction, is_sparse=True), "acc")


def act(resource, attempt):
    """Submits what need not wait and returns what it brought."""
    assert attempt in resource.submit(attempt)
    return attempt.result()


def give(resource, gradient, step=0, dtype=np.float32):
    return act(resource, ApplyGradient(np.array(gradient, dtype), step))


def give_slices(resource, indices, values, dense_shape=None, step=0):
    shape = None if dense_shape is None else np.array(dense_shape, np.int64)
    attempt = ApplySparse(
        np.array(indices, np.int64), np.array(values, np.float32), shape, local_step=step
    )
    return act(resource, attempt)


def take(resource, count=1):
    return [array.tolist() for array in act(resource, TakeGradient(count))]


def test_a_take_brings_the_mean_of_all_gradients_not_of_as_many_as_it_asked_for():
    acc = dense()
    for gradient in ([1, 2], [3, 4], [5, 9]):
        give(acc, gradient)
    assert acc.n_accumulated == 3
    assert take(acc, 2) == [[3, 5]]
    assert (acc.n_accumulated, acc.global_step) == (0, 1)


def test_a_sum_is_not_divided():
    acc = dense(reduction="SUM")
    give(acc, [1, 2])
    give(acc, [3, 4])
    assert take(acc) == [[4, 6]]


def test_stale_gradients_are_dropped_in_silence_and_counted():
    acc = dense()
    act(acc, SetGlobalStep(3))
    give(acc, [1, 1], step=2)
    assert (acc.n_accumulated, acc.n_dropped) == (0, 1)
    give(acc, [1, 1], step=3)
    give(acc, [3, 3], step=4)
    assert take(acc, 2) == [[2, 2]]
    give(acc, [1, 1], step=3)
    assert (acc.n_accumulated, acc.n_dropped, acc.global_step) == (0, 2, 4)
    act(acc, SetGlobalStep(1))
    give(acc, [1, 1], step=1)
    assert (acc.n_accumulated, acc.global_step) == (1, 1)


def test_a_take_that_waits_for_more_stands_before_one_that_would_have_enough():
    acc, three, one = dense(), TakeGradient(3), TakeGradient(1)
    give(acc, [1, 1])
    assert acc.submit(three) + acc.submit(one) == []
    assert acc.n_waiting == (0, 2)
    give(acc, [2, 2])
    last = ApplyGradient(np.array([3, 3], np.float32), 0)
    assert acc.submit(last) == [last, three]
    assert three.result()[0].tolist() == [2, 2]
    give(acc, [7, 7], step=0)
    assert acc.n_dropped == 1
    late = ApplyGradient(np.array([7, 7], np.float32), 1)
    assert acc.submit(late) == [late, one]


def test_a_cancelled_take_makes_way_for_the_next():
    acc, three, one = dense(), TakeGradient(3), TakeGradient(1)
    give(acc, [1, 1])
    acc.submit(three)
    acc.submit(one)
    late = errors.DeadlineExceededError("too late")
    assert acc.cancel(three, late) == [three, one]
    assert acc.cancel(three, late) == []
    assert three.error is late
    assert one.result()[0].tolist() == [1, 1]


def test_a_freed_accumulator_fails_waiting_and_later_attempts():
    acc, waiting, late = dense(), TakeGradient(2), TakeGradient(1)
    give(acc, [1, 1])
    acc.submit(waiting)
    gone = errors.AbortedError("reset")
    assert acc.close(gone) == [waiting]
    assert acc.submit(late) == [late]
    assert waiting.error is late.error is gone
    assert acc.n_accumulated == 0
    assert acc.close(errors.AbortedError("again")) == []


@pytest.mark.parametrize("count", [0, -1])
def test_a_take_of_nothing_is_refused(count):
    with pytest.raises(errors.InvalidArgumentError, match=f"{count} gradients.*'acc'.*1 or more"):
        take(dense(), count)


@pytest.mark.parametrize(
    ("gradient", "message"),
    [
        (
            np.zeros(3, np.float32),
            r"Shape mismatch in gradient. Expected \(2,\), got \(3,\).*'acc'",
        ),
        (np.zeros((), np.float32), r"Shape mismatch"),
        (np.zeros(2, np.int32), r"Type mismatch in gradient. Expected float32, got int32"),
    ],
)
def test_a_gradient_of_another_type_is_refused_and_changes_nothing(gradient, message):
    acc = dense()
    give(acc, [1, 1])
    with pytest.raises(errors.InvalidArgumentError, match=message):
        act(acc, ApplyGradient(gradient, 0))
    assert take(acc) == [[1, 1]]


def test_where_the_shape_is_open_the_first_gradient_of_a_step_settles_it():
    acc = dense(shape=(None,))
    give(acc, [1])
    with pytest.raises(errors.InvalidArgumentError, match=r"Expected \(1,\), got \(2,\)"):
        give(acc, [1, 2])
    take(acc)
    give(acc, [1, 2], step=1)
    assert take(acc) == [[1, 2]]


def test_the_given_array_is_copied():
    acc, gradient = dense(), np.ones(2, np.float32)
    act(acc, ApplyGradient(gradient, 0))
    gradient[:] = 9
    give(acc, [3, 3])
    assert take(acc) == [[2, 2]]
    assert gradient.tolist() == [9, 9]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn"])
def test_small_floats_are_added_up_in_float32(dtype):
    acc = dense(dtype, (), "SUM")
    give(acc, 16, dtype=jnp.dtype(dtype))
    for _ in range(2048):  # each too small to change 16 in the dtype itself
        give(acc, 2**-7, dtype=jnp.dtype(dtype))
    (total,) = act(acc, TakeGradient(1))
    assert total.dtype == dtype
    assert float(total) == 32


def test_means_of_integers_are_cut_towards_zero_and_small_ones_do_not_overflow():
    acc = dense("int8")
    for _ in range(3):
        give(acc, [100, -101], dtype=np.int8)
    give(acc, [99, -100], dtype=np.int8)
    (mean,) = act(acc, TakeGradient(1))
    assert (mean.dtype, mean.tolist()) == (np.int8, [99, -100])


def test_a_sparse_mean_is_over_the_gradients_that_gave_the_slice():
    acc = sparse()
    give_slices(acc, [3, 1], [[3, 3], [1, 1]])
    give_slices(acc, [1, 7], [[5, 5], [7, 7]])
    give_slices(acc, [], np.zeros((0, 2)))
    assert acc.n_accumulated == 3
    assert take(acc, 2) == [[1, 3, 7], [[3, 3], [3, 3], [7, 7]], [-1, 2]]
    assert (acc.n_accumulated, acc.global_step) == (0, 1)


def test_a_sparse_sum_is_not_divided():
    acc = sparse(reduction="SUM")
    give_slices(acc, [1], [[1, 1]])
    give_slices(acc, [1], [[5, 5]])
    assert take(acc)[:2] == [[1], [[6, 6]]]


def test_slices_of_one_gradient_with_one_index_are_one_slice():
    acc = sparse()
    give_slices(acc, [1, 1, 0], [[1, 2], [3, 4], [5, 6]])
    give_slices(acc, [1], [[8, 8]])
    assert take(acc)[:2] == [[0, 1], [[5, 6], [6, 7]]]


def test_only_empty_sparse_gradients_make_an_empty_one():
    acc = sparse(shape=(4, 2))
    give_slices(acc, [], np.zeros((0, 2)))
    indices, slices, shape = act(acc, TakeGradient(1))
    assert (indices.shape, slices.shape, shape.tolist()) == ((0,), (0, 2), [4, 2])


@pytest.mark.parametrize("shape", [(None, 2), None, (5, None), (5, 2)])
def test_the_dense_shape_comes_from_the_gradient_that_knows_it(shape):
    acc = sparse(shape=shape)
    give_slices(acc, [4], [[1, 1]], dense_shape=(5, 2))
    assert take(acc)[2] == [5, 2]


@pytest.mark.parametrize(
    ("indices", "values", "dense_shape", "message"),
    [
        (
            [[0]],
            [[1, 1]],
            None,
            r"Shape mismatch in indices. Expected \(None,\), got \(1, 1\).*'acc'",
        ),
        ([0, 1], [[1, 1]], None, r"Shape mismatch in values. Expected \(2, 2\), got \(1, 2\)"),
        ([0], [[1, 1, 1]], None, r"Shape mismatch in values. Expected \(1, 2\), got \(1, 3\)"),
        ([0], 1, None, r"Shape mismatch in values"),
        (
            [0],
            [[1, 1]],
            (5, 3),
            r"Shape mismatch in dense shape. Expected \(None, 2\), got \(5, 3\)",
        ),
        ([0], [[1, 1]], (5,), r"Shape mismatch in dense shape"),
        ([0], [[1, 1]], (), r"Shape mismatch in dense shape"),
        ([0], [[1, 1]], ((5, 2),), r"Shape mismatch in dense shape. Expected \(None,\)"),
        ([5], [[1, 1]], (5, 2), r"Expected 0 to 4, got 0 to 5"),
        ([-1], [[1, 1]], None, r"Expected 0 to any, got -1 to 3"),
        ([0], [[1, 1]], (3, 2), r"Expected 0 to 2, got 0 to 3"),
    ],
)
def test_slices_that_do_not_fit_are_refused_and_change_nothing(
    indices, values, dense_shape, message
):
    acc = sparse()
    give_slices(acc, [3], [[1, 1]])
    with pytest.raises(errors.InvalidArgumentError, match=message):
        give_slices(acc, indices, values, dense_shape)
    assert take(acc) == [[3], [[1, 1]], [-1, 2]]


def test_a_stale_sparse_gradient_is_dropped():
    acc = sparse()
    act(acc, SetGlobalStep(2))
    give_slices(acc, [1], [[1, 1]], step=1)
    assert (acc.n_accumulated, acc.n_dropped) == (0, 1)


def test_dense_and_sparse_gradients_do_not_mix():
    with pytest.raises(errors.InvalidArgumentError, match="does not accept ApplySparse"):
        give_slices(dense(), [0], [[1, 1]])
    with pytest.raises(errors.InvalidArgumentError, match="does not accept ApplyGradient"):
        give(sparse(), [1, 1])
