"""`jflow.bind` with models of Keras, Equinox, Flax Linen and Haiku-like dicts, beside plain JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jflow as tf
from tests.clusters import in_process

X = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
Y = (X @ np.float32([[1], [-2], [0.5]])).astype(np.float32)
RATE, N = 0.05, 5


@pytest.fixture
def connection() -> Any:
    with in_process({"ps": 2, "worker": 1}) as backend, tf.connect(backend.target) as connection:
        yield connection


@pytest.fixture
def keras(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    return pytest.importorskip("keras")


@pytest.mark.usefixtures("connection")
def test_a_module_of_equinox_trains_as_with_equinox() -> None:
    eqx = pytest.importorskip("equinox")
    mlp = eqx.nn.MLP(3, 1, 8, 1, key=jax.random.key(0))
    state = tf.bind(mlp, "mlp", {"*weight": "/job:ps/task:0", "*": "/job:ps/task:1"})
    assert {*state.variables} == {
        f"layers/{i}/{name}" for i in (0, 1) for name in ("weight", "bias")
    }

    def loss(model: Any, x: Any, y: Any) -> Any:
        return jnp.mean((jax.vmap(model)(x) - y) ** 2)

    @tf.function
    def step(x: Any, y: Any) -> Any:
        value, slopes = tf.value_and_grad(loss)(state, x, y)
        state.assign_sub(jax.tree.map(lambda slope: RATE * slope, slopes))
        return value

    for _ in range(N):
        value, slopes = eqx.filter_value_and_grad(loss)(mlp, X, Y)
        mlp = eqx.apply_updates(mlp, jax.tree.map(lambda slope: -RATE * slope, slopes))
        np.testing.assert_allclose(step(X, Y), value, rtol=1e-5)
    found = state.value()
    assert found.activation is mlp.activation
    np.testing.assert_allclose(found.layers[0].weight, mlp.layers[0].weight, rtol=1e-5)


@pytest.mark.usefixtures("connection")
def test_parameters_of_linen_train_as_in_one_process() -> None:
    linen = pytest.importorskip("flax.linen")

    class Network(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            return linen.Dense(1)(linen.relu(linen.Dense(8)(x)))

    network = Network()
    variables = network.init(jax.random.key(0), X)
    transformation = optax.adam(RATE)
    state = tf.bind(variables, "linen", "/job:ps/task:0")
    moments = tf.bind(transformation.init(variables), "linen_adam", "/job:ps/task:0")
    assert "params/Dense_0/kernel" in state.variables
    assert "0/mu/params/Dense_0/kernel" in moments.variables

    def loss(variables: Any, x: Any, y: Any) -> Any:
        return jnp.mean((network.apply(variables, x) - y) ** 2)

    def update(slopes: Any, moments: Any, variables: Any) -> Any:
        updates, moments = transformation.update(slopes, moments, variables)
        return optax.apply_updates(variables, updates), moments

    @tf.function
    def step(x: Any, y: Any) -> Any:
        value, slopes = tf.value_and_grad(loss)(state, x, y)
        new, new_moments = update(slopes, moments.value(), state.value())
        state.assign(new)
        moments.assign(new_moments)
        return value

    own_moments = transformation.init(variables)
    for _ in range(N):
        value, slopes = jax.value_and_grad(loss)(variables, X, Y)
        variables, own_moments = update(slopes, own_moments, variables)
        np.testing.assert_allclose(step(X, Y), value, rtol=1e-4)


@pytest.mark.usefixtures("connection")
def test_dicts_as_of_haiku_have_the_names_of_modules() -> None:
    tree = {"mlp/~/linear_0": {"w": np.ones((3, 2)), "b": np.zeros(2)}}
    state = tf.bind(tree, "haiku")
    assert [v.name for v in state.variables.values()] == [
        "haiku/mlp/_/linear_0/b:0",
        "haiku/mlp/_/linear_0/w:0",
    ]
    assert {*state.value()} == {"mlp/~/linear_0"}


@pytest.mark.usefixtures("connection")
def test_a_model_of_keras_trains_as_with_stateless_calls(keras: Any) -> None:
    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input((3,)), layers.Dense(4), layers.BatchNormalization(), layers.Dense(1)]
    )
    optimizer = keras.optimizers.SGD(RATE, momentum=0.9)
    optimizer.build(model.trainable_variables)
    state = tf.bind(model, "keras", {"*kernel": "/job:ps/task:0", "*": "/job:ps/task:1"})
    moments = tf.bind(optimizer, "keras_sgd", "/job:ps/task:1")
    assert len(state.trainable_variables) == len(model.trainable_variables) == 6
    assert len(state.variables) == len(model.variables) == 8

    def loss(values: Any, x: Any, y: Any) -> Any:
        outputs, others = model.stateless_call(*values, x, training=True)
        return jnp.mean((outputs - y) ** 2), others

    def updated(slopes: Any, moments: Any, values: Any) -> Any:
        _, others = moments
        return optimizer.stateless_apply(others, slopes, values[0])

    @tf.function
    def step(x: Any, y: Any) -> Any:
        (value, others), slopes = tf.value_and_grad(loss, has_aux=True)(state, x, y)
        new, new_moments = updated(slopes, moments.value(), state.value())
        state.assign((new, others))
        moments.assign(([], new_moments))
        return value

    values = (
        [v.value for v in model.trainable_variables],
        [v.value for v in model.non_trainable_variables],
    )
    own_moments = [v.value for v in optimizer.variables]

    def own_step(values: Any, moments: Any) -> Any:
        def own_loss(trainable: Any) -> Any:
            return loss((trainable, values[1]), X, Y)

        (value, others), slopes = jax.value_and_grad(own_loss, has_aux=True)(values[0])
        new, moments = updated(slopes, ([], moments), values)
        return value, (new, others), moments

    for _ in range(N):
        value, values, own_moments = own_step(values, own_moments)
        np.testing.assert_allclose(step(X, Y), value, rtol=1e-4)
    for found, wanted in zip(jax.tree.leaves(state.value()), jax.tree.leaves(values), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.usefixtures("connection")
def test_names_of_keras_do_not_depend_on_what_else_was_made(keras: Any) -> None:
    def network() -> Any:
        layers = keras.layers
        named = layers.Dense(1, name="head_7")
        return keras.Sequential([layers.Input((3,)), layers.Dense(2), layers.Dense(2), named])

    first, second = network(), network()
    state = tf.bind(first, "network")
    again = tf.bind(second, "network")
    assert [*state.variables][::2] == [
        f"sequential/{layer}/kernel" for layer in ("dense", "dense_1", "head_7")
    ]
    np.testing.assert_array_equal(again.value()[0][0], first.weights[0])
    again.assign(second)
    np.testing.assert_array_equal(state.value()[0][0], second.weights[0])
    slopes = tuple(np.ones(v.shape, np.float32) for v in first.trainable_variables)
    state.assign_add(slopes)
    np.testing.assert_array_equal(state.value()[0][0], np.asarray(second.weights[0]) + 1)


@pytest.mark.usefixtures("connection")
def test_a_captured_model_of_keras_stays_refused(keras: Any) -> None:
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    tf.bind(model, "captured")
    with pytest.raises(TypeError, match="values of Keras variables would become constants"):
        tf.function(lambda x: model(x))(X)  # noqa: PLW0108 - as users write it
