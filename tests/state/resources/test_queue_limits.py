import ml_dtypes
import numpy as np
import pytest

from jflow import errors
from jflow.base.values import TensorSpec
from jflow.state.resources.accumulator import TakeGradient
from jflow.state.resources.queue import (
    Dequeue,
    DequeueMany,
    Enqueue,
    EnqueueMany,
)
from tests.state.resources.queues import FLOAT, element, make, put, submit, take


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
            r"Shape mismatch in tuple component 0. Expected \(\), got \(2,\) \(FIFOQueue 'q'\)",
        ),
        (
            Enqueue(element(1, dtype=np.int32)),
            r"Type mismatch in tuple component 0. Expected float32, got int32 \(FIFOQueue 'q'\)",
        ),
        (Enqueue(element(b"x", dtype=object)), "Expected float32, got string"),
        (EnqueueMany(element(1)), r"component 0. Expected \(None,\), got \(\)"),
        (EnqueueMany(element([[1]])), r"component 0. Expected \(None,\), got \(1, 1\)"),
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
    queue, two, get = make(components=(TensorSpec(shape, "float32"),)), DequeueMany(1), Dequeue()
    value = np.zeros((2, 3)[-len(shape) if shape else 0 :], np.float32)
    submit(queue, EnqueueMany((value[None],)), two, get)
    with pytest.raises(errors.InvalidArgumentError, match=r"'q' needs .* fully defined shapes"):
        two.result()
    assert get.result()[0].shape == value.shape


@pytest.mark.parametrize("dtype", [np.bool_, np.complex64, ml_dtypes.bfloat16, ml_dtypes.int4])
def test_batches_have_the_dtype_of_their_component(dtype):
    given = np.array([0, 1, 1], dtype)
    queue, three = make(components=(TensorSpec((), given.dtype.name),)), DequeueMany(3)
    submit(queue, EnqueueMany((given,)), three)
    (found,) = three.result()
    assert found.dtype == given.dtype
    assert found.tolist() == given.tolist()


def test_strings_come_out_as_bytes():
    given = np.array([[b"a", b"bc"], [b"", b"def"]], object)
    queue = make(components=(TensorSpec((2,), "string"), TensorSpec((), "string")))
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
    queue = make(capacity_bytes=30, components=(TensorSpec((), "string"),))

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


def test_an_enqueue_that_would_wait_for_ever_between_two_bounds_is_refused():
    queue = make("RandomShuffleQueue", min_after_dequeue=2, capacity_bytes=8)
    batch, get = EnqueueMany(element([1, 2, 3])), Dequeue()
    assert submit(queue, get, batch) == [batch]
    with pytest.raises(errors.ResourceExhaustedError, match=r"has 2 .* keeps 2"):
        batch.result()


def test_a_queue_takes_no_attempt_of_another_resource():
    attempt = TakeGradient(1)
    assert submit(make(), attempt) == [attempt]
    with pytest.raises(errors.InvalidArgumentError, match="FIFOQueue 'q' does not accept Take"):
        attempt.result()
