"""Shapes that are tensors: sizes that follow from the graph, and sizes that a step finds out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.compiler.graph.shape_values import shape_value
from jflow.errors import InvalidArgumentError, UnimplementedError
from tests.clusters import Backend

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def x():
    return tf.placeholder(tf.float32, [None, 3])


def _values(tensor):
    return [None if one is None else str(one) for one in np.ravel(shape_value(tensor))]


def test_sizes_are_computed_from_the_graph(x):
    n = str(x.shape[0])
    shape = tf.shape(x)
    assert _values(shape) == [n, "3"]
    assert _values(shape[0]) == [n]
    assert _values(tf.stack([shape[0], 10])) == [n, "10"]
    assert _values(tf.concat([shape[:1], [4]], 0)) == [n, "4"]
    assert _values(shape[0] * 2 + 1) == [f"2*{n} + 1"]
    assert _values(tf.reduce_prod(shape)) == [f"3*{n}"]
    assert _values(tf.size(x)) == [f"3*{n}"]
    assert _values(shape[0] // 2) == [f"floordiv({n}, 2)"]
    assert _values(tf.cast(shape, tf.int32)[::-1]) == ["3", n]
    assert _values(tf.constant([2, 3])) == ["2", "3"]


def test_what_a_step_finds_out_is_not_known(x):
    k = tf.placeholder(tf.int32, [])
    assert _values(k) == [None]
    assert _values(tf.stack([k, tf.shape(x)[1]])) == [None, "3"]
    assert _values(tf.to_int32(tf.reduce_sum(x))) == [None]


def test_a_deep_graph_has_known_sizes(x):
    size = tf.shape(x)[0]
    for _ in range(2000):
        size = size + 1
    assert _values(size) == [f"{x.shape[0]} + 2000"]


def test_tensors_have_sizes_of_the_graph_and_of_the_step(x, backend: Backend):
    k = tf.placeholder(tf.int32, [])
    both = tf.placeholder(tf.int32, [2])
    fetches = {
        "like": tf.zeros(tf.shape(x)),
        "part": tf.ones([tf.shape(x)[0], 2]),
        "of_step": tf.fill([k, 2], 7),
        "fed": tf.zeros(both),
        "tile": tf.tile(tf.constant([1.0]), [k]),
        "range": tf.range(k),
        "from": tf.range(1, tf.shape(x)[1]),
        "reshape": tf.reshape(x, [k, -1, 1]),
        "both": tf.reshape(x, both),
        "mask": tf.boolean_mask(x, tf.greater(x[:, 0], 1.0)),
        "eye": tf.eye(k),
    }
    with backend.session() as session:
        values = session.run(fetches, {x: X, k: 2, both: [3, 2]})
        assert {name: value.shape for name, value in values.items()} == {
            "like": (2, 3),
            "part": (2, 2),
            "of_step": (2, 2),
            "fed": (3, 2),
            "tile": (2,),
            "range": (2,),
            "from": (2,),
            "reshape": (2, 3, 1),
            "both": (3, 2),
            "mask": (1, 3),
            "eye": (2, 2),
        }
        assert values["mask"].tolist() == [[3.0, 4.0, 5.0]]


def test_a_size_alone_is_enough_for_a_step(x, backend: Backend):
    queue = tf.FIFOQueue(10, [tf.float32], [[]], name="q")
    put, close = queue.enqueue_many([[1.0, 2.0, 3.0]]), queue.close()
    taken = queue.dequeue_up_to(2)
    zeros = tf.numpy.zeros((taken.shape[0], 4))
    with backend.session() as session:
        session.run(put)
        session.run(close)
        assert session.run(zeros).shape == (2, 4)
        assert session.run(zeros).shape == (1, 4)


def test_sizes_may_be_zero(x, backend: Backend):
    k = tf.placeholder(tf.int32, [])
    w = tf.Variable(np.ones((3, 2), np.float32), name="w")
    loss = tf.reduce_sum(tf.square(x @ w))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    fetches = [x @ w, tf.nn.softmax(x), tf.reduce_sum(x), tf.zeros([k, 2]), tf.concat([x, x], 0)]
    with backend.session() as session:
        session.run(w.initializer)
        values = session.run(fetches, {x: np.zeros((0, 3)), k: 0})
        assert [value.shape for value in values] == [(0, 2), (0, 3), (), (0, 2), (0, 3)]
        session.run(train, {x: np.zeros((0, 3))})
        assert session.run(w).tolist() == [[1.0, 1.0]] * 3


def test_a_program_that_needs_rows_refuses_none(x):
    with tf.Session() as session:
        assert session.run(x[0], {x: X}).tolist() == [0.0, 1.0, 2.0]
        for fetch in (x[0], x[1:]):
            with pytest.raises(InvalidArgumentError, match="does not accept its arguments"):
                session.run(fetch, {x: np.zeros((0, 3))})


def test_derivatives_flow_through_sizes_of_the_step(x):
    k = tf.placeholder(tf.int32, [])
    y = tf.reduce_sum(tf.square(tf.reshape(x, [k, 3]))) + tf.reduce_sum(tf.ones([k, 2]))
    with tf.Session() as session:
        slope = session.run(tf.gradients(y, x)[0], {x: X, k: 2})
    assert slope.tolist() == (2 * X).tolist()


def test_a_size_that_does_not_fit_is_an_error_of_the_step(x):
    k = tf.placeholder(tf.int32, [])
    with tf.Session() as session:
        with pytest.raises(InvalidArgumentError, match="size of at least 0, got -1"):
            session.run(tf.zeros([k]), {k: -1})
        with pytest.raises(InvalidArgumentError):
            session.run(tf.reshape(x, [k, 3]), {x: X, k: 5})


def test_no_shape_is_an_error_of_the_call():
    with pytest.raises(ValueError, match="a size is None"):
        tf.zeros([None, 2])
    with pytest.raises(ValueError, match="known rank"):
        tf.zeros(tf.placeholder(tf.int32))
    with pytest.raises(TypeError, match="shape of integers"):
        tf.zeros(tf.constant([1.0]))
    with pytest.raises(ValueError, match="axis to be known"):
        tf.expand_dims(tf.constant(1.0), tf.placeholder(tf.int32, []))


def test_in_a_function_the_names_are_those_of_jax():
    @tf.function
    def f(x):
        y = tf.matmul(x, tf.transpose(x)) + tf.reduce_sum(tf.square(x))
        return tf.concat([y, tf.zeros([2, 1])], axis=1)

    expected = np.concatenate([X @ X.T + np.sum(X**2), np.zeros((2, 1))], axis=1)
    np.testing.assert_allclose(f(X), expected)
    np.testing.assert_allclose(jax.jit(tf.reduce_mean)(jnp.asarray(X)), 2.5)


@pytest.mark.parametrize(
    ("call", "bounded"),
    [
        (lambda x: tf.boolean_mask(x, x[:, 0] > 1), "size="),
        (lambda x: tf.where(x > 1), "size="),
        (lambda x: tf.sequence_mask(tf.to_int32(x[0])), "maxlen="),
        (lambda x: tf.segment_sum(x, jnp.array([0, 1])), "unsorted_segment_sum"),
        (lambda x: tf.unique(x[0])[0], "size="),
    ],
)
def test_what_needs_values_names_its_bounded_form_in_a_function(call, bounded):
    with pytest.raises(UnimplementedError, match=bounded):
        tf.function(call)(X)


def test_functions_take_tensors_of_unknown_rank():
    x = tf.placeholder(tf.float32)
    with tf.Session() as session:
        for value in (1.0, [1.0, 2.0], [[3.0]]):
            assert session.run(tf.reduce_sum(x), {x: value}) == np.sum(value)
        assert session.run(tf.shape(x), {x: [[1.0, 2.0]]}).tolist() == [1, 2]


def test_eager_variables_are_computed_with_at_once():
    with tf.connect():
        v = tf.Variable(X)
        np.testing.assert_allclose(tf.reduce_max(v, axis=1), [2.0, 5.0])
        np.testing.assert_allclose(tf.matmul(v, v, transpose_b=True), X @ X.T)


def test_a_default_that_is_fed_changes_the_shapes_that_are_built_of_it(backend: Backend):
    n = tf.placeholder_with_default(2, [])
    shape = tf.shape(tf.zeros([n, 3]))
    with backend.session() as session:
        assert session.run(shape).tolist() == [2, 3]
        assert session.run(shape, {n: 5}).tolist() == [5, 3]


def test_what_shapes_were_built_of_cannot_be_fed(x):
    sizes, other, shape = tf.constant([2, 3]), tf.constant([2, 3]), tf.shape(x)
    made, same = tf.zeros(sizes), tf.zeros(shape)
    with tf.Session() as session:
        assert not x.graph.is_feedable(sizes)
        with pytest.raises(ValueError, match="may not be fed"):
            session.run(made, {sizes: [3, 3]})
        with pytest.raises(ValueError, match="may not be fed"):
            session.run(same, {shape: [3, 3], x: X})
        assert session.run(other, {other: [4, 5]}).tolist() == [4, 5]
        assert session.run(same, {x: X}).shape == X.shape


@pytest.mark.parametrize("n_rows", [0, 1, 5, 9])
def test_a_size_may_be_the_larger_or_smaller_of_two(x, n_rows, backend: Backend):
    n = tf.shape(x)[0]
    fetches = [
        tf.shape(tf.zeros([tf.maximum(n, 1)])),
        tf.shape(tf.zeros([tf.minimum(n, 4)])),
        tf.shape(tf.zeros([tf.maximum(n - 4, 0)])),
    ]
    with backend.session() as session:
        values = session.run(fetches, {x: np.zeros((n_rows, 3))})
    assert [int(v[0]) for v in values] == [max(n_rows, 1), min(n_rows, 4), max(n_rows - 4, 0)]


def test_no_size_is_negative(x, backend: Backend):
    """XLA computes -1 rows; a program whose sizes may be negative refuses a size of 0."""
    rest, n_rest = x[1:], tf.shape(x[1:])
    with backend.session() as session:
        assert session.run(n_rest, {x: X}).tolist() == [1, 3]
        assert session.run(rest, {x: X[:1]}).shape == (0, 3)
        with pytest.raises(InvalidArgumentError, match="Expected value >= 1"):
            session.run(n_rest, {x: X[:0]})
