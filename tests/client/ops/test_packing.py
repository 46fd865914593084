"""Lists and tuples that contain tensors; `tests/tensorflow_values/packing.py` has their values."""

import numpy as np
import pytest

import jflow as tf


@pytest.fixture
def tensors():
    return tf.constant(1.5), tf.constant(1)


def test_an_element_is_in_the_dtype_of_the_tensors(tensors):
    x, i = tensors
    assert tf.convert_to_tensor([1, x]).dtype == np.float32
    with pytest.raises(TypeError, match="not compatible with int32"):
        tf.convert_to_tensor([i, 1.5])
    with pytest.raises(TypeError, match=r"one dtype .* got float32 and int32 .*cast one"):
        tf.convert_to_tensor([x, i])
    with pytest.raises(TypeError, match=r"dtype string in a list, got .*float32"):
        tf.convert_to_tensor([x, "text"], tf.string)
    with pytest.raises(TypeError, match="None"):
        tf.convert_to_tensor([x, None])


@pytest.mark.parametrize("row", [[1.0], [[1.0, 2.0]], [], [1.0, 2.0, 3.0]], ids=str)
def test_rows_have_one_shape(tensors, row):
    rows = tf.stack([tensors[0], 2.0])
    with pytest.raises(ValueError, match=r"one shape .* got the shapes \(2,\) and \("):
        tf.convert_to_tensor([rows, row])
    with pytest.raises(ValueError, match=r"one shape .* got the shapes \(2,\) and \("):
        tf.Variable([2.0, 1.0]).assign([rows, row])


def test_strings_have_one_shape_which_the_step_checks_if_it_is_unknown():
    x, y = tf.placeholder(tf.string, [None]), tf.placeholder(tf.string, [2])
    both = tf.convert_to_tensor([x, y])
    assert both.shape.as_list() == [2, 2]
    with tf.Session() as session:
        fed = session.run(both, {x: ["a", "b"], y: ["c", "d"]})
        np.testing.assert_array_equal(fed, [[b"a", b"b"], [b"c", b"d"]])
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"must match.*\(1,\) and \(2,\)"):
            session.run(both, {x: ["a"], y: ["c", "d"]})
    with pytest.raises(ValueError, match="one shape"):
        tf.convert_to_tensor([y, "text"])


def test_a_tensor_of_another_graph_is_refused(tensors):
    with tf.Graph().as_default():
        other = tf.constant(2.0)
    with pytest.raises(ValueError, match="another graph"):
        tf.Variable([1.0, 2.0]).assign([tensors[0], other])


def test_the_operation_has_the_name_that_is_given(tensors):
    assert tf.convert_to_tensor([tensors[0], 1], name="both").op.name == "both"
    assert tf.convert_to_tensor([tensors[0], 1]).op.name == "packed"
    assert tf.Variable([tensors[0], 1], name="v").initial_value.op.name == "v/initial_value"


def test_gradients_flow_through_it(tensors):
    x = tensors[0]
    (slope,) = tf.gradients(tf.convert_to_tensor([x, 2.0]) * [3.0, 5.0], [x])
    with tf.Session() as session:
        assert session.run(slope) == 3.0


def test_random_keys_are_packed():
    keys = [tf.random.key(0), tf.random.key(1)]
    packed = tf.convert_to_tensor(keys)
    assert packed.shape == (2,)
    assert packed.dtype == keys[0].dtype


def test_functions_and_eager_variables_take_them():
    with tf.connect(""):
        v, w = tf.Variable([1.0, 2.0]), tf.Variable(5.0)
        queue = tf.FIFOQueue(3, [tf.float32], [(2,)])

        @tf.function
        def step(x):
            v.assign_add([x, w])
            queue.enqueue([[x, w]])

        step(1.0)
        np.testing.assert_array_equal(v.numpy(), [2.0, 7.0])
        np.testing.assert_array_equal(queue.get(), [1.0, 5.0])
        v.assign([w, 1.0])
        np.testing.assert_array_equal(v.numpy(), [5.0, 1.0])
