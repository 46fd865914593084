import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from tests.programs_of_jax import ARRAYS, TENSORS

X = np.array([0.5, -1.25, 2.0, 0.75], np.float32)
M = np.linspace(-1, 2, 16, dtype=np.float32).reshape(4, 4)


def _run(fetches, feeds=None):
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches, feeds)


def _types():
    return [op.type for op in tf.get_default_graph().get_operations()]


FUNCTIONS = {
    "linear": lambda ns, x, m: x * 3 + 1,
    "product": lambda ns, x, m: x * x * m,
    "quotient": lambda ns, x, m: m / (1 + x**2),
    "power": lambda ns, x, m: (x + 4) ** 2.5,
    "matmul": lambda ns, x, m: m @ ns.numpy.dot(m, x),
    "einsum": lambda ns, x, m: ns.numpy.einsum("i,ij,j->", x, m, x),
    "tanh of a sum": lambda ns, x, m: ns.numpy.tanh(ns.numpy.sum(m, axis=0) + x),
    "relu": lambda ns, x, m: ns.nn.relu(m @ x),
    "gelu": lambda ns, x, m: ns.nn.gelu(x),
    "softmax": lambda ns, x, m: ns.nn.softmax(m * x, axis=0)[1],
    "logsumexp": lambda ns, x, m: ns.nn.logsumexp(m + x),
    "cross entropy": lambda ns, x, m: -ns.nn.log_softmax(m @ x)[2],
    "max": lambda ns, x, m: ns.numpy.max(m * x),
    "norm": lambda ns, x, m: ns.numpy.linalg.norm(x) * ns.numpy.linalg.norm(m),
    "where": lambda ns, x, m: ns.numpy.where(x > 0, x * 2, ns.numpy.exp(x)),
    "index": lambda ns, x, m: m[1] * x[2] + m[:, 0] * x[::-1],
    "gather": lambda ns, x, m: x[np.array([0, 0, 3])],
    "concatenate": lambda ns, x, m: ns.numpy.concatenate([x, m[0], x[:1]]) ** 2,
    "split": lambda ns, x, m: ns.numpy.split(x, 2)[1] * 5,
    "sort": lambda ns, x, m: ns.numpy.sort(x) * ns.numpy.arange(4),
    "stop_gradient": lambda ns, x, m: x * ns.lax.stop_gradient(x),
    "scan": lambda ns, x, m: ns.lax.scan(lambda c, r: (jnp.sin(c * r), c), x, m)[0],
    "cond": lambda ns, x, m: ns.lax.cond(x[0] > 0, lambda a: a * 3, lambda a: -a, m),
    "fori_loop": lambda ns, x, m: ns.lax.fori_loop(0, 3, lambda i, a: a * a, x),
    "inverse": lambda ns, x, m: ns.numpy.linalg.inv(m + 9 * np.eye(4, dtype=np.float32)) @ x,
    "cast": lambda ns, x, m: ns.numpy.astype(ns.numpy.astype(x, "float16"), "float32") * 2,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_gradient_is_that_of_jax(name):
    fun = FUNCTIONS[name]
    x, m = tf.constant(X), tf.constant(M)
    found = tf.gradients(fun(TENSORS, x, m), [x, m])
    wanted = jax.jit(jax.grad(lambda *args: jnp.sum(fun(ARRAYS, *args)), (0, 1)))(X, M)
    values = iter(_run([gradient for gradient in found if gradient is not None]))
    for gradient, array in zip(found, wanted, strict=True):
        # JAX has zeros where jflow has None.
        value = np.zeros_like(array) if gradient is None else next(values)
        np.testing.assert_allclose(value, array, rtol=2e-5, atol=1e-6)


def test_several_results_are_added_up():
    x = tf.constant(X)
    (found,) = tf.gradients([x * 2, tf.numpy.sum(x * x)], x)
    np.testing.assert_allclose(_run(found), 2 + 2 * X)


def test_a_given_slope_of_each_result_is_taken():
    x = tf.constant(X)
    (found,) = tf.gradients([x * 2, tf.numpy.sin(x)], x, grad_ys=[M[0], tf.constant(M[1])])
    np.testing.assert_allclose(_run(found), 2 * M[0] + np.cos(X) * M[1], rtol=1e-6)


@pytest.mark.parametrize("slopes", [[X], [X, X, X], [1.0, X], [X, M]])
def test_slopes_that_do_not_fit_the_results_are_an_error(slopes):
    x = tf.constant(X)
    with pytest.raises(ValueError, match=r"zip|VJP"):
        tf.gradients([x * 2, x * 3], x, grad_ys=slopes)


def test_the_gradient_of_a_variable_goes_through_all_of_its_reads():
    v = tf.Variable(X)
    y = v * v.read_value() + tf.numpy.sin(v.read_value())
    np.testing.assert_allclose(_run(tf.gradients(y, v)), [2 * X + np.cos(X)], rtol=1e-6)


def test_reads_that_were_never_used_do_not_matter():
    v = tf.Variable(X)
    v.read_value()
    np.testing.assert_allclose(_run(tf.gradients(v * 3, v)), [np.full(4, 3.0)])


def test_the_gradient_of_an_intermediate_is_its_own():
    x = tf.constant(X)
    h = tf.numpy.sin(x)
    np.testing.assert_allclose(_run(tf.gradients(h * h, h)), [2 * np.sin(X)], rtol=1e-6)


def test_a_derivative_is_total_when_one_x_depends_on_another():
    a = tf.constant(5.0)
    b = 2 * a
    assert _run(tf.gradients(a + b, [a, b])) == [3.0, 1.0]
    assert _run(tf.gradients(a * b, [b, a])) == [5.0, 20.0]


def test_a_chain_of_intermediates_has_a_total_derivative_each():
    x = tf.constant(X)
    h = tf.numpy.sin(x)
    g = h * h
    y = g + h + x
    slopes = [np.cos(X) * (2 * np.sin(X) + 1) + 1, 2 * np.sin(X) + 1, np.ones(4), np.ones(4)]
    for value, wanted in zip(_run(tf.gradients(y, [x, h, g, y])), slopes, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-6)


def test_one_output_of_several_can_be_an_x():
    first, second = tf.numpy.split(tf.constant(X), 2)
    found = _run(tf.gradients(first * second, [second, first]))
    np.testing.assert_allclose(found, [X[:2], X[2:]])


def test_x_may_be_y_itself():
    x = tf.constant(X)
    np.testing.assert_allclose(_run(tf.gradients(x, x)), [np.ones(4)])
    np.testing.assert_allclose(_run(tf.gradients([x, x * x], x)), [1 + 2 * X])


def test_equal_xs_get_equal_gradients():
    x = tf.constant(3.0)
    assert _run(tf.gradients(x * x, [x, x])) == [6.0, 6.0]


def test_an_x_that_no_y_depends_on_gets_none():
    x, other, v = tf.constant(X), tf.constant(X), tf.Variable(X)
    y = x * 2
    found = tf.gradients(y, [other, x, v, y * 3])
    assert [gradient is None for gradient in found] == [True, False, True, True]
    assert tf.gradients(y, [other, v]) == [None, None]
    assert tf.gradients(y, []) == []


def test_no_gradient_flows_through_state():
    v = tf.Variable(X)
    x = tf.constant(X)
    updated = v.assign(x * 2)
    assert tf.gradients(updated * 3, [x, v]) == [None, None]


def test_nothing_is_added_to_the_graph_for_unconnected_gradients():
    y, other = tf.constant(X) * 2, tf.constant(X)
    before = len(_types())
    tf.gradients(y, other)
    assert len(_types()) == before


def test_gradients_can_be_differentiated_again():
    x = tf.constant(2.0)
    (first,) = tf.gradients(x**4, x)
    (second,) = tf.gradients(first, x)
    (third,) = tf.gradients(second, x)
    assert _run([first, second, third]) == [32.0, 48.0, 48.0]


def test_what_is_not_differentiated_may_be_integers_and_fed():
    table = tf.Variable(M)
    row = tf.placeholder("int32", ())
    (found,) = tf.gradients(table[row] * 2, table)
    wanted = np.zeros_like(M)
    wanted[3] = 2
    np.testing.assert_array_equal(_run(found, {row: 3}), wanted)


def test_the_gradient_uses_a_fed_intermediate():
    x = tf.constant(X)
    h = tf.numpy.sin(x)
    (found,) = tf.gradients(h * h, x)
    np.testing.assert_allclose(_run(found, {h: X}), 2 * X * np.cos(X), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int32", "bool"])
def test_integers_cannot_be_differentiated(dtype):
    numbers = tf.constant([0, 1], dtype="int32") > 0 if dtype == "bool" else tf.constant([0, 1])
    x = tf.constant(X)
    with pytest.raises(TypeError, match=r"cannot differentiate .*dtype"):
        tf.gradients(numbers, x)
    with pytest.raises(TypeError, match=r"cannot differentiate .*dtype"):
        tf.gradients(x * 2, numbers)
    with pytest.raises(TypeError, match=r"cannot differentiate .*dtype"):
        tf.gradients(x * 2, tf.Variable(3))


def test_what_is_no_tensor_cannot_be_an_x():
    with pytest.raises(TypeError, match="expected a tensor or a variable"):
        tf.gradients(tf.constant(1.0) * 2, [1.0])


def test_there_must_be_a_y():
    with pytest.raises(ValueError, match="at least one y"):
        tf.gradients([], tf.constant(1.0))


def test_tensors_of_two_graphs_cannot_meet_in_a_gradient():
    with tf.Graph().as_default():
        foreign = tf.constant(1.0)
    mine = tf.constant(1.0)
    for ys, xs in (([mine * 2, foreign], mine), (mine * 2, [mine, foreign])):
        with pytest.raises(ValueError, match="belongs to another graph"):
            tf.gradients(ys, xs)


def test_gradients_of_another_graph_go_into_that_graph():
    graph = tf.Graph()
    with graph.as_default():
        x = tf.constant(2.0)
        y = x * x
    (found,) = tf.gradients(y, x)
    assert found.graph is graph
    assert tf.get_default_graph().get_operations() == []


def test_a_gradient_asks_for_the_device_of_its_forward_operation():
    x = tf.constant(X)
    with tf.device("/job:worker/task:1"):
        h = tf.numpy.sin(x)
    with tf.device("/job:ps/task:0/cpu:0"):
        y = tf.numpy.exp(h)
    before = len(_types())
    tf.gradients(y, x)
    made = {op.type: op.device for op in tf.get_default_graph().get_operations()[before:]}
    assert made["cos"] == "/job:worker/task:1"
    assert set(made.values()) == {"/job:worker/task:1", "/job:ps/task:0/device:CPU:0"}


def test_the_ones_that_a_gradient_starts_from_are_made_where_the_result_is():
    x = tf.constant(X)
    with tf.device("/cpu:2"):
        y = tf.numpy.exp(x)
    before = len(_types())
    tf.gradients(y, x)
    made = tf.get_default_graph().get_operations()[before:]
    assert {op.device for op in made} == {"/device:CPU:2"}


def test_the_device_of_a_library_function_reaches_its_gradient():
    x = tf.constant(M)
    with tf.device("/cpu:2"):
        y = tf.nn.softmax(x) @ M
    before = len(_types())
    tf.gradients(y, x)
    made = tf.get_default_graph().get_operations()[before:]
    assert {op.device for op in made if op.inputs} == {"/device:CPU:2"}


@jax.jit
@jax.custom_jvp
def _forward_ruled(x):
    return jnp.sin(x)


_forward_ruled.__wrapped__.defjvp(lambda xs, ts: (jnp.sin(*xs), ts[0] * jnp.cos(*xs)))


@jax.jit
@jax.custom_vjp
def _backward_ruled(x):
    return jnp.sin(x)


_backward_ruled.__wrapped__.defvjp(lambda x: (jnp.sin(x), jnp.cos(x)), lambda c, t: (t * c,))

RULED = {
    "of a library": tf.nn.softplus,
    "forward": lambda x: tf.lax.map(_forward_ruled, x),
    "backward": lambda x: tf.lax.map(_backward_ruled, x),
}


@pytest.mark.parametrize("name", RULED)
def test_a_derivative_rule_has_the_device_of_each_use(name):
    """JAX traces it once, when it is first used."""
    for device in ("/device:CPU:1", "/job:ps", ""):
        with tf.Graph().as_default():
            x = tf.constant(X)
            with tf.device(device):
                y = RULED[name](x)
            before = len(_types())
            tf.gradients(y, x)
            made = tf.get_default_graph().get_operations()[before:]
            assert {op.device for op in made if op.inputs} == {device}


@pytest.mark.parametrize("forward", ["", "/device:CPU:1", "/job:ps"])
def test_the_block_around_gradients_does_not_move_them(forward):
    x = tf.constant(X)
    with tf.device(forward):
        y = tf.numpy.sin(x) * x
    before = len(_types())
    with tf.device("/cpu:2"):
        tf.gradients(y, x)
    made = tf.get_default_graph().get_operations()[before:]
    assert {op.device for op in made} == {forward}


def test_the_sum_over_reads_of_a_variable_is_made_where_they_were_used():
    v = tf.Variable(X)
    with tf.device("/cpu:1"):
        y = tf.numpy.sin(v) * v.read_value()
    (found,) = tf.gradients(y, v)
    assert (found.op.type, found.device) == ("add", "/device:CPU:1")


@pytest.mark.parametrize("around", ["", "/cpu:2"])
def test_forward_operations_that_the_gradient_needs_are_shared(around):
    x = tf.constant(X)
    y = tf.numpy.exp(tf.numpy.tanh(x))
    with tf.device(around):
        tf.gradients(y, x)
    assert [_types().count(kind) for kind in ("tanh", "exp")] == [1, 1]


def test_equal_operations_on_two_devices_are_not_confused():
    x = tf.constant(X)
    results = []
    for name in ("/cpu:1", "/cpu:2"):
        with tf.device(name):
            results.append(tf.numpy.exp(x))
    before = len(_types())
    (found,) = tf.gradients(results, x, grad_ys=[X, M[0]])
    np.testing.assert_allclose(_run(found), (X + M[0]) * np.exp(X), rtol=1e-6)
    made = tf.get_default_graph().get_operations()[before:]
    used = [(op.device, t.device) for op in made for t in op.inputs if t.op.type == "exp"]
    assert sorted(used) == [(f"/device:CPU:{i}", f"/device:CPU:{i}") for i in (1, 2)]
    assert "exp" not in _types()[before:]


def test_equal_operations_colocated_with_two_others_are_not_confused():
    x = tf.constant(X)
    results = []
    for name in "ab":
        with tf.colocate_with(tf.constant(1.0, name=name)):
            results.append(tf.numpy.exp(x))
    before = len(_types())
    tf.gradients(results, x, grad_ys=[X, M[0]])
    made = tf.get_default_graph().get_operations()[before:]
    used = {(op.colocated_with, t.op) for op in made for t in op.inputs if t.op.type == "exp"}
    assert used == {(t.op.colocated_with, t.op) for t in results}


def test_new_operations_are_in_a_name_scope():
    x = tf.constant(X)
    y = tf.numpy.sin(x)
    before = len(_types())
    tf.gradients(y, x)
    tf.gradients(y, x, name="again")
    with tf.name_scope("outer"):
        tf.gradients(y, x)
    names = [op.name for op in tf.get_default_graph().get_operations()[before:]]
    scopes = ("gradients/", "again/", "outer/gradients/")
    assert {name[: len(scope)] for name in names for scope in scopes} >= {*scopes}
    assert all(name.startswith(scopes) for name in names)


def test_new_operations_are_in_the_scopes_of_what_they_differentiate():
    x = tf.constant(X)
    with tf.name_scope("layer"):
        y = tf.numpy.sin(x)
    tf.gradients(y, x)
    graph = tf.get_default_graph()
    assert graph.get_operation_by_name("gradients/layer/mul").type == "mul"
    # The cosine does not depend on the derivative of y.
    assert graph.get_operation_by_name("gradients/forward/layer/cos").type == "cos"
