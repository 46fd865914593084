import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf


def _value(tensor):
    with tf.Session() as session:
        return session.run(tensor)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(1.0, "float32"), (3, "int32"), (True, "bool"), (1j, "complex64"), ([[1, 2]], "int32")],
    ids=str,
)
def test_a_constant_has_the_dtype_that_jax_gives_its_value(value, dtype):
    tensor = tf.constant(value)
    assert tensor.dtype == dtype
    assert tensor.shape == np.shape(value)
    np.testing.assert_array_equal(_value(tensor), value)


def test_a_constant_can_be_asked_for_in_a_dtype():
    assert tf.constant(3, dtype="float32").dtype == np.float32
    assert tf.constant(1.5, tf.bfloat16).dtype == jnp.bfloat16
    assert tf.constant([], dtype="int32").shape == (0,)


def test_one_number_fills_a_shape():
    np.testing.assert_array_equal(_value(tf.constant(7, shape=(2, 3))), np.full((2, 3), 7))
    np.testing.assert_array_equal(_value(tf.constant([7.0], shape=[2])), [7.0, 7.0])


@pytest.mark.parametrize(
    ("value", "shape", "filled"),
    [
        ([1, 2, 3, 4], (2, 2), [[1, 2], [3, 4]]),
        ([1, 2, 3], (2, 2), [[1, 2], [3, 3]]),
        ([[[1.0]]], (3,), [1.0, 1.0, 1.0]),
        ([[1, 2], [3, 4]], 4, [1, 2, 3, 4]),
        ([5], (), 5),
        ([], (0, 2), np.empty((0, 2))),
        (7, (0,), []),
    ],
    ids=str,
)
def test_values_fill_a_shape_in_order_and_the_last_one_what_remains(value, shape, filled):
    if np.size(value) <= np.size(filled):
        np.testing.assert_array_equal(_value(tf.constant(value, shape=shape)), filled)
    else:
        with pytest.raises(ValueError, match="do not fill"):
            tf.constant(value, shape=shape)


@pytest.mark.parametrize(("value", "shape"), [([1, 2, 3], (2,)), ([], (2,)), ([1, 2], ())])
def test_values_that_do_not_fit_a_shape_are_an_error(value, shape):
    with pytest.raises(ValueError, match=r"elements do not fill the shape \(.*, which has [12]"):
        tf.constant(value, shape=shape)


def test_random_keys_fill_a_shape_too():
    keys = jax.random.split(jax.random.key(0), 2)
    filled = _value(tf.constant(keys, shape=(3, 1)))
    assert filled.shape == (3, 1)
    assert (filled[:, 0] == keys[jnp.array([0, 1, 1])]).all()


@pytest.mark.parametrize("value", [None, ..., [1, "a"]], ids=str)
def test_a_constant_is_made_of_numbers_or_strings(value):
    with pytest.raises(TypeError, match="expected numbers or booleans"):
        tf.constant(value)


def test_a_big_endian_array_is_a_constant_like_any_other():
    assert _value(tf.constant(np.arange(3, dtype=">i4")) + 1).tolist() == [1, 2, 3]


def test_a_tensor_is_no_value_for_a_constant():
    with pytest.raises(TypeError, match="has no value while the graph is built"):
        tf.constant(tf.constant(1.0))


@pytest.mark.parametrize(
    ("shape", "wanted"), [((), ()), (3, (3,)), ([2, 3], (2, 3)), ((np.int64(2), 0), (2, 0))]
)
def test_a_shape_is_a_number_or_numbers(shape, wanted):
    assert tf.placeholder("int8", shape).shape == wanted


def test_a_placeholder_has_a_dtype_that_jax_has():
    assert tf.placeholder(tf.bfloat16, ()).dtype == jnp.bfloat16
    with pytest.raises(ValueError, match="jax_enable_x64"):
        tf.placeholder("float64", ())
    with pytest.raises(TypeError):
        tf.placeholder("float33", ())


def test_identity_is_an_operation_of_its_own_under_the_current_scopes():
    a, b = tf.constant(1.0), tf.constant(2.0)
    with tf.device("/cpu:1"), tf.control_dependencies([b]):
        same = tf.identity(a, name="same")
    assert same.op.name == "same"
    assert same.op.inputs == (a,)
    assert same.device == "/device:CPU:1"
    assert same.op.control_inputs == (b.op,)
    assert _value([same, tf.identity(5)]) == [1.0, 5]


def test_a_group_waits_for_operations_tensors_and_variables():
    a, variable = tf.constant(1.0), tf.Variable(1.0)
    done = tf.group(a, a.op, variable, tf.no_op(), name="done")
    assert done.name == "done"
    assert a.op in done.control_inputs
    assert len(done.control_inputs) == 3
    assert done.outputs == ()


def test_a_group_is_in_the_graph_of_its_members():
    with tf.Graph().as_default() as graph:
        a = tf.constant(1.0)
    assert tf.group(a).graph is graph
    assert tf.group().graph is tf.get_default_graph()


def test_an_operation_that_does_nothing_waits_for_its_control_inputs():
    a = tf.constant(1.0)
    with tf.control_dependencies([a]):
        nothing = tf.no_op(name="nothing")
    assert (nothing.name, nothing.inputs, nothing.outputs) == ("nothing", (), ())
    assert nothing.control_inputs == (a.op,)
