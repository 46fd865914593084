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

    @jax.jit
    def step(params: Any, state: Any, grad: Any) -> Any:
        updates, state = optimizer.update(grad, state, params)
        return optax.apply_updates(params, updates), state

    params = jax.tree.map(jnp.asarray, params)
    state = optimizer.init(params)
    for grad in grads:
        params, state = step(params, state, jax.tree.map(jnp.asarray, grad))
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
        assert set(optimizer.variables()) == set(slots)
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
    assert optimizer.get_slot_names() == ["mu", "nu"]
    assert optimizer.get_slot(variables[1], "mu").name == "b/0_mu:0"
    assert optimizer.get_slot(variables[1], "m") is None


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


def _compiled(transformation: optax.GradientTransformation) -> optax.GradientTransformation:
    """One whose whole update is one call."""
    return optax.GradientTransformation(transformation.init, jax.jit(transformation.update))


@pytest.mark.parametrize("form", [lambda x: x, _compiled], ids=["plain", "under jit"])
def test_only_gradients_and_scalars_go_to_the_parameter_servers(form: Any) -> None:
    with in_process({"ps": 2, "worker": 1}) as backend, tf.Graph().as_default():
        variables = []
        for task, name in enumerate("wb"):
            with tf.device(f"/job:ps/task:{task}"):
                variables.append(tf.Variable(np.ones((50, 50), np.float32), name=name))
        x = tf.placeholder("float32", (50, 50))
        with tf.device("/job:worker/task:0"):
            loss = tf.numpy.sum(tf.numpy.dot(x, variables[0] * variables[1]))
            transformation = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.1))
            train = tf.train.Optimizer(form(transformation)).minimize(loss)
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
        assert tf.train.global_step(session, step) == 30


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
    with pytest.raises(ValueError, match="gate_gradients must be"):
        optimizer.compute_gradients(w.value(), gate_gradients=3)
    with pytest.raises(ValueError, match="expected one of AggregationMethod"):
        optimizer.minimize(tf.numpy.sum(w), aggregation_method=7)


def test_an_optimizer_has_its_state_once_a_graph() -> None:
    optimizer = tf.train.AdamOptimizer(0.1)
    counts = []
    for value in (1.0, 2.0):
        with tf.Graph().as_default():
            v, w = tf.Variable(value, name="v"), tf.Variable(value, name="w")
            optimizer.minimize(v * v, var_list=[v])
            both = optimizer.minimize(v * w)
            names = [slot.name for slot in optimizer.variables()]
            assert names == ["v/count:0", "v/Adam:0", "v/Adam_1:0", "w/Adam:0", "w/Adam_1:0"]
            assert {x.name for x in tf.global_variables()} == {"v:0", "w:0", *names}
            assert tf.get_collection(tf.GraphKeys.TRAIN_OP)[-1] is both
            counts.append(optimizer.iterations)
            with tf.Session() as session:
                session.run(tf.global_variables_initializer())
                session.run(both)
                assert session.run(optimizer.iterations) == 1
    assert counts[0] is not counts[1]


def test_an_optimizer_with_state_by_index_has_it_once_for_a_variable() -> None:
    v = tf.Variable(np.ones((200, 150), np.float32), name="v")
    w = tf.Variable(np.ones((150, 200), np.float32), name="w")
    optimizer = tf.train.Optimizer(optax.adafactor(0.1))
    optimizer.minimize(tf.numpy.sum(v * v), var_list=[v])
    n_before = len(optimizer.variables())
    train = optimizer.minimize(tf.numpy.sum(w @ v), var_list=[w, v])
    assert len(optimizer.variables()) < 2 * n_before
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        assert np.all(session.run(v) < 1)


