"""Gradients of gathers, which are rows, and optimizers that update only these rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jflow as tf
from jflow.training.optimizers.rows import sum_rows
from tests.clusters import Backend, in_process

START = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
STEPS = [
    (np.array([1, 4, 1], np.int32), np.array([[1, 2], [3, 4], [5, 6]], np.float32)),
    (np.array([4, 0, 4], np.int32), np.array([[-1, 0.5], [2, 2], [1, 1]], np.float32)),
    (np.array([1, 1, 1], np.int32), np.array([[1, 1], [0, 2], [3, -1]], np.float32)),
]


def trained(transformation: Any, n: int | None = 3) -> tuple[np.ndarray, Any]:
    """The table after all steps, and the type of its gradient."""
    table = tf.Variable(START, name="table")
    data = tf.placeholder(tf.float32, (n, 3))
    indices = tf.numpy.astype(data[:, 0], tf.int32)
    loss = tf.numpy.sum(tf.numpy.take(table, indices, axis=0) * data[:, 1:])
    optimizer = (
        transformation
        if isinstance(transformation, tf.train.Optimizer)
        else tf.train.Optimizer(transformation)
    )
    pairs = optimizer.compute_gradients(loss)
    train = optimizer.apply_gradients(pairs)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for at, weight in STEPS:
            session.run(train, {data: np.column_stack([at, weight])})
        return session.run(table), pairs[0][0]


def by_row(update: Callable[[dict[str, np.ndarray], np.ndarray, int], np.ndarray]) -> np.ndarray:
    """The definition: of each row that occurs, the summed gradient updates it and its state."""
    table = START.astype(np.float64)
    state = [dict[str, Any]() for _ in table]
    for count, (at, weight) in enumerate(STEPS, 1):
        for row in sorted(set(at.tolist())):
            table[row] += update(state[row], weight[at == row].sum(axis=0), count)
    return table


def momentum(state: dict[str, Any], grad: np.ndarray, _: int) -> np.ndarray:
    state["m"] = 0.9 * state.get("m", 0.0) + grad
    return -0.1 * state["m"]


def adagrad(state: dict[str, Any], grad: np.ndarray, _: int) -> np.ndarray:
    state["s"] = state.get("s", 0.1) + grad**2
    return -0.1 * grad / np.sqrt(state["s"])


def adam(state: dict[str, Any], grad: np.ndarray, count: int) -> np.ndarray:
    state["m"] = 0.9 * state.get("m", 0.0) + 0.1 * grad
    state["v"] = 0.999 * state.get("v", 0.0) + 0.001 * grad**2
    scale = np.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    return -0.1 * scale * state["m"] / np.sqrt(state["v"])


@pytest.mark.parametrize("n", [3, None])
@pytest.mark.parametrize(
    ("make", "definition"),
    [
        (lambda: tf.train.MomentumOptimizer(0.1, 0.9), momentum),
        (lambda: tf.train.AdagradOptimizer(0.1), adagrad),
        (lambda: tf.train.AdamOptimizer(0.1, epsilon=0.0), adam),
    ],
)
def test_rows_that_occur_are_updated_with_their_slots(
    make: Any, definition: Any, n: int | None
) -> None:
    found, grad = trained(make(), n)
    assert isinstance(grad, tf.IndexedSlices)
    np.testing.assert_allclose(found, by_row(definition), rtol=1e-4)


def densely(optimizer: optax.GradientTransformation) -> Any:
    """The table after the steps, of which Optax gets the whole gradient."""

    @jax.jit
    def step(params: Any, state: Any, at: Any, weight: Any) -> Any:
        dense = jnp.zeros_like(params).at[at].add(weight)
        updates, state = optimizer.update(dense, state, params)
        return optax.apply_updates(params, updates), state

    params, state = jnp.asarray(START), optimizer.init(jnp.asarray(START))
    for at, weight in STEPS:
        params, state = step(params, state, jnp.asarray(at), jnp.asarray(weight))
    return params


@pytest.mark.parametrize("optimizer", [optax.sgd(0.1), optax.adagrad(0.1)])
def test_where_zeros_change_nothing_the_rows_are_those_of_the_dense_update(optimizer: Any) -> None:
    found, _ = trained(optimizer)
    np.testing.assert_allclose(found, densely(optimizer), rtol=1e-5)


def test_a_state_that_is_not_kept_by_element_updates_the_whole_variable() -> None:
    transformation = optax.chain(
        optax.scale_by_factored_rms(min_dim_size_to_factor=2), optax.sgd(1)
    )
    found, grad = trained(transformation)
    assert isinstance(grad, tf.IndexedSlices)
    np.testing.assert_allclose(found, densely(transformation), rtol=1e-4)


def gradient(loss_of: Callable[[Any, Any], Any]) -> Any:
    table = tf.Variable(START)
    indices = tf.placeholder(tf.int32, (3,), name="indices")
    loss = loss_of(table, indices)
    ((grad, _),) = tf.train.GradientDescentOptimizer(0.1).compute_gradients(loss)
    return grad


DENSE = {
    "the whole variable beside rows": lambda v, i: tf.numpy.sum(v[i]) + tf.numpy.sum(v * v),
    "columns": lambda v, i: tf.numpy.sum(tf.numpy.take(v, i % 2, axis=1)),
    "elements": lambda v, i: tf.numpy.sum(v[i, 0]),
    "a slice": lambda v, i: tf.numpy.sum(v[1:3]),
    "rows of a product": lambda v, i: tf.numpy.sum((v * 2.0)[i]),
}
BY_ROW = {
    "take": lambda v, i: tf.numpy.sum(tf.numpy.take(v, i, axis=0) ** 2),
    "indexing": lambda v, i: tf.numpy.sum(v[i] ** 2),
    "indexing by a matrix": lambda v, i: tf.numpy.sum(v[tf.numpy.stack([i, i])] ** 2),
    "two reads": lambda v, i: tf.numpy.sum(v[i] ** 2) + tf.numpy.sum(v.read_value()[i + 1]),
    "negative indices": lambda v, i: tf.numpy.sum(v[-i] ** 2),
    "indices that clip": lambda v, i: tf.numpy.sum(tf.numpy.take(v, i * 5, 0, mode="clip") ** 2),
    "indices that fill": lambda v, i: tf.numpy.nansum(tf.numpy.take(v, i * 5, axis=0) ** 2),
}


@pytest.mark.parametrize("name", [*DENSE, *BY_ROW])
def test_a_gradient_is_rows_if_the_loss_uses_rows_only(name: str) -> None:
    loss_of = (DENSE | BY_ROW)[name]
    grad = gradient(loss_of)
    assert isinstance(grad, tf.IndexedSlices) == (name in BY_ROW)
    (wanted,) = tf.gradients(loss_of(*_again()), _again.variables[-1])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        feeds = {"indices:0": [1, 4, 1], "again:0": [1, 4, 1]}
        one, other = session.run([tf.identity(grad), wanted], feeds)
    np.testing.assert_allclose(one, other, rtol=1e-6)


def _again() -> tuple[Any, Any]:
    """The same arguments of a loss once more, in the same graph."""
    variable = tf.Variable(START)
    _again.variables = [variable]  # type: ignore[attr-defined]
    try:
        return variable, tf.get_default_graph().get_tensor_by_name("again:0")
    except KeyError:
        return variable, tf.placeholder(tf.int32, (3,), name="again")


def test_only_rows_go_to_the_parameter_server_and_back() -> None:
    n_rows = 1000
    with in_process({"ps": 1, "worker": 1}) as backend, tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            table = tf.Variable(np.ones((n_rows, 8), np.float32), name="table")
        with tf.device("/job:worker/task:0"):
            indices = tf.placeholder(tf.int32, (5,))
            with tf.colocate_with(table, ignore_existing=True):
                rows = tf.numpy.take(table, indices, axis=0)
            loss = tf.numpy.sum(rows**2)
            train = tf.train.AdamOptimizer(0.1).minimize(loss)
        with backend.session() as session:
            session.run(tf.global_variables_initializer())
            placed = session.placement(train, [indices])
            session.run(train, {indices: [3, 3, 7, 999, 0]})
            changed = np.flatnonzero((session.run(table) != 1).any(axis=1))
    assert changed.tolist() == [0, 3, 7, 999]
    crossing = {
        tensor
        for op, device in placed.items()
        for tensor in op.inputs
        if tensor.op in placed and placed[tensor.op] != device
    }
    sizes = sorted(int(np.prod(tensor.shape)) for tensor in crossing)
    assert sizes[-2:] == [5 * 8, 5 * 8]  # the rows, and their gradients


def test_sparse_gradients_train_on_every_backend(backend: Backend) -> None:
    with tf.Graph().as_default():
        table = tf.Variable(START)
        indices = tf.placeholder(tf.int32, (None,))
        loss = tf.numpy.sum(tf.numpy.take(table, indices, axis=0) ** 2)
        train = tf.train.MomentumOptimizer(0.1, 0.5).minimize(loss)
        with backend.session() as session:
            session.run(tf.global_variables_initializer())
            for at in ([1, 1, 2], [2], [5, 2, 0, 1]):
                session.run(train, {indices: at})
            found = session.run(table)
    np.testing.assert_array_equal(found[[3, 4]], START[[3, 4]])
    assert (np.abs(found[[0, 1, 2, 5]]) < np.abs(START[[0, 1, 2, 5]])).all()


def test_a_global_norm_limits_rows_too() -> None:
    grad = gradient(lambda v, i: tf.numpy.sum(v[i]) * 10)
    (limited,), norm = tf.clip_by_global_norm([grad], 1.0)
    assert isinstance(limited, tf.IndexedSlices)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        found, size = session.run([limited.values, norm], {"indices:0": [0, 1, 2]})
    np.testing.assert_allclose(np.linalg.norm(found), 1.0, rtol=1e-5)
    np.testing.assert_allclose(size, 10 * np.sqrt(6), rtol=1e-5)


def test_replicas_in_step_take_rows_as_whole_gradients() -> None:
    table = tf.Variable(START)
    step = tf.train.get_or_create_global_step()
    loss = tf.numpy.sum(table[tf.constant([1, 1])])
    optimizer = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(1.0), 1)
    train = optimizer.apply_gradients(optimizer.compute_gradients(loss), step)
    runner = optimizer.get_chief_queue_runner()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run([optimizer.chief_init_op, optimizer.get_init_tokens_op()])
        coordinator = tf.train.Coordinator()
        runner.create_threads(session, coordinator, daemon=True, start=True)
        session.run(train)
        session.run(train)
        np.testing.assert_allclose(session.run(table)[1], START[1] - 2, rtol=1e-6)
        coordinator.request_stop()


def test_a_constraint_is_of_the_whole_variable() -> None:
    table = tf.Variable(START)
    table.constraint = lambda value: tf.numpy.maximum(value, 0.0)
    loss = tf.numpy.sum(table[tf.constant([1, 4])])
    train = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    wanted = START.copy()
    wanted[[1, 4]] -= 0.5
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        np.testing.assert_allclose(session.run(table), np.maximum(wanted, 0), rtol=1e-6)


@pytest.mark.parametrize("indices", [[], [3], [2, 2], [4, 0, 4, -1, 9, 0]])
def test_rows_of_one_index_are_summed(indices: list[int]) -> None:
    n_rows = 5
    values = np.arange(2.0 * len(indices), dtype=np.float32).reshape(-1, 2)
    unique, sums = sum_rows(jnp.asarray(values), jnp.asarray(indices, jnp.int32), n_rows)
    assert sums.shape == values.shape
    summed, expected = np.zeros((2, n_rows, 2), np.float32)
    for index, row in zip(unique.tolist(), np.asarray(sums), strict=True):
        if index < n_rows:
            summed[index] += row
    for index, row in zip(indices, values, strict=True):
        if 0 <= index < n_rows:
            expected[index] += row
    np.testing.assert_array_equal(summed, expected)
    inside = [index for index in unique.tolist() if index < n_rows]
    assert sorted({*inside}) == sorted(inside)
