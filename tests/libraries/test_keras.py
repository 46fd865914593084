"""Keras 3 with JAX as its backend: functions that capture its objects use no state of theirs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import jflow as tf

X = np.float32([[1, 2, 3], [0, -1, 1]])


@pytest.fixture
def keras(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    return pytest.importorskip("keras")


@pytest.fixture
def connection() -> Iterator[tf.Connection]:
    with tf.connect() as connection:
        yield connection


@pytest.fixture
def model(keras: Any) -> Any:
    normalized = keras.layers.BatchNormalization()
    return keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2), normalized])


@pytest.mark.usefixtures("connection")
def test_a_model_that_is_captured_is_refused_with_what_to_do(keras: Any, model: Any) -> None:
    kernel, mean = model.weights[0], keras.metrics.Mean()
    rate = keras.optimizers.SGD().learning_rate
    uses = {
        # What Keras calls the model depends on how its version wraps the method.
        r"reads.*'\w+' \(Sequential\).*stateless_call": model.call,
        r"reads.*'kernel'": lambda x: x @ kernel.value,
        r"reads.*'rate'": lambda x: x * rate.value,
        r"of '\w+' \(Mean\)": mean.update_state,
    }
    for words, use in uses.items():
        with pytest.raises(TypeError, match=words):
            tf.function(use)(X)
    with pytest.raises(TypeError, match="Sequential"):
        tf.function(model)(X)
    # The moving statistics would be traced values if the function had assigned them.
    with pytest.raises(TypeError, match="Sequential"):
        tf.function(lambda x: model(x, training=True))(X)
    assert all(isinstance(one.value, jax.Array) for one in (*model.variables, *mean.variables))
    assert not any(isinstance(one.value, jax.core.Tracer) for one in model.variables)


@pytest.mark.usefixtures("connection")
def test_a_model_whose_state_is_passed_trains_as_under_jit(keras: Any, model: Any) -> None:
    def step(trained: Any, others: Any, x: Any) -> Any:
        def loss(trained: Any) -> Any:
            y, changed = model.stateless_call(trained, others, x, training=True)
            return keras.ops.sum(y * y + y), changed

        (_, changed), slopes = jax.value_and_grad(loss, has_aux=True)(trained)
        return [w - 0.1 * slope for w, slope in zip(trained, slopes, strict=True)], changed

    trained = [one.value for one in model.trainable_variables]
    others = [one.value for one in model.non_trainable_variables]
    got, expected = (run(step)(trained, others, X) for run in (tf.function, jax.jit))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, expected)
    assert not np.allclose(got[1][0], others[0])


@pytest.mark.usefixtures("connection")
def test_fit_may_train_by_a_function_that_captures_the_model(keras: Any) -> None:
    """It takes the values away from the model while it trains, and passes them."""

    def compiled() -> Any:
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
        model.compile("adam", "mse", metrics=["mae"])
        return model

    x = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
    y = x.sum(1, keepdims=True)
    options = {"epochs": 2, "batch_size": 8, "shuffle": False, "verbose": 0}
    wanted = compiled().fit(x, y, **options).history

    model = compiled()
    step = tf.function(lambda state, data: model.train_step(state, data))  # noqa: PLW0108
    model.train_function = lambda state, iterator: step(state, next(iterator))
    found = model.fit(x, y, **options).history
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4)
