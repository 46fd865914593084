import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf

M = np.array([[1.0, 2.0], [3.0, -4.0]], np.float32)


def _value(fetches):
    with tf.Session() as session:
        return session.run(fetches)


@pytest.mark.parametrize(
    ("lifted", "own"),
    [
        (tf.numpy.linalg.norm, jnp.linalg.norm),
        (tf.numpy.linalg.inv, jnp.linalg.inv),
        (lambda m: tf.numpy.real(tf.numpy.fft.fft(m)), lambda m: jnp.real(jnp.fft.fft(m))),
        (lambda m: tf.lax.linalg.cholesky(m @ M.T), lambda m: jax.lax.linalg.cholesky(m @ M.T)),
        (lambda m: tf.numpy.einsum("ij,ij->i", m, m), lambda m: jnp.einsum("ij,ij->i", m, m)),
        (lambda m: tf.numpy.argsort(m, axis=1), lambda m: jnp.argsort(m, axis=1)),
        (lambda m: tf.lax.rsqrt(m * m), lambda m: jax.lax.rsqrt(m * m)),
        (lambda m: tf.numpy.add(m, m), lambda m: jnp.add(m, m)),
        (lambda m: tf.numpy.astype(m, "int8"), lambda m: m.astype("int8")),
    ],
)
def test_functions_of_every_namespace_agree_with_jax(lifted, own):
    value, wanted = _value(lifted(tf.constant(M))), own(jnp.asarray(M))
    assert value.dtype == wanted.dtype
    np.testing.assert_allclose(value, wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (tf.nn.leaky_relu, [-0.2, 0.0, 2.0]),
        (lambda x: tf.nn.leaky_relu(x, 0.5, None), [-0.5, 0.0, 2.0]),
        (lambda x: tf.nn.leaky_relu(features=x, alpha=0.1, name="f"), [-0.1, 0.0, 2.0]),
        (lambda x: tf.gradients(tf.nn.leaky_relu(x), x)[0], [0.2, 0.2, 1.0]),
    ],
)
def test_a_leaky_relu_has_the_slope_of_tensorflow(make, expected):
    x = tf.constant([-1.0, 0.0, 2.0])
    np.testing.assert_allclose(_value(make(x)), expected, rtol=1e-6)
    traced = jax.jit(tf.nn.leaky_relu)(jnp.array([-1.0], jnp.bfloat16))
    assert traced.dtype == tf.nn.leaky_relu(tf.cast(x, tf.bfloat16)).dtype == jnp.bfloat16


def test_random_numbers_are_those_of_jax():
    key = tf.random.PRNGKey(3)
    keys = tf.random.split(key)
    left, right = keys[0], keys[1]
    found = _value([tf.random.normal(left, (3,)), tf.random.randint(right, (2,), 0, 9)])
    left, right = jax.random.split(jax.random.PRNGKey(3))
    np.testing.assert_allclose(found[0], jax.random.normal(left, (3,)), rtol=1e-6)
    np.testing.assert_array_equal(found[1], jax.random.randint(right, (2,), 0, 9))


def test_random_keys_of_the_new_kind_work_too_also_across_devices():
    with tf.device("/cpu:1"):
        key = tf.random.key(3)
    with tf.device("/cpu:2"):
        numbers = tf.random.normal(key, (3,))
    wanted = jax.random.normal(jax.random.key(3), (3,))
    np.testing.assert_allclose(_value(numbers), wanted, rtol=1e-6)


def test_initializers_make_tensors():
    found = _value(tf.nn.initializers.zeros(tf.random.PRNGKey(0), (2, 3)))
    np.testing.assert_array_equal(found, np.zeros((2, 3)))


def test_everything_that_is_no_function_is_jax_s_own():
    assert tf.numpy.pi == jnp.pi
    assert tf.numpy.newaxis is None
    assert tf.numpy.float32 is jnp.float32
    assert tf.lax.Precision is jax.lax.Precision
    assert tf.numpy.ndarray is jnp.ndarray


def test_a_lifted_function_has_its_name_and_documentation():
    assert tf.numpy.dot.__name__ == "dot"
    assert tf.numpy.dot.__doc__ == jnp.dot.__doc__
    assert tf.numpy.dot is tf.numpy.dot


def test_what_jax_does_not_have_is_an_attribute_error():
    for namespace in (tf.numpy, tf.nn, tf.lax, tf.random, tf.numpy.linalg):
        with pytest.raises(AttributeError, match="no_such_function"):
            _ = namespace.no_such_function


def test_a_namespace_lists_what_it_has():
    assert {"dot", "linalg", "float32"} <= set(dir(tf.numpy))
    assert "norm" in dir(tf.numpy.linalg)
    assert not [name for name in dir(tf.nn) if name.startswith("_")]


@pytest.mark.parametrize("name", ["jflow.numpy.linalg", "jflow.nn.initializers"])
def test_a_nested_namespace_is_no_module_that_import_could_find_unlifted(name):
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(name)


def test_a_nested_namespace_can_be_imported_from_its_parent():
    from jflow.numpy import linalg  # noqa: PLC0415 - the import itself is tested

    assert linalg.norm(tf.constant(M)).graph is tf.get_default_graph()


def test_a_call_without_tensors_goes_to_the_default_graph():
    zeros = tf.numpy.zeros((2, 3), dtype="int32")
    assert (zeros.shape, zeros.dtype, zeros.graph) == ((2, 3), np.int32, tf.get_default_graph())
    np.testing.assert_array_equal(_value(tf.numpy.arange(2, 8, 3)), [2, 5])


def test_a_call_with_tensors_goes_to_their_graph():
    with tf.Graph().as_default() as graph:
        a = tf.constant([1.0])
    assert tf.numpy.sum(a).graph is graph
    assert tf.numpy.stack([a, a]).graph is graph
    assert tf.numpy.concatenate(arrays=[a, a]).graph is graph


def test_variables_arrays_and_numbers_are_taken_together():
    variable = tf.Variable(M)
    total = tf.numpy.add(variable, tf.numpy.multiply(M, 2.0))
    with tf.Session() as session:
        session.run(variable.initializer)
        np.testing.assert_allclose(session.run(total), 3 * M)


def test_static_arguments_come_by_position_or_by_name():
    x = tf.constant(np.arange(6.0).reshape(2, 3))
    found = _value([
        tf.numpy.sum(x, 0),
        tf.numpy.sum(x, axis=0, keepdims=True),
        tf.numpy.reshape(x, (3, 2)),
        tf.numpy.transpose(x, axes=(1, 0)),
        tf.numpy.sum(x, axis=(0, 1), dtype="float16"),
    ])  # fmt: skip
    assert [np.shape(value) for value in found] == [(3,), (1, 3), (3, 2), (3, 2), ()]
    assert found[-1].dtype == np.float16


def test_control_flow_takes_functions_of_plain_jax():
    xs = tf.constant(np.arange(4.0))
    total, seen = tf.lax.scan(lambda c, x: (c + x, c * 2), tf.constant(1.0), xs)
    small = tf.lax.while_loop(lambda x: x < 100, lambda x: x * 3, total)
    turned = tf.lax.cond(small > 200, jnp.sin, jnp.negative, small)
    found = _value([total, seen, small, turned])
    assert found[0] == 7.0
    np.testing.assert_array_equal(found[1], [2.0, 2.0, 4.0, 8.0])
    assert found[2:] == [189.0, -189.0]


def test_the_name_of_an_operation_can_be_given():
    assert tf.numpy.sum(tf.constant([1.0]), name="total").name == "total:0"
    assert tf.nn.relu(tf.constant([1.0]), name="total").name == "total_1:0"
