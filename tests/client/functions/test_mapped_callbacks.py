"""Callbacks that `jax.vmap` maps sequentially: called once for each element."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from tests.clusters import Backend

X = jnp.float32([0.5, 1.0])


@pytest.fixture(scope="module")
def connection(backend: Backend) -> Iterator[tf.Connection]:
    with tf.connect(backend.targets[0]) as connection:
        yield connection


class _OwnError(Exception):
    pass


def _sequential(function: Callable[..., Any], shapes: Any, *args: Any) -> Any:
    return jax.pure_callback(function, shapes, *args, vmap_method="sequential")


def _each(note: Callable[..., Any]) -> Callable[..., Any]:
    def one(x: Any, y: Any) -> Any:
        return _sequential(lambda a, b: note(a, b) or np.asarray(a) * b, x, x, y)

    return one


MAPPED: dict[str, Callable[[Any, Any], Any]] = {
    "elements": lambda one, x: jax.vmap(one)(x, x + 1),
    "an operand for all": lambda one, x: jax.vmap(one, (0, None))(x, x[1]),
    "a number": lambda one, x: jax.vmap(lambda a: one(a, 2.0))(x),
    "columns": lambda one, x: jax.vmap(one, (1, 0), 1)(jnp.stack([x, x, x], 1)[:, :2], x),
    "elements of elements": lambda one, x: jax.vmap(jax.vmap(one, (0, None)))(x * x[:, None], x),
    "in jit": lambda one, x: jax.jit(jax.vmap(one))(x, x) + 1,
    "in a branch": lambda one, x: jax.lax.cond(x[0] > 0, lambda y: jax.vmap(one)(y, y), jnp.sin, x),
    "in a loop that maps": lambda one, x: jax.lax.map(lambda a: one(a, a), x),
    "none": lambda one, x: jax.vmap(one)(x[:0], x[:0]),
}


@pytest.mark.parametrize("backend", ["local", "processes"], indirect=True)
@pytest.mark.usefixtures("connection")
def test_a_callback_that_is_mapped_sequentially_is_called_for_each_element(
    backend: Backend,
) -> None:
    for program in MAPPED.values():
        seen: list[tuple[float, ...]] = []

        def note(*args: Any, seen: list[Any] = seen) -> None:
            assert all(isinstance(arg, jax.Array) for arg in args)
            seen.append(tuple(round(float(np.sum(arg)), 3) for arg in args))

        one = _each(note)

        def run(x: Any, program: Any = program, one: Any = one) -> Any:
            return program(one, x * 2)

        wanted = jax.jit(run)(X)
        calls, seen[:] = [*seen], []
        np.testing.assert_allclose(tf.function(run)(X), wanted, rtol=1e-6)
        assert seen == calls


@pytest.mark.parametrize("backend", ["local", "processes"], indirect=True)
@pytest.mark.usefixtures("connection")
def test_results_of_each_kind_are_put_together_and_errors_name_the_line(backend: Backend) -> None:
    shapes = jax.ShapeDtypeStruct((), jnp.int4), jax.ShapeDtypeStruct((2,), jnp.float32)

    def split(x: Any, key: Any) -> Any:
        if x > 1000:
            raise _OwnError("too large")
        return jnp.int4(x), np.float32([x, np.sum(np.asarray(key)) % 7])

    def run(x: Any) -> Any:
        keys = jax.random.split(jax.random.key(1), 2)
        return jax.vmap(lambda a, key: _sequential(split, shapes, a, key))(x * 2, keys)

    found, wanted = tf.function(run)(X), jax.jit(run)(X)
    jax.tree.map(np.testing.assert_array_equal, found, wanted)
    with pytest.raises(_OwnError) as caught:
        tf.function(run)(X * 1e4)
    line = _sequential.__code__.co_firstlineno + 1
    assert f"split (called at {__file__}:{line} in " in "".join(caught.value.__notes__)


@pytest.mark.parametrize("backend", ["processes"], indirect=True)
@pytest.mark.usefixtures("connection")
def test_a_mapped_callback_in_a_loop_gives_what_jit_gives(backend: Backend) -> None:
    one = _each(lambda x, y: np.float32(x + np.sin(y)))

    def run(x: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda i, c: jax.vmap(one)(c, c), x)

    np.testing.assert_allclose(tf.function(run)(X), jax.jit(run)(X), rtol=1e-6)
