"""`jax.enable_x64` inside of functions, in a process that does not allow 64 bits elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf
from tests.clusters import Backend

pytestmark = [
    pytest.mark.usefixtures("connection"),
    pytest.mark.parametrize("backend", ["local", "processes"], indirect=True),
]

X = jax.device_put(np.float32([1, 2, 3]))
LARGE = np.full(5000, 2.0**60 + 1)


def _arithmetic(x: Any) -> Any:
    return x.astype("float64") / 3 + np.arange(3) * (1 / 7)


def _loop(x: Any) -> Any:
    return jax.lax.fori_loop(0, 4, lambda i, c: c * 1.1 + i, x.astype("float64"))


def _integers(x: Any) -> Any:
    return jnp.int64(2) ** 40 + jnp.argmax(x), jnp.cumsum(x.astype("int64") + 2**40)


def _large(x: Any) -> Any:
    return (jnp.asarray(LARGE) + x.sum())[:2], jnp.float32(x.sum())


def _numbers(x: Any) -> Any:
    key = jax.random.key(3)
    return jax.random.normal(key, (3,), "float64"), jnp.cumsum(x.astype("float64"))


def _called(x: Any) -> Any:
    return jax.jit(_arithmetic)(x)


def _branch(x: Any) -> Any:
    return jax.lax.cond(x[0] > 0, _arithmetic, lambda x: jnp.float64(0) * x, x)


@pytest.mark.parametrize(
    "fun",
    [_arithmetic, _loop, _integers, _large, _numbers, _called, _branch],
    ids=lambda f: f.__name__,
)
def test_a_block_of_64_bits_computes_as_in_a_process_that_allows_them(
    fun: Callable[[Any], Any],
) -> None:
    def run(x: Any) -> Any:
        with jax.enable_x64(True):
            return fun(x * 2)

    with jax.enable_x64(True):
        wanted = jax.jit(run)(X)
    call = tf.function(run)
    for _ in range(2):
        found = call(X)
        assert jax.tree.map(lambda x: x.dtype, found) == jax.tree.map(lambda x: x.dtype, wanted)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-14), found, wanted)
    assert tf.function(lambda x: x + 1.0)(X).dtype == np.float32


def test_a_result_of_64_bits_stays_one_between_devices_and_functions(backend: Backend) -> None:
    @tf.function
    def thirds(x: Any) -> Any:
        with jax.enable_x64(True):
            with tf.device(backend.devices[0]):
                y = x.astype("float64") / 3
            with tf.device(backend.devices[-1]):
                return y, y * 3 - x

    y, difference = thirds(X)
    np.testing.assert_array_equal(y, np.arange(1.0, 4.0) / 3)
    np.testing.assert_allclose(difference, 0, atol=1e-15)
    passed, doubled = tf.function(lambda y: (jnp.negative(y), y + y))(y)
    wanted = jax.jit(lambda y: (jnp.negative(y), y + y))(y)
    assert (passed.dtype, doubled.dtype) == (wanted[0].dtype, wanted[1].dtype)
    np.testing.assert_array_equal(passed, -np.arange(1.0, 4.0) / 3)


def test_what_is_passed_to_such_a_function_is_narrowed_as_elsewhere() -> None:
    @tf.function
    def run(x: Any, y: Any, n: Any) -> Any:
        with jax.enable_x64(True):
            return x + jnp.float64(0), x, y, n

    given = np.array([1 / 3, 2 / 3]), 1 / 3, 3
    for _ in range(2):
        wide, *narrow = run(*given)
        assert [x.dtype for x in narrow] == [np.float32, np.float32, np.int32]
        np.testing.assert_array_equal(wide, np.float64(np.float32(given[0])))
