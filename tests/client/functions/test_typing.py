"""What type checkers and editors know about a `jflow.function`; `make lint` checks this file."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, assert_type

import jax
import jax.numpy as jnp
import pytest

import jflow as tf


@tf.function
def shifted(x: jax.Array, *, by: float = 1.0) -> tuple[jax.Array, jax.Array]:
    """Moves both ways."""
    return x + by, x - by


@tf.function(static_argnames="n")
def power(x: jax.Array, n: int) -> jax.Array:
    return x**n


class Model:
    scale = 3.0

    @tf.function
    def call(self, x: jax.Array) -> jax.Array:
        """Scales."""
        return self.scale * x

    @tf.function(static_argnames="n")
    def power(self, x: jax.Array, n: int = 2) -> jax.Array:
        return x**n


def loss(w: dict[str, Any], x: jax.Array) -> jax.Array:
    return jnp.sum(w["a"] * x)


def test_a_function_has_the_types_of_the_one_it_is_made_of() -> None:
    x = jnp.ones(2)
    assert_type(shifted(x, by=2.0), tuple[jax.Array, jax.Array])
    assert_type(power(x, n=2), jax.Array)
    assert_type(tf.function(loss)({"a": 1.0}, x), jax.Array)


def test_a_method_has_them_without_self() -> None:
    model = Model()
    assert_type(model.call(jnp.ones(2)), jax.Array)
    assert_type(model.power(jnp.ones(2), n=3), jax.Array)
    bound: Callable[[jax.Array], jax.Array] = model.call
    assert bound(jnp.ones(2)).tolist() == [3.0, 3.0]


def test_derivatives_take_what_the_function_takes() -> None:
    w, x = {"a": jnp.ones(2)}, jnp.ones(2)
    assert_type(tf.value_and_grad(loss)(w, x), tuple[jax.Array, Any])
    assert_type(tf.grad(loss)(w, x), Any)


def test_wrong_arguments_are_found_by_the_type_checker() -> None:
    with pytest.raises(TypeError):
        shifted(jnp.ones(2), to=1.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        power("text", n=2)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Model().call()  # type: ignore[call-arg]


def test_signatures_names_and_documentation_are_kept_at_run_time() -> None:
    assert str(inspect.signature(shifted)) == (
        "(x: 'jax.Array', *, by: 'float' = 1.0) -> 'tuple[jax.Array, jax.Array]'"
    )
    assert inspect.getdoc(shifted) == "Moves both ways."
    assert (shifted.__name__, shifted.__module__) == ("shifted", __name__)  # type: ignore[attr-defined]
    assert inspect.unwrap(shifted) is not shifted
    assert str(inspect.signature(Model.call)) == "(self, x: 'jax.Array') -> 'jax.Array'"
    assert str(inspect.signature(Model().call)) == "(x: 'jax.Array') -> 'jax.Array'"
    assert str(inspect.signature(tf.grad(loss))).startswith("(w: 'dict[str, Any]', x:")
    assert inspect.getdoc(Model().call) == "Scales."
