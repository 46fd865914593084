import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf


def _run(fetches):
    with tf.Session() as session:
        return session.run(fetches)


def _apply(fun, *args, **kwargs):
    return tf.get_default_graph().apply(fun, args, kwargs)


def test_a_library_function_of_many_equations_is_one_operation():
    x = tf.constant([1.0, 2.0])
    before = len(tf.get_default_graph().get_operations())
    y = tf.nn.softmax(x)
    assert len(tf.get_default_graph().get_operations()) == before + 1
    assert y.op.type == "softmax"


def test_the_same_call_of_a_library_function_is_traced_once(monkeypatch):
    x = tf.constant([[1.0, 2.0, 3.0]])
    tf.numpy.linalg.norm(x, axis=1)
    n_traced = []
    trace = jax.make_jaxpr
    monkeypatch.setattr(jax, "make_jaxpr", lambda fun: n_traced.append(1) or trace(fun))
    for _ in range(3):
        tf.numpy.linalg.norm(x, axis=1)
    assert not n_traced
    tf.numpy.linalg.norm(x, axis=0)
    assert n_traced


def test_a_users_function_is_traced_each_time_for_what_it_closes_over_may_change():
    numbers = [2.0]

    def fun(x):
        return x * numbers[0]

    x, found = tf.constant(1.0), []
    for number in (2.0, 3.0):
        numbers[0] = number
        found += [_apply(fun, x), tf.lax.cond(True, lambda a: fun(a) + 1, lambda a: a, x)]
    assert _run(found) == [2.0, 3.0, 3.0, 4.0]


def test_equal_static_arguments_of_other_types_are_other_calls():
    def fun(x, n):
        return x * n if isinstance(n, float) else x - n

    x = tf.constant(8.0)
    found = _run([_apply(fun, x, n) for n in (1, 1.0, True, np.float32(1))])
    assert found == [7.0, 8.0, 7.0, 7.0]
    dtypes = [(tf.constant([1, 2]) * n).dtype for n in (1, 1.0, np.float16(1))]
    assert dtypes == [np.int32, np.float32, np.float16]


@pytest.mark.parametrize("kind", [float, np.float32, np.float16, np.complex64])
@pytest.mark.parametrize("zeros", [(0.0, -0.0), (-0.0, 0.0)], ids=str)
def test_the_sign_of_a_zero_is_not_lost(zeros, kind):
    one = tf.constant(1.0)
    found = _run([tf.numpy.real(one * kind(zero)) for zero in zeros])
    np.testing.assert_array_equal(np.signbit(found), np.signbit(zeros))


def test_not_a_number_can_be_a_static_argument():
    found = _run([tf.constant(1.0) * float("nan") for _ in range(2)])
    assert np.isnan(found).all()


def test_a_call_traced_under_one_device_does_not_leave_it_in_the_next():
    x = tf.constant([1.0, 2.0])

    def fun(y):
        return jnp.tanh(y) * 3

    with tf.device("/cpu:1"):
        first = _apply(fun, x)
    assert (first.device, _apply(fun, x).device) == ("/device:CPU:1", "")


def test_settings_of_jax_that_change_a_program_are_obeyed_each_time():
    matrix = tf.constant(np.ones((2, 2), np.float32))
    precisions = []
    for wanted in ("highest", None, "highest"):
        with jax.default_matmul_precision(wanted):
            product = tf.numpy.dot(matrix, matrix)
        precisions.append("HIGHEST" in str(product.op.eqn))
    assert precisions == [True, False, True]


def test_arguments_and_results_can_be_nested_structures():
    def fun(tree, *, shift):
        a, (b,) = tree["x"], tree["y"]
        return {"sum": a + b + shift, "pair": (a, [b * 2, None])}

    a, b = tf.constant(1.0), tf.constant([2.0, 3.0])
    out = _apply(fun, {"x": a, "y": (b,)}, shift=np.float32(10))
    assert set(out) == {"sum", "pair"}
    assert out["pair"][1][1] is None
    total, same, double = _run([out["sum"], out["pair"][0], out["pair"][1][0]])
    assert same == 1.0
    np.testing.assert_array_equal(total, [13.0, 14.0])
    np.testing.assert_array_equal(double, [4.0, 6.0])


def test_arrays_among_the_arguments_become_constants_of_the_graph():
    y = _apply(jnp.add, np.float32([1, 2]), jnp.asarray([3.0, 4.0]))
    np.testing.assert_array_equal(_run(y), [4.0, 6.0])
    assert [t.op.type for t in y.op.inputs] == ["constant", "constant"]


def test_a_result_that_does_not_depend_on_tensors_is_a_constant():
    out = _apply(lambda: (jnp.float32(3.0), 2))
    assert _run(list(out)) == [3.0, 2]


def test_a_function_with_several_results_is_an_operation_with_several_outputs():
    parts = tf.numpy.split(tf.constant([1.0, 2.0, 3.0, 4.0]), 2)
    assert [part.op for part in parts] == [parts[0].op] * 2
    assert [part.index for part in parts] == [0, 1]
    assert [part.name for part in parts] == ["split:0", "split:1"]
    np.testing.assert_array_equal(_run(parts), [[1.0, 2.0], [3.0, 4.0]])


def test_arguments_that_cannot_be_hashed_are_taken_too():
    x = tf.constant(np.arange(6.0).reshape(2, 3))
    found = _run([x[0:1], x[..., 1:], tf.numpy.pad(x, [(1, 0), (0, 2)])])
    assert [value.shape for value in found] == [(1, 3), (2, 2), (3, 5)]


def test_a_wrong_call_is_the_error_that_jax_raises():
    x = tf.constant([1.0, 2.0])
    with pytest.raises(TypeError, match="incompatible shapes"):
        tf.numpy.add(x, tf.constant([1.0, 2.0, 3.0]))
    with pytest.raises(TypeError, match="unexpected keyword"):
        tf.numpy.sin(x, no_such_argument=1)
    with pytest.raises(ValueError, match="axis"):
        tf.numpy.sum(x, axis=7)


def test_weak_types_promote_as_in_jax():
    half = tf.constant(np.float16(1))
    weak = tf.numpy.where(half > 0, 2.0, 1.0)
    assert weak.dtype == np.float32
    assert (half * weak).dtype == np.float16


def test_what_a_function_closes_over_is_part_of_the_program():
    table = np.arange(5, dtype=np.float32)
    y = _apply(lambda i: jnp.take(table, i), tf.constant([4, 0]))
    np.testing.assert_array_equal(_run(y), [4.0, 0.0])
