"""Gradients of eager variables that are rows: found in a loss, and applied to these rows only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jflow as tf
from jflow.compiler.graph import owners
from jflow.launch.testing.backends import BackendUnderTest
from tests.training.optimizers.test_sparse_gradients import (
    START,
    STEPS,
    adagrad,
    adam,
    by_row,
    momentum,
)


@pytest.fixture
def connection() -> Iterator[tf.Connection]:
    with tf.connect() as connection:
        yield connection


def weighted(table: tf.Variable, at: Any, weight: Any) -> Any:
    return jnp.sum(tf.nn.embedding_lookup(table, at) * weight)


@pytest.mark.parametrize("is_one_function", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("make", "definition"),
    [
        pytest.param(
            lambda: tf.train.MomentumOptimizer(0.1, 0.9), momentum, marks=pytest.mark.long
        ),
        pytest.param(lambda: tf.train.AdagradOptimizer(0.1), adagrad, marks=pytest.mark.long),
        (lambda: tf.train.AdamOptimizer(0.1, epsilon=0.0), adam),
    ],
)
@pytest.mark.usefixtures("connection")
def test_rows_that_occur_are_updated_with_their_slots(
    make: Any, definition: Any, is_one_function: bool
) -> None:
    table, optimizer = tf.Variable(START), make()

    def step(at: Any, weight: Any) -> Any:
        return optimizer.minimize(lambda: weighted(table, at, weight), var_list=[table])

    step = tf.function(step) if is_one_function else step
    counts = [int(step(at, weight)) for at, weight in STEPS]
    assert counts == [1, 2, 3]
    np.testing.assert_allclose(table, by_row(definition), rtol=1e-4)


def test_rows_are_updated_on_every_backend(backend: BackendUnderTest) -> None:
    with tf.connect(backend.targets[0]), tf.device(backend.devices[-1]):
        table = tf.Variable(START, name="table")
        optimizer = tf.train.Optimizer(optax.adagrad(0.1))

        @tf.function
        def step(at: Any, weight: Any) -> Any:
            return optimizer.minimize(lambda: weighted(table, at, weight), var_list=[table])

        for at, weight in STEPS:
            step(at, weight)
        np.testing.assert_allclose(table, by_row(adagrad), rtol=1e-4)


LOSSES: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "take": (lambda v, at: jnp.sum(jnp.take(v.value(), at, axis=0) ** 2), True),
    "indexing": (lambda v, at: jnp.sum(v.value()[at] ** 2), True),
    "two lookups": (
        lambda v, at: jnp.sum(v.value()[at] * jnp.take(v.value(), at + 1, axis=0)),
        True,
    ),
    "ids of two dimensions": (
        lambda v, at: jnp.sum(tf.nn.embedding_lookup(v.value(), at.reshape(1, 3)) ** 2),
        True,
    ),
    "in a compiled function": (
        lambda v, at: jax.jit(lambda: jnp.sum(v.value()[at] ** 2))(),
        True,
    ),
    "clipped": (lambda v, at: jnp.sum(jnp.take(v.value(), at + 2, axis=0, mode="clip") ** 2), True),
    "a penalty": (lambda v, at: jnp.sum(v.value()[at]) + jnp.sum(v.value() ** 2), False),
    "a slice of columns": (lambda v, at: jnp.sum(v.value()[at, 0] ** 2), False),
    "the result itself": (lambda v, at: v.value()[0, 0], False),
}


class Plain:
    """An array that is used as a variable."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def value(self) -> Any:
        return self._value


@pytest.mark.usefixtures("connection")
def test_a_gradient_is_that_of_jax_and_rows_if_the_loss_uses_rows_only() -> None:
    table, other, unused = tf.Variable(START), tf.Variable(1.0), tf.Variable(2.0)
    at = jnp.asarray([1, 4, 1])
    optimizer = tf.train.Optimizer(optax.sgd(0.1))

    def gradient(loss: Any, is_rows: bool) -> Any:
        (grad, variable), (none, _) = optimizer.compute_gradients(
            lambda: loss(table, at) * other.value(), [table, unused]
        )
        assert variable is table
        assert none is None
        assert isinstance(grad, tf.IndexedSlices) == is_rows
        return grad.to_tensor() if is_rows else grad

    found = tf.function(lambda: {name: gradient(*case) for name, case in LOSSES.items()})()

    def of_array(loss: Any) -> Any:
        return jax.grad(lambda value: loss(Plain(value), at))(jnp.asarray(START))

    expected = jax.jit(lambda: {name: of_array(loss) for name, (loss, _) in LOSSES.items()})()
    for name in LOSSES:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6, err_msg=name)