def test_a_checkpoint_without_the_rate_in_rmsprops_momentum_is_refused(tmp_path) -> None:
    path = str(tmp_path / "model")
    with tf.Graph().as_default():
        v = tf.Variable([1.0], name="v")
        before = optax.chain(optax.scale_by_rms(0.9, 1.0, 1.0), optax.trace(0.9))
        tf.train.Optimizer(before, 0.1, "RMSProp").minimize(tf.numpy.sum(v * v))
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            tf.train.Saver().save(session, path)
    with tf.Graph().as_default():
        v = tf.Variable([1.0], name="v")
        optimizer = tf.train.RMSPropOptimizer(0.1, momentum=0.9, epsilon=1.0)
        optimizer.minimize(tf.numpy.sum(v * v))
        assert optimizer.get_slot(v, "momentum").name == "v/RMSProp_1:0"
        with tf.Session() as session, pytest.raises(tf.errors.NotFoundError, match="v/RMSProp_1"):
            tf.train.Saver().restore(session, path)


def test_a_gradient_descent_of_before_is_restored_without_its_count(tmp_path) -> None:
    path = str(tmp_path / "model")
    with tf.Graph().as_default():
        v = tf.Variable([1.0], name="v")
        tf.Variable(np.int32(7), trainable=False, name="GradientDescent/iterations")
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            tf.train.Saver().save(session, path)
    with tf.Graph().as_default():
        v = tf.Variable([2.0], name="v")
        tf.train.GradientDescentOptimizer(0.1).minimize(tf.numpy.sum(v * v))
        assert tf.global_variables() == [v]
        with tf.Session() as session:
            tf.train.Saver().restore(session, path)
            assert session.run(v) == 1.0


def test_a_hyperparameter_of_an_eager_optimizer_may_be_a_variable() -> None:
    with tf.connect():
        v, momentum = tf.Variable(jnp.zeros(2), name="v"), tf.Variable(0.5, name="momentum")
        optimizer = tf.train.MomentumOptimizer(1.0, momentum)

        @tf.function
        def train():
            return optimizer.apply_gradients([(jnp.ones(2), v)])

        train()
        momentum.assign(2.0)
        train()
        np.testing.assert_allclose(v.numpy(), -4.0)


def test_hyperparameters_do_not_change_the_dtype_of_slots() -> None:
    variable = tf.Variable(jnp.ones(2, jnp.bfloat16))
    optimizer = tf.train.MomentumOptimizer(tf.constant(0.5), tf.constant(0.5))
    train = optimizer.apply_gradients([(tf.constant(jnp.ones(2, jnp.bfloat16)), variable)])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        assert session.run(variable).dtype == jnp.bfloat16


def test_the_state_is_saved_in_its_own_order_whatever_the_slots_are_called() -> None:
    """Checkpoints of optimizers know the variables by their places."""
    w = tf.Variable(jnp.ones(2), name="w")
    centered = tf.train.RMSPropOptimizer(0.1, centered=True)
    averaging = tf.train.AdagradDAOptimizer(0.1, tf.train.get_or_create_global_step())
    for optimizer in (centered, averaging):
        optimizer.minimize(tf.reduce_sum(w * w))
    # The mean of the gradients is before that of their squares in Optax' state.
    assert [v.op.name for v in centered.variables()] == ["w/RMSProp_1", "w/RMSProp"]
    assert centered.get_slot(w, "mg").op.name == "w/RMSProp_1"
    names = [v.op.name for v in averaging.variables() if v.op.name.startswith("w/")]
    fields = [averaging.get_slot(w, name).op.name for name in averaging.get_slot_names()]
    assert sorted(names) == sorted(fields)


def test_a_slot_that_only_tensorflow_makes_keeps_its_name_free() -> None:
    """TensorFlow's RMSProp has a slot of momentum also without momentum."""
    w = tf.Variable(jnp.ones(2), name="w")
    first, second = tf.train.RMSPropOptimizer(0.1), tf.train.RMSPropOptimizer(0.1, momentum=0.5)
    for optimizer in (first, second):
        optimizer.minimize(tf.reduce_sum(w * w))
    assert first.get_slot(w, "rms").op.name == "w/RMSProp"
    assert second.get_slot(w, "rms").op.name == "w/RMSProp_2"
    assert second.get_slot(w, "momentum").op.name == "w/RMSProp_3"
