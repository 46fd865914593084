"""Optax optimizers in graph code, compared with Optax itself."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jflow as tf
from jflow.training.optimizer import apply_optimizer
from tests.clusters import in_process

OPTIMIZERS = {
    "sgd": optax.sgd(0.1),
    "momentum": optax.sgd(0.1, momentum=0.9),
    "adam": optax.adam(0.05),
    "all gradients at once": optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(0.05)),
    "a schedule": optax.adam(optax.linear_schedule(0.1, 0.01, 3)),
    "a plateau": optax.inject_hyperparams(optax.sgd)(learning_rate=0.2),
}


def plain(optimizer: optax.GradientTransformation, params: Any, grads: list[Any]) -> Any:
    """Parameters after each of some gradients, by Optax alone."""
    params = jax.tree.map(jnp.asarray, params)
    state = optimizer.init(params)
    for grad in grads:
        updates, state = optimizer.update(grad, state, params)
        params = optax.apply_updates(params, updates)
    return params


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_it_does_what_optax_does(name: str) -> None:
    optimizer = OPTIMIZERS[name]
    start = [np.array([1.0, -2.0], np.float32), np.float32(3.0)]
    rng = np.random.default_rng(0)
    steps = [[rng.normal(size=2).astype(np.float32), np.float32(rng.normal())] for _ in range(5)]
    variables = [tf.Variable(value, name=name) for value, name in zip(start, "wb", strict=True)]
    grads = [tf.placeholder("float32", value.shape) for value in start]
    train = apply_optimizer(optimizer, grads, variables, "train")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for step in steps:
            session.run(train, dict(zip(grads, step, strict=True)))
        found = session.run(variables)
    for one, other in zip(found, plain(optimizer, start, steps), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_its_state_is_next_to_the_variables() -> None:
    with in_process({"ps": 2, "worker": 1}) as backend, tf.Graph().as_default():
        variables = []
        for task, name in enumerate("wb"):
            with tf.device(f"/job:ps/task:{task}"):
                variables.append(tf.Variable(np.zeros(2 + task, np.float32), name=name))
        with tf.device("/job:worker/task:0"):
            grads = [tf.constant(np.ones(variable.shape, np.float32)) for variable in variables]
            train = apply_optimizer(optax.adam(1.0), grads, variables, "train")
        slots = [v for v in tf.global_variables() if v not in variables]
        assert not any(slot.trainable for slot in slots)
        with backend.session() as session:
            session.run(tf.global_variables_initializer())
            session.run(train)
            for variable in variables:
                np.testing.assert_allclose(session.run(variable), -1.0, rtol=1e-5)
            placed = session.placement([train, *slots])
    assert {slot.name: placed[slot.to_tensor().op].task.index for slot in slots} == {
        "w/0_count:0": 0,
        "w/0_mu:0": 0,
        "w/0_nu:0": 0,
        "b/0_mu:0": 1,
        "b/0_nu:0": 1,
    }


def test_parameters_keep_their_type() -> None:
    variable = tf.Variable(jnp.ones(2, jnp.bfloat16))
    grad = tf.constant(jnp.ones(2, jnp.float32))
    train = apply_optimizer(optax.sgd(0.5), [grad], [variable], "train")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        value = session.run(variable)
    assert value.dtype == jnp.bfloat16
    assert value.astype(float).tolist() == [0.5, 0.5]
