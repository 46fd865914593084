"""Optimizers in graph code, compared with Optax itself."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jflow as tf
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
        updates, state = optimizer.update(jax.tree.map(jnp.asarray, grad), state, params)
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
    train = tf.train.Optimizer(optimizer).apply_gradients(zip(grads, variables, strict=True))
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
            optimizer = tf.train.Optimizer(optax.adam(1.0))
            train = optimizer.apply_gradients(zip(grads, variables, strict=True))
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
        "Optimizer/iterations:0": 0,
    }
    assert optimizer.get_slot_names() == ["mu", "nu"]
    assert optimizer.get_slot(variables[1], "mu").name == "b/0_mu:0"
    assert optimizer.get_slot(variables[1], "m") is None
    assert set(optimizer.variables()) == set(slots)


def test_parameters_keep_their_type() -> None:
    variable = tf.Variable(jnp.ones(2, jnp.bfloat16))
    grad = tf.constant(jnp.ones(2, jnp.float32))
    train = tf.train.Optimizer(optax.sgd(0.5)).apply_gradients([(grad, variable)])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        value = session.run(variable)
    assert value.dtype == jnp.bfloat16
    assert value.astype(float).tolist() == [0.5, 0.5]


def test_only_gradients_and_scalars_go_to_the_parameter_servers() -> None:
    with in_process({"ps": 2, "worker": 1}) as backend, tf.Graph().as_default():
        variables = []
        for task, name in enumerate("wb"):
            with tf.device(f"/job:ps/task:{task}"):
                variables.append(tf.Variable(np.ones((50, 50), np.float32), name=name))
        x = tf.placeholder("float32", (50, 50))
        with tf.device("/job:worker/task:0"):
            loss = tf.numpy.sum(tf.numpy.dot(x, variables[0] * variables[1]))
            transformation = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.1))
            train = tf.train.Optimizer(transformation).minimize(loss)
        with backend.session() as session:
            session.run(tf.global_variables_initializer())
            placed = session.placement(train, [x])
    crossing = {
        (tensor, placed[tensor.op].task.job, device)
        for op, device in placed.items()
        for tensor in op.inputs
        if tensor.op in placed and placed[tensor.op] != device
    }
    large = [
        (source, device.task.job)
        for tensor, source, device in crossing
        if np.prod(tensor.shape) > 1
    ]
    assert sorted(large) == [
        ("ps", "worker"),  # the variables
        ("ps", "worker"),
        ("worker", "ps"),  # their gradients
        ("worker", "ps"),
    ]


def test_the_learning_rate_may_be_a_tensor_a_variable_or_a_function() -> None:
    rate = tf.placeholder("float32", ())
    kept = tf.Variable(0.5)
    for given, feeds in ((0.5, {}), (rate, {rate: 0.5}), (kept, {}), (lambda: 0.5, {})):
        variable = tf.Variable([1.0, 2.0])
        optimizer = tf.train.GradientDescentOptimizer(given)
        train = optimizer.apply_gradients([(tf.constant([1.0, -1.0]), variable)])
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(train, feeds)
            assert session.run(variable).tolist() == [0.5, 2.5]
            assert session.run(optimizer.iterations) == 1


def test_minimize_trains_and_counts_steps() -> None:
    step = tf.train.get_or_create_global_step()
    w, fixed = tf.Variable([3.0, -2.0]), tf.Variable(1.0)
    loss = tf.numpy.sum(w * w)
    optimizer = tf.train.MomentumOptimizer(0.1, 0.5)
    train = optimizer.minimize(loss, global_step=step)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(30):
            session.run(train)
        assert session.run(loss) < 1e-3
        assert session.run(fixed) == 1.0
        assert tf.train.global_step(session, step) == session.run(optimizer.iterations) == 30


PRESETS = {
    "GradientDescent": (tf.train.GradientDescentOptimizer, optax.sgd),
    "Momentum": (lambda r: tf.train.MomentumOptimizer(r, 0.9), lambda r: optax.sgd(r, 0.9)),
    "Nesterov": (
        lambda r: tf.train.MomentumOptimizer(r, 0.9, use_nesterov=True),
        lambda r: optax.sgd(r, 0.9, nesterov=True),
    ),
    "Adam": (tf.train.AdamOptimizer, optax.adam),
    "Adagrad": (tf.train.AdagradOptimizer, lambda r: optax.adagrad(r, 0.1, 0.0)),
    "Adadelta": (
        tf.train.AdadeltaOptimizer,
        lambda r: optax.adadelta(r, rho=0.95, eps=1e-8),
    ),
    "RMSProp": (
        lambda r: tf.train.RMSPropOptimizer(r, momentum=0.5, centered=True),
        lambda r: optax.chain(
            optax.scale_by_stddev(0.9, 1e-10, 1.0), optax.trace(0.5), optax.scale(-r)
        ),
    ),
}


@pytest.mark.parametrize("name", PRESETS)
def test_the_names_of_tensorflow_are_optimizers_of_optax(name: str) -> None:
    make, peer = PRESETS[name]
    start = [np.array([1.0, -2.0], np.float32), np.float32(3.0)]
    steps = [[np.array([0.5, k], np.float32), np.float32(1.0)] for k in range(3)]
    variables = [tf.Variable(value) for value in start]
    grads = [tf.placeholder("float32", value.shape) for value in start]
    train = make(0.1).apply_gradients(zip(grads, variables, strict=True))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for step in steps:
            session.run(train, dict(zip(grads, step, strict=True)))
        found = session.run(variables)
    for one, other in zip(found, plain(peer(0.1), start, steps), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_what_cannot_be_trained_is_refused_where_it_is_written() -> None:
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    w = tf.Variable([1.0, 2.0], name="w")
    with pytest.raises(ValueError, match=r"depends on none of the variables to train \(w:0\)"):
        optimizer.minimize(tf.constant(1.0))
    with pytest.raises(ValueError, match="the gradient of at least one variable"):
        optimizer.apply_gradients([(None, w)])
    with pytest.raises(ValueError, match=r"'w:0' has shape \(3,\), expected \(2,\)"):
        optimizer.apply_gradients([(tf.constant([1.0, 2.0, 3.0]), w)])
    with pytest.raises(ValueError, match="'w:0' is listed twice"):
        optimizer.apply_gradients([(w.value(), w), (w.value(), w)])
    with pytest.raises(TypeError, match=r"optax.GradientTransformation.*got 0.1"):
        tf.train.Optimizer(0.1)
    with pytest.raises(ValueError, match="call apply_gradients first"):
        _ = optimizer.iterations
