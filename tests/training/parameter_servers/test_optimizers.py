"""Optimizers of eager variables: values as Optax gives them, state beside the variables, saves."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jflow as tf
from jflow.distribute.experimental.partitioners import FixedShardsPartitioner
from tests.training.parameter_servers.conftest import Strategy
from tests.training.parameter_servers.test_strategy import ps_of

Make = Callable[..., Strategy]

X = jax.device_put(np.float32(np.arange(15.0).reshape(3, 5) / 15))


def loss_of(params: Any) -> Any:
    return jnp.mean((X @ params[0] + params[1] - 1) ** 2)


def by_optax(transformation: optax.GradientTransformation, n_steps: int) -> list[Any]:
    params: Any = [jnp.zeros((5, 2)), jnp.zeros(())]
    state = transformation.init(params)
    for _ in range(n_steps):
        updates, state = transformation.update(jax.grad(loss_of)(params), state, params)
        params = optax.apply_updates(params, updates)
    return list(params)


def test_sharded_variables_are_trained_as_by_optax_and_saved_with_their_slots(
    make_strategy: Make, tmp_path: Path
) -> None:
    strategy = make_strategy(FixedShardsPartitioner(2))
    with strategy.scope():
        w, b = tf.Variable(np.zeros((5, 2), np.float32), name="w"), tf.Variable(0.0, name="b")
        optimizer = tf.train.Optimizer(optax.adam(0.1))

        @tf.function
        def step() -> Any:
            grads = tf.grad(loss_of)([w, b])
            return optimizer.apply_gradients(zip(grads, [w, b], strict=True))

        assert [int(step()) for _ in range(3)] == [1, 2, 3]
    expected = by_optax(optax.adam(0.1), 3)
    np.testing.assert_allclose(w, expected[0], rtol=1e-5)
    np.testing.assert_allclose(b, expected[1], rtol=1e-5)
    for shard in w.variables:
        mu = optimizer.get_slot(shard, "mu")
        assert mu is not None
        assert (ps_of(mu), mu.shape) == (ps_of(shard), shard.shape)
    tf.checkpoint.save(tmp_path / "c", {"model": [w, b], "optimizer": optimizer})
    check_it_goes_on(make_strategy(FixedShardsPartitioner(3)), tmp_path / "c")


def check_it_goes_on(strategy: Strategy, path: Path) -> None:
    """A program that was started again, with other shards, makes the fourth step."""
    with strategy.scope():
        w, b = tf.Variable(np.ones((5, 2), np.float32)), tf.Variable(1.0)
        optimizer = tf.train.Optimizer(optax.adam(0.1))
        optimizer.build([w, b])
        tf.checkpoint.restore(path, {"model": [w, b], "optimizer": optimizer})
        assert int(optimizer.iterations.numpy()) == 3
        optimizer.apply_gradients(zip(tf.grad(loss_of)([w, b]), [w, b], strict=True))
    expected = by_optax(optax.adam(0.1), 4)
    np.testing.assert_allclose(w, expected[0], rtol=1e-5)
    np.testing.assert_allclose(b, expected[1], rtol=1e-5)


def test_rows_of_sharded_variables_are_updated_as_those_of_one(make_strategy: Make) -> None:
    start = np.arange(10, dtype=np.float32).reshape(5, 2)
    ids = [np.array([0, 3, 0]), np.array([4, 1, 4]), np.array([3, 3, 2])]
    tables = []
    for n_shards in (1, 3):
        strategy = make_strategy(FixedShardsPartitioner(n_shards))
        with strategy.scope():
            table = tf.Variable(start, name=f"of_{n_shards}")
            optimizer = tf.train.Optimizer(optax.adam(0.1))

            @tf.function
            def step(ids: Any, table: Any = table, optimizer: Any = optimizer) -> Any:
                def loss() -> Any:
                    return jnp.sum(tf.nn.embedding_lookup(table, ids) ** 2)

                pairs = optimizer.compute_gradients(loss, [table])
                assert isinstance(pairs[0][0], tf.IndexedSlices)
                return optimizer.apply_gradients(pairs)

            assert step(ids[0]) == 1
            untouched = [np.asarray(table)[i] for i in (1, 2, 4)]
            np.testing.assert_array_equal(untouched, start[[1, 2, 4]])
            for more in ids[1:]:
                step(more)
            tables.append(np.asarray(table))
    np.testing.assert_allclose(tables[1], tables[0], rtol=1e-6)


def test_updates_from_several_threads_are_not_lost(strategy: Strategy) -> None:
    with strategy.scope():
        totals = [tf.Variable(np.zeros(3, np.float32)) for _ in range(2)]
        # The second variable's update waits for the count of steps beside the first one.
        by_count = optax.scale_by_schedule(lambda count: jnp.where(count < 0, 0.0, -1.0))
        optimizer = tf.train.Optimizer(by_count, learning_rate=1.0)
    assert [*map(ps_of, totals)] == ["ps:0", "ps:1"]

    @tf.function
    def step() -> Any:
        return optimizer.apply_gradients([(jnp.ones(3), total) for total in totals])

    def run(n: int) -> None:
        with strategy.scope():
            for _ in range(n):
                step()

    run(1)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(run, [10] * 4))
    assert [total.numpy().tolist() for total in totals] == [[41.0] * 3] * 2
    assert int(optimizer.iterations.numpy()) == 41


def test_a_constraint_and_a_learning_rate_in_a_variable_are_used() -> None:
    with tf.connect():
        rate = tf.Variable(0.5)
        w = tf.Variable(1.0, constraint=lambda value: jnp.maximum(value, 0.2))
        steps = tf.Variable(0)
        optimizer = tf.train.Optimizer(optax.identity(), learning_rate=rate)
        optimizer.apply_gradients([(1.0, w), (None, steps)], steps)
        assert (float(w), int(steps)) == (0.5, 1)
        rate.assign(2.0)
        optimizer.apply_gradients([(1.0, w)])
        assert float(w) == pytest.approx(0.2)


def test_what_an_optimizer_cannot_update_is_refused() -> None:
    graph_variable = tf.Variable(1.0)
    with tf.connect():
        w, v = tf.Variable(1.0), tf.Variable([1.0])
        optimizer = tf.train.Optimizer(optax.sgd(0.1))
        with pytest.raises(ValueError, match="at least one variable"):
            optimizer.apply_gradients([(None, w)])
        with pytest.raises(ValueError, match="listed twice"):
            optimizer.apply_gradients([(1.0, w), (1.0, w)])
        with pytest.raises(ValueError, match=r"has shape \(2,\), expected \(1,\)"):
            optimizer.apply_gradients([(np.ones(2), v)])
        with pytest.raises(TypeError, match="all of one graph or all eager"):
            optimizer.apply_gradients([(1.0, w), (1.0, graph_variable)])
        with pytest.raises(TypeError, match="expected eager variables"):
            optimizer.build([graph_variable])
        optimizer.build([w])


def test_slots_belong_to_optimizer_and_variable_whichever_are_updated_together(
    strategy: Strategy, tmp_path: Path
) -> None:
    """A variable that is left out keeps its slots; the count is that of all updates."""
    with strategy.scope():
        variables = [tf.Variable(np.ones(2, np.float32), name=name) for name in "abc"]
        optimizer = tf.train.Optimizer(optax.adam(0.1))
        rounds = [[0, 1], [0], [1, 0], [2], [0, 1, 2], [2, 1]]
        for number, which in enumerate(rounds):
            grads = [np.float32([1.0, -2.0]) * (number + 1)] * len(which)
            pairs = zip(grads, (variables[i] for i in which), strict=True)
            assert int(optimizer.apply_gradients(pairs)) == number + 1
        for i, variable in enumerate(variables):
            value, mu, nu = np.ones(2), np.zeros(2), np.zeros(2)
            for number, which in enumerate(rounds):
                if i in which:
                    slope, count = np.array([1.0, -2.0]) * (number + 1), number + 1
                    mu, nu = 0.9 * mu + 0.1 * slope, 0.999 * nu + 0.001 * slope**2
                    scale = np.sqrt(nu / (1 - 0.999**count)) + 1e-8
                    value = value - 0.1 * mu / (1 - 0.9**count) / scale
            np.testing.assert_allclose(variable.numpy(), value, rtol=1e-4)
            np.testing.assert_allclose(optimizer.get_slot(variable, "mu").numpy(), mu, rtol=1e-4)
        assert len(optimizer.variables()) == 1 + 3 * 2 + 1  # the counts of Adam and of updates
        tf.checkpoint.save(tmp_path / "all", {"model": variables, "optimizer": optimizer})
        before = [each.numpy() for each in optimizer.variables()]
        again = tf.train.Optimizer(optax.adam(0.1), name="again")
        again.build(variables)
        tf.checkpoint.restore(tmp_path / "all", {"model": variables, "optimizer": again})
        slots = [again.get_slot(variables[2], name).numpy() for name in ("mu", "nu")]
        wanted = [optimizer.get_slot(variables[2], name).numpy() for name in ("mu", "nu")]
        np.testing.assert_array_equal(slots, wanted)
        assert len(before) == len(again.variables())


def test_workers_that_update_different_variables_share_one_count(strategy: Strategy) -> None:
    with tf.ClusterCoordinator(strategy) as coordinator:
        with strategy.scope():
            variables = [tf.Variable(np.zeros(n, np.float32)) for n in (3, 4)]
            optimizer = tf.train.Optimizer(optax.adam(0.1))
            optimizer.build(variables)

        def step_of(variable: Any) -> Any:
            def step(x: Any) -> Any:
                grad = tf.grad(lambda value: jnp.sum(value * x + 0 * value**2))(variable)
                return optimizer.apply_gradients([(grad, variable)])

            return tf.function(step)

        steps = [step_of(variable) for variable in variables]
        for number in range(300):
            coordinator.schedule(steps[number % 2], args=(1.0,), worker=number % 2)
        coordinator.join()
        assert optimizer.iterations.numpy() == 300
        (count,) = (v for v in optimizer.variables() if "count" in v.name)
        assert count.numpy() == 300


def skipping_infinite(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """Updates nothing where a gradient is infinite: a branch over all variables, as loss scales."""

    def update(grads: Any, state: Any, params: Any = None) -> Any:
        inner_state, scale = state
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(grads)]))

        def apply() -> Any:
            scaled = jax.tree.map(lambda g: g / scale, grads)
            updates, new = inner.update(scaled, inner_state, params)
            return updates, (new, scale)

        def skip() -> Any:
            return jax.tree.map(jnp.zeros_like, grads), (inner_state, 0.5 * scale)

        return jax.lax.cond(finite, apply, skip)

    return optax.GradientTransformation(lambda params: (inner.init(params), jnp.ones(())), update)


def late(grads: Any, state: Any, params: Any = None) -> Any:
    """Scales values of the variables by what is computed of all gradients."""
    norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(grads)))
    decay = jax.tree.map(lambda p, g: 0 * p - g, params, grads)
    return jax.tree.map(lambda d: d * jnp.minimum(1.0, norm), decay), state


@pytest.mark.parametrize(
    "transformation",
    [
        skipping_infinite(optax.sgd(1.0)),
        optax.GradientTransformation(lambda _: (), late),
        optax.apply_if_finite(optax.sgd(1.0), 3),
    ],
    ids=["a branch", "a late factor", "apply_if_finite"],
)
def test_no_update_of_workers_at_once_is_lost(
    strategy: Strategy, transformation: optax.GradientTransformation
) -> None:
    with tf.ClusterCoordinator(strategy) as coordinator:
        with strategy.scope():
            variables = [tf.Variable(np.zeros(n, np.float32)) for n in (3, 4)]
            optimizer = tf.train.Optimizer(transformation)
            optimizer.build(variables)

        @tf.function
        def step(x: Any) -> Any:
            def loss(values: Any) -> Any:
                return sum(jnp.sum(value) * x + 0 * jnp.sum(value**2) for value in values)

            grads = tf.grad(loss)(variables)
            return optimizer.apply_gradients(zip(grads, variables, strict=True))

        for _ in range(400):
            coordinator.schedule(step, args=(1.0,))
        coordinator.join()
        for variable in variables:
            np.testing.assert_array_equal(variable.numpy(), -400.0)