@pytest.mark.usefixtures("connection")
def test_rows_can_be_given_and_only_they_and_their_slots_change() -> None:
    table, bias = tf.Variable(START), tf.Variable(1.0)
    optimizer = tf.train.Optimizer(optax.adam(0.1))
    values = np.array([[1, 2], [3, 4], [5, 6], [7, 8]], np.float32)
    grad = tf.IndexedSlices(values, [2, 5, 2, 9], table.shape)  # row 9 does not count
    assert repr(grad) == "<jflow.IndexedSlices 4 rows of shape=(6, 2) dtype=float32>"
    for _ in range(2):
        optimizer.apply_gradients([(grad, table), (2.0, bias)])
    assert (np.flatnonzero((table.numpy() != START).any(axis=1)) == [2, 5]).all()
    mu = optimizer.get_slot(table, "mu")
    assert mu is not None
    np.testing.assert_allclose(mu.numpy()[[2, 5]], [[1.14, 1.52], [0.57, 0.76]], rtol=1e-5)
    assert not mu.numpy()[[0, 1, 3, 4]].any()
    np.testing.assert_allclose(bias, 0.8, rtol=1e-3)


@pytest.mark.usefixtures("connection")
def test_what_is_not_kept_by_row_is_updated_as_a_whole() -> None:
    at, weight = STEPS[0]
    dense = np.zeros_like(START)
    np.add.at(dense, at, weight)
    limited = tf.Variable(START, constraint=lambda value: jnp.clip(value, -1.0, 1.0))
    optimizer = tf.train.Optimizer(optax.sgd(0.1))
    optimizer.minimize(lambda: weighted(limited, at, weight), var_list=[limited])
    np.testing.assert_allclose(limited, np.clip(START - 0.1 * dense, -1, 1), rtol=1e-5)
    factored, transformation = tf.Variable(START), optax.sm3(0.1)
    tf.train.Optimizer(transformation).minimize(
        lambda: weighted(factored, at, weight), var_list=[factored]
    )
    updates, _ = transformation.update(jnp.asarray(dense), transformation.init(jnp.asarray(START)))
    np.testing.assert_allclose(factored, START + updates, rtol=1e-5)


def test_updates_of_one_row_from_several_threads_are_not_lost(connection: tf.Connection) -> None:
    table = tf.Variable(np.zeros((1000, 2), np.float32))
    optimizer = tf.train.Optimizer(optax.sgd(1.0, momentum=0.0))

    @tf.function
    def step(at: Any) -> Any:
        return optimizer.minimize(lambda: -jnp.sum(table.value()[at]), var_list=[table])

    def run(at: Any) -> None:
        with owners.owned_by(connection):
            step(at)

    step(np.array([7, 8]))
    with ThreadPoolExecutor(4) as threads:
        pairs = [np.array([7, i]) for i in range(100, 140)]
        list(threads.map(run, pairs))
    assert table.numpy()[7].tolist() == [41.0, 41.0]
    assert table.numpy()[100:140].tolist() == [[1.0, 1.0]] * 40


@pytest.mark.usefixtures("connection")
def test_losses_that_cannot_be_differentiated_are_refused() -> None:
    table, optimizer = tf.Variable(START), tf.train.Optimizer(optax.sgd(0.1))
    with pytest.raises(TypeError, match=r"a loss that returns a scalar, got float32\[2\]"):
        optimizer.minimize(lambda: table.value()[0], var_list=[table])
    with pytest.raises(ValueError, match=r"reads .* inside a scan; read it before"):
        optimizer.minimize(
            lambda: jax.lax.scan(lambda c, _: (c + jnp.sum(table.value()), None), 0.0, None, 3)[0],
            var_list=[table],
        )
    with pytest.raises(ValueError, match="takes var_list, and no grad_loss"):
        optimizer.minimize(lambda: jnp.sum(table.value()))
    with tf.Graph().as_default():
        of_graph = tf.placeholder(tf.float32, ())
    with pytest.raises(TypeError, match="expected eager variables"):
        optimizer.compute_gradients(lambda: 1.0, [of_graph])
    with pytest.raises(ValueError, match="depends on none of the variables"):
        optimizer.minimize(lambda: jnp.sum(jnp.ones(3)), var_list=[table])
