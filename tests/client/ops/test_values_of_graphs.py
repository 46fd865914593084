"""`convert_to_tensor`, `add_n`, `accumulate_n` and `tuple`; names and errors are TensorFlow's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from tests.clusters import Backend

pytestmark = pytest.mark.usefixtures("fresh_graph")


def rows(value: float) -> tf.IndexedSlices:
    return tf.IndexedSlices(tf.constant([[value, 2.0]]), tf.constant([1]), (3, 2))


def test_tensors_are_converted_to_themselves_and_values_to_constants() -> None:
    tensor = tf.constant([1.0])
    assert tf.convert_to_tensor(tensor) is tensor
    assert tf.convert_to_tensor(tensor, tf.float32, name="unused") is tensor
    named = tf.convert_to_tensor([1, 2], tf.float32, name="n")
    assert (named.op.name, named.dtype) == ("n", np.float32)
    assert tf.convert_to_tensor([1], preferred_dtype=tf.float32).dtype == np.float32
    assert tf.convert_to_tensor("a", preferred_dtype=tf.float32).dtype == tf.string


def test_variables_and_slices_are_converted_to_their_values(backend: Backend) -> None:
    tensors = [tf.convert_to_tensor(tf.Variable(3.0)), tf.convert_to_tensor(rows(1.0))]
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        value, whole = session.run(tensors)
    assert value == 3.0
    np.testing.assert_array_equal(whole, [[0, 0], [1, 2], [0, 0]])


def test_what_cannot_be_converted_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected a tensor of dtype float32, got .*int32"):
        tf.convert_to_tensor(tf.constant(1), tf.float32)
    with pytest.raises(ValueError, match=r"None values not supported"):
        tf.convert_to_tensor(None)
    with pytest.raises(TypeError, match=r"float32, got text"):
        tf.convert_to_tensor("a", tf.float32)


def test_sums_of_tensors_variables_slices_and_values(backend: Backend) -> None:
    a, v = tf.constant([1.0, 2.0]), tf.Variable([3.0, 4.0])
    total, named = tf.add_n([a, v, a, [1.0, 1.0]]), tf.add_n([a, a], name="both")
    assert (total.op.name, named.op.name) == ("AddN", "both")
    assert tf.add_n([a]) is a
    assert tf.add_n([a], name="alone").op.name == "alone"
    whole = tf.add_n([rows(1.0), rows(3.0)])
    accumulated = tf.accumulate_n([a, a], shape=[2], tensor_dtype=tf.float32)
    with backend.session() as session:
        session.run(tf.global_variables_initializer())
        found = session.run([total, named, whole, accumulated])
    for value, expected in zip(
        found, ([6, 9], [2, 4], [[0, 0], [4, 4], [0, 0]], [2, 4]), strict=True
    ):
        np.testing.assert_array_equal(value, expected)


def test_sums_have_gradients_and_work_in_functions() -> None:
    x = tf.constant([1.0, 2.0])
    (slope,) = tf.gradients(tf.add_n([x * x, x, x]), [x])
    with tf.Session() as session:
        np.testing.assert_array_equal(session.run(slope), [4.0, 6.0])
    with tf.connect():
        doubled = tf.function(lambda x: tf.add_n([x, x]))
        np.testing.assert_array_equal(doubled(jnp.arange(3.0)), [0.0, 2.0, 4.0])
    assert jax.grad(lambda x: tf.add_n([x, 2 * x]))(1.0) == 3.0


@pytest.mark.parametrize(
    ("inputs", "error", "said"),
    [
        (list, ValueError, "at least one Tensor"),
        (lambda: tf.constant([1.0]), ValueError, "at least one Tensor"),
        (lambda: [tf.constant([1.0, 2.0]), tf.constant(1.0)], ValueError, "of one shape"),
        (lambda: [tf.constant(1.0), tf.constant(1)], TypeError, "of one dtype"),
    ],
)
def test_sums_of_what_does_not_fit_are_refused(inputs: Any, error: type, said: str) -> None:
    for add in (tf.add_n, tf.accumulate_n):
        with pytest.raises(error, match=said):
            add(inputs())
    a = tf.constant([1.0, 2.0])
    with pytest.raises(ValueError, match="not compatible"):
        tf.accumulate_n([a], shape=[3])
    with pytest.raises(TypeError, match="expected tensors of int32"):
        tf.accumulate_n([a], tensor_dtype=tf.int32)


def test_members_of_a_tuple_wait_for_each_other(backend: Backend) -> None:
    v = tf.Variable(1.0)
    with tf.name_scope("s"):
        added, nothing, two, done, slices = tf.tuple(
            [v.assign_add(1.0), None, tf.constant(2.0), tf.no_op(), rows(1.0)],
            control_inputs=[v.assign_add(10.0)],
        )
    assert nothing is None
    assert (added.op.name, two.op.name) == (
        "s/tuple/control_dependency",
        "s/tuple/control_dependency_1",
    )
    assert isinstance(done, tf.Operation)
    assert isinstance(slices, tf.IndexedSlices)
    for fetch in (two, done, slices):
        with backend.session() as session:
            session.run(tf.global_variables_initializer())
            session.run(fetch)
            assert session.run(v) == 12.0


def test_a_tuple_of_nothing_is_refused() -> None:
    for tensors in ([], [None]):
        with pytest.raises(ValueError, match="must have at least one Tensor"):
            tf.tuple(tensors)
    with pytest.raises(TypeError, match=r"must only contain operations and tensors, got 3"):
        tf.tuple([tf.constant(1.0)], control_inputs=[3])
