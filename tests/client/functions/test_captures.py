"""The capture check for objects like those of Keras, whose variables have arrays as `value`.

tests/libraries/test_keras.py has the same with Keras itself, where it is installed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf


class Scope:
    """A scope in which assignments stay."""

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}

    def get_current_value(self, variable: Variable) -> Any:
        return self.values.get(id(variable))


SCOPES: list[Scope] = []


@contextmanager
def stateless_scope() -> Iterator[Scope]:
    SCOPES.append(Scope())
    try:
        yield SCOPES[-1]
    finally:
        SCOPES.pop()


class Variable:
    def __init__(self, value: Any, path: str) -> None:
        self._value, self.path = jnp.asarray(value), path

    @property
    def value(self) -> Any:
        current = SCOPES[-1].get_current_value(self) if SCOPES else None
        return self._value if current is None else current

    def assign(self, value: Any) -> None:
        if SCOPES:
            SCOPES[-1].values[id(self)] = value
        else:
            self._value = value


class Layer:
    def __init__(self) -> None:
        self.kernel = Variable(np.float32([[1, 2], [3, 4]]), "dense/kernel")
        self.seen = Variable(np.float32([0, 0]), "dense/seen")
        self.variables = [self.kernel, self.seen]

    def __call__(self, x: Any) -> Any:
        return x @ self.kernel.value

    def stateless_call(self, kernel: Any, x: Any) -> Any:
        with stateless_scope():
            self.kernel.assign(kernel)
            return self(x)


class Other:
    variables = ()


X = np.float32([[1, 1]])


@pytest.fixture
def layer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Layer]:
    keras = SimpleNamespace(
        Layer=Layer,
        Variable=Variable,
        Metric=Other,
        Optimizer=Other,
        StatelessScope=stateless_scope,
    )
    monkeypatch.setitem(sys.modules, "keras", keras)  # type: ignore[arg-type]
    with tf.connect():
        yield Layer()


def test_a_captured_model_whose_weights_would_be_constants_is_refused(layer: Layer) -> None:
    kernel = layer.kernel
    for use in (layer, layer.__call__, lambda x: x @ kernel.value):
        with pytest.raises(TypeError, match=r"reads the variable 'dense/kernel' of '\w+' \(\w+\)"):
            tf.function(use)(X)
    with pytest.raises(TypeError, match="reads the variable 'dense/kernel' of 'Layer'"):
        tf.function(lambda model, x: model(x), static_argnums=0)(layer, X)


def test_what_a_function_assigns_to_a_captured_model_is_refused_and_not_kept(layer: Layer) -> None:
    with pytest.raises(TypeError, match="assigns to the variable 'dense/seen'"):
        tf.function(lambda x: layer.seen.assign(jnp.sum(x, 0)))(X)
    np.testing.assert_array_equal(layer.seen.value, [0, 0])
    assert isinstance(layer.seen.value, jax.Array)
    assert not isinstance(layer.seen.value, jax.core.Tracer)


def test_a_captured_model_whose_weights_are_arguments_is_used(layer: Layer) -> None:
    call = tf.function(layer.stateless_call)
    np.testing.assert_array_equal(call(layer.kernel.value, X), [[4, 6]])
    np.testing.assert_array_equal(call(2 * layer.kernel.value, X), [[8, 12]])
