"""Unknown sizes that an operation needs to be equal: they are, unless the step finds otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from jflow.compiler.graph import Tensor
from tests.clusters import Backend

RNG = np.random.default_rng(0)
IMAGES = RNG.random((60, 784), np.float32)
LABELS = np.eye(10, dtype=np.float32)[RNG.integers(0, 10, 60)]


def here() -> int:
    """The line of the caller."""
    return sys._getframe(1).f_lineno


def open_(*shape: int | None) -> Tensor:
    return tf.placeholder(tf.float32, shape)


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def test_softmax_regression_trains_with_batches_of_all_sizes(backend: Backend) -> None:
    x, y = open_(None, 784), open_(None, 10)
    w = tf.Variable(np.zeros((784, 10), np.float32))
    logits = tf.numpy.matmul(x, w)
    loss = -tf.numpy.mean(tf.numpy.sum(y * tf.nn.log_softmax(logits), axis=1))
    train = tf.train.GradientDescentOptimizer(0.02).minimize(loss)
    right = tf.numpy.equal(tf.numpy.argmax(logits, 1), tf.numpy.argmax(y, 1))
    accuracy = tf.numpy.mean(tf.cast(right, tf.float32))
    value = jnp.zeros((784, 10))

    @jax.jit
    @jax.value_and_grad
    def expected(value: Any, images: Any, labels: Any) -> Any:
        return -jnp.mean(jnp.sum(labels * jax.nn.log_softmax(images @ value), axis=1))

    with backend.session() as session:
        session.run(w.initializer)
        for rows in (slice(0, 32), slice(32, 48), slice(59, 60), slice(0, 32)):
            found = session.run([train, loss], {x: IMAGES[rows], y: LABELS[rows]})[1]
            wanted, slope = expected(value, IMAGES[rows], LABELS[rows])
            assert found == pytest.approx(float(wanted), rel=1e-4)
            value -= 0.02 * slope
        right_rate = np.mean(np.argmax(IMAGES @ value, 1) == np.argmax(LABELS, 1))
        assert session.run(accuracy, {x: IMAGES, y: LABELS}) == pytest.approx(right_rate)
        np.testing.assert_allclose(session.run(w), value, rtol=1e-3, atol=1e-5)


def test_unequal_sizes_are_refused_by_the_step_that_needs_them_to_be_equal(
    backend: Backend,
) -> None:
    x, y = tf.placeholder(tf.float32, (None, 2), "x"), tf.placeholder(tf.float32, (None, 2), "y")
    v = tf.Variable(1.0)
    loss, line = v * tf.numpy.sum(x * y), here()
    train = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    apart = [tf.numpy.sum(x), tf.numpy.sum(y)]
    with backend.session() as session:
        session.run(v.initializer)
        for fetch in (train, loss):
            with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                session.run(fetch, {x: ones(4, 2), y: ones(3, 2)})
            message = str(caught.value)
            assert "'mul' needs equal sizes" in message
            assert "4 (dimension 0 of 'x:0')" in message
            assert "3 (dimension 0 of 'y:0')" in message
            assert f"{Path(__file__).name}:{line} " in message
        assert session.run(v) == 1
        session.run(train, {x: ones(3, 2), y: ones(3, 2)})
        assert session.run(v) == -2
        assert session.run(apart, {x: ones(4, 2), y: ones(3, 2)}) == [8, 6]


def test_a_size_of_1_is_broadcast_if_it_is_declared(backend: Backend) -> None:
    x, y, row, column = open_(None, 3), open_(None, 3), open_(1, 3), open_(None, 1)
    with backend.session() as session:
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"broadcast only if .* declares"):
            session.run(x + y, {x: ones(2, 3), y: ones(1, 3)})
        assert session.run(x + row, {x: ones(2, 3), row: ones(1, 3)}).shape == (2, 3)
        assert session.run(x + column, {x: ones(2, 3), column: ones(2, 1)}).shape == (2, 3)
        with pytest.raises(tf.errors.InvalidArgumentError, match="equal sizes"):
            session.run(x + column, {x: ones(2, 3), column: ones(4, 1)})


def test_an_unknown_size_is_a_known_one_where_only_that_fits(backend: Backend) -> None:
    x, z = tf.placeholder(tf.float32, (None, None), "x"), open_(None)
    v = tf.Variable(ones(2, 3))
    with tf.device(backend.devices[-1]):
        product = v * x
    assert product.shape == (2, 3)
    assert (z + open_(None, 3)).shape[1] == 3
    assert tf.numpy.matmul(open_(5, 784), open_(None, 10)).shape == (5, 10)
    train = tf.train.GradientDescentOptimizer(1.0).minimize(product)
    total = tf.numpy.sum(tf.numpy.concatenate([product, x], axis=1), axis=1)
    average = tf.numpy.mean(x) + tf.numpy.sum(x * ones(2, 3)) * x.shape[1]
    twice = x * ones(2, 3) + tf.numpy.sum(x * ones(4, 3))
    with backend.session() as session:
        session.run(v.initializer)
        assert session.run(average, {x: ones(2, 3)}) == 19
        session.run(train, {x: ones(2, 3) / 2})
        assert session.run(total, {x: ones(2, 3)}).tolist() == [4.5, 4.5]
        for wrong in (ones(3, 3), ones(2, 4)):
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"'mul.*the size . as dimen"):
                session.run(train, {x: wrong})
        assert session.run(v).tolist() == [[0.5] * 3] * 2
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"cannot have in one step.* 2 is"):
            session.run(twice, {x: ones(2, 3)})


def test_gradients_flow_through_the_check_to_both_sides(backend: Backend) -> None:
    x, y, seed = open_(None, 2), open_(None, 2), open_(None, 2)
    with tf.device(backend.devices[-1]):
        z = x * y
    by_x, by_y = tf.gradients(z * z, [x, y])
    (mixed,) = tf.gradients(by_x, y)
    (seeded,) = tf.gradients(z, x, seed)
    checked = tf.ensure_shape(x, (2, None))
    (through,) = tf.gradients(checked * checked, x)
    assert checked.shape[0] == 2
    feeds = {x: [[1.0, 2.0]] * 3, y: [[3.0, 4.0]] * 3}
    with backend.session() as session:
        found = session.run([by_x, by_y, mixed], feeds)
        for value, row in zip(found, ([18, 64], [6, 32], [12, 32]), strict=True):
            assert value.tolist() == [row] * 3
        assert session.run(seeded, {**feeds, seed: ones(3, 2)}).tolist() == [[3, 4]] * 3
        with pytest.raises(tf.errors.InvalidArgumentError, match="equal sizes"):
            session.run(seeded, {**feeds, seed: ones(2, 2)})
        assert session.run(through, {x: ones(2, 2)}).tolist() == [[2, 2]] * 2
        with pytest.raises(tf.errors.InvalidArgumentError, match="'EnsureShape' needs the size 2"):
            session.run(through, {x: ones(3, 2)})


def test_two_queues_give_batches_of_one_size(backend: Backend) -> None:
    queues = [tf.FIFOQueue(9, [tf.float32], [(2,)], shared_name=f"equal_{i}") for i in range(2)]
    put = [queue.enqueue_many(ones(4, 2)) for queue in queues]
    product = tf.numpy.sum(queues[0].dequeue_up_to(3) * queues[1].dequeue_up_to(3), axis=1)
    closed = [queue.close() for queue in queues]
    with backend.session() as session:
        session.run(put)
        assert session.run(product).tolist() == [2, 2, 2]
        session.run(queues[0].enqueue_many(ones(1, 2)))
        session.run(closed)
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=r"2 \(dimension 0 of '.*'\) and 1 \(dimension 0 of '.*'\)",
        ):
            session.run(product)


def test_several_sizes_of_one_call_become_equal(backend: Backend) -> None:
    x, y, z = (open_(None, None) for _ in range(3))
    chosen = tf.numpy.where(x > 0, y, z)
    product = tf.numpy.matmul(x, y)
    labels = tf.placeholder(tf.int32, (None,))
    picked = tf.numpy.take_along_axis(x, labels[:, None], axis=1)
    function = tf.function(lambda a, b: jnp.sum(a * b, axis=0))(x, y)
    branch = tf.lax.cond(tf.constant(True), lambda a, b: a, lambda a, b: b, x, y)
    with backend.session() as session:
        feeds = {x: ones(2, 3), y: ones(2, 3) * 2, z: ones(2, 3)}
        assert session.run(chosen, feeds).tolist() == [[2] * 3] * 2
        assert session.run(product, {x: ones(2, 3), y: ones(3, 4)}).shape == (2, 4)
        assert session.run(picked, {x: ones(2, 3), labels: [0, 2]}).tolist() == [[1], [1]]
        assert session.run(function, feeds).tolist() == [4, 4, 4]
        assert session.run(branch, feeds).tolist() == [[1] * 3] * 2
        with pytest.raises(tf.errors.InvalidArgumentError, match="equal sizes"):
            session.run(chosen, {**feeds, z: ones(2, 2)})


def test_sizes_that_need_not_be_equal_stay_apart(backend: Backend) -> None:
    x, y = open_(None, None), open_(None, 3)
    joined = tf.numpy.concatenate([x, y], axis=1)
    longer = tf.numpy.concatenate([y, open_(None, 3)])

    @tf.function
    def compared(a: Any, b: Any) -> Any:
        return jnp.sum(a) + (a.shape[0] == b.shape[0])

    different = compared(x, y)
    assert tf.numpy.matmul(x, open_(None, 3)).shape[1] == 3
    assert longer.shape[1] == 3
    with backend.session() as session:
        assert session.run(joined, {x: ones(2, 5), y: ones(2, 3)}).shape == (2, 8)
        assert session.run(different, {x: ones(2, 2), y: ones(4, 3)}) == 4
        assert session.run(different, {x: ones(2, 2), y: ones(2, 3)}) == 4


def test_what_no_size_fits_is_refused_in_the_words_of_the_user() -> None:
    x, y = tf.placeholder(tf.float32, (None, 3), "x"), tf.placeholder(tf.float32, (None, 4), "y")
    with pytest.raises(TypeError, match=r"\(None, 3\), \(None, 4\): .*ensure_shape.*'x:0'.*'y:0'"):
        x * y
    with pytest.raises(TypeError, match=r"None.*ensure_shape"):
        tf.function(lambda a, b: a * b)(x, y)
    with pytest.raises(Exception, match=r"None.*ensure_shape"):
        tf.numpy.reshape(x, (-1, 4))


def test_a_size_that_is_computed_is_declared_by_ensure_shape(backend: Backend) -> None:
    x, y = open_(None, 3), open_(None, 3)
    doubled = tf.numpy.concatenate([x, x])
    total = tf.numpy.sum(doubled * tf.ensure_shape(y, (2 * x.shape[0], 3)))
    with backend.session() as session:
        assert session.run(total, {x: ones(2, 3), y: ones(4, 3)}) == 12
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(total, {x: ones(2, 3), y: ones(3, 3)})


def test_equal_sizes_pass_through_files_of_graphs(tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph:
        x, y = (tf.placeholder(tf.float32, (None, 2), name) for name in "xy")
        total = tf.numpy.sum(x * y)
        tf.train.export_meta_graph(tmp_path / "graph", graph)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.import_meta_graph(tmp_path / "graph")
        assert session.run(total.name, {"x:0": ones(3, 2), "y:0": ones(3, 2)}) == 6
        with pytest.raises(tf.errors.InvalidArgumentError, match="'mul' needs equal sizes"):
            session.run(total.name, {"x:0": ones(3, 2), "y:0": ones(2, 2)})


def test_the_check_is_no_instruction_and_no_operation() -> None:
    x, y = open_(None, 2), open_(None, 2)
    product = x * y
    assert [op.name for op in tf.get_default_graph().get_operations()] == [
        "Placeholder",
        "Placeholder_1",
        "mul",
    ]
    with tf.Session() as session:
        metadata = tf.RunMetadata()
        options = tf.RunOptions(output_partition_graphs=True)
        session.run(product, {x: ones(2, 2), y: ones(2, 2)}, options, metadata)
        (plan,) = metadata.partition_graphs
        assert plan.count(" run ") == 1
        assert " call " not in plan
        assert "; dimension 0 of 'Placeholder:0' is dimension 0 of 'Placeholder_1:0'" in plan


@pytest.mark.parametrize(
    ("shape", "reshaped", "fitting", "sizes"),
    [
        (
            [None],
            lambda x, y: tf.reshape(x, [2, 3]),
            (6,),
            "the size 6 as dimension 0 of 'x:0', got 7",
        ),
        (
            [None, 4],
            lambda x, y: tf.reshape(x, [6, 2]),
            (3, 4),
            "the size 3 as dimension 0 of 'x:0', got 7",
        ),
        ([None, 2], lambda x, y: tf.reshape(x, [2, tf.shape(y)[0]]), (2, 2), "equal sizes, got 2 "),
    ],
    ids=["vector", "matrix", "size_of_another"],
)
def test_a_reshape_says_which_size_it_needs(
    backend: Backend,
    shape: list[int | None],
    reshaped: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    fitting: tuple[int, ...],
    sizes: str,
) -> None:
    x = tf.placeholder(tf.float32, shape, name="x")
    y = tf.placeholder(tf.float32, [None], name="y")
    result = reshaped(x, y)
    (slope,) = tf.gradients(tf.reduce_sum(result * result), [x])
    value = np.arange(float(np.prod(fitting)), dtype=np.float32).reshape(fitting)
    with backend.session() as session:
        np.testing.assert_array_equal(session.run(slope, {x: value, y: [0, 0]}), 2 * value)
        message = rf"'Reshape' needs {sizes}.*test_equal_sizes.py:"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            session.run(result, {x: np.ones((7, *fitting[1:])), y: [0, 0]})
