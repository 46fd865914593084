"""Closures that write what depends on what they read: few of them run at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jflow as tf
from jflow.training.coordinator import ClusterCoordinator
from jflow.training.coordinator.closures import ClosureProgram


@pytest.fixture
def variables(coordinator: ClusterCoordinator) -> tuple[Any, Any]:
    with coordinator.strategy.scope():
        return tf.Variable(np.zeros(4, np.float32), name="w"), tf.Variable(0.0, name="count")


def test_steps_miss_fewer_updates_than_there_are_workers(
    coordinator: ClusterCoordinator, variables: tuple[Any, Any]
) -> None:
    weights, count = variables

    @tf.function
    def step(x: Any) -> Any:
        read = count.value()
        slope = jnp.sum(weights.value() * x) + 0.1
        weights.assign_sub(slope * x)
        return read, count.assign_add(1.0 + 0.0 * slope)

    x = np.full(4, 0.1, np.float32)
    steps = [coordinator.schedule(step, args=(x,)) for _ in range(300)]
    missed = [after - 1 - read for read, after in (one.fetch() for one in steps)]
    assert min(missed) == 0
    assert max(missed) <= 2 - 1
    assert coordinator.metrics().succeeded == 300


def uses() -> dict[str, tuple[bool, Callable[[Any, Any, Any], Any]]]:
    optimizer = tf.train.Optimizer(optax.adam(0.1))

    def minimized(weights: Any, count: Any, x: Any) -> Any:
        del count
        loss, slope = tf.value_and_grad(lambda w: jnp.sum((w - x) ** 2))(weights)
        optimizer.apply_gradients([(slope, weights)])
        return loss

    return {
        "a step of an optimizer": (True, minimized),
        "a gradient": (True, lambda w, _, x: w.assign_sub(0.1 * (w.value() - x))),
        "values of one for another, and back": (
            True,
            lambda w, n, x: (w.assign(x * n.value()), n.assign(jnp.sum(w.value()))),
        ),
        "a value that an update returns": (
            True,
            lambda w, _, x: w.assign(0.9 * w.update(lambda old: old) + x),
        ),
        "a count": (False, lambda _, n, x: n.assign_add(x[0])),
        "an update in place": (False, lambda w, _, x: w.update(lambda old, y: 0.9 * old + y, x)),
        "reads": (False, lambda w, n, x: x * w.value() + n.value()),
        "a read of what others write": (False, lambda w, n, _: n.assign(jnp.sum(w.value()))),
        "a read beside a write": (False, lambda w, _, x: (w.assign_add(x), w.value())[1]),
        "a count that is returned": (False, lambda _, n, x: 2 * n.assign_add(x[0])),
    }


@pytest.mark.parametrize("name", uses())
def test_only_writes_that_depend_on_what_is_written_need_the_latest_values(
    coordinator: ClusterCoordinator, variables: tuple[Any, Any], name: str
) -> None:
    expected, use = uses()[name]
    with coordinator.strategy.scope():
        traced = coordinator.strategy.connection.concrete(
            lambda x: use(*variables, x), (np.ones(4, np.float32),), "use"
        )
    program = ClosureProgram(0, traced)
    assert program.needs_latest is expected
    assert (program.batch_size == 1) >= expected
