"""Loops over devices in particular: what they begin with, what is fed, under each strategy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jflow as tf
from tests.clusters import Backend

STRATEGIES = ("auto", "heft", "etf_c", "round_robin", "single", "m_topo", "min_cut_runs")


def there_and_back(devices: list[str]) -> Callable[[Any], Any]:
    """Something to compute on two devices."""

    def compute(x: Any) -> Any:
        with tf.device(devices[0]):
            y = jnp.sin(x) + 1
        with tf.device(devices[-1]):
            return y * 0.5

    return compute


def repeated(devices: list[str], x: Any, n: Any) -> Any:
    """Computes it `n` times."""
    compute = there_and_back(devices)
    body = lambda state: (state[0] + 1, compute(state[1]))  # noqa: E731
    return lax.while_loop(lambda state: state[0] < n, body, (0, x))[1]


def test_a_carry_may_be_the_predicate(connection: tf.function.Connection, backend: Backend) -> None:
    compute = there_and_back(list(backend.devices))

    def until_small(x: Any) -> Any:
        def body(state: Any) -> Any:
            y = compute(state[1]) - 0.6
            return jnp.sum(y) > 0.3, y

        return lax.while_loop(lambda state: state[0], body, (jnp.bool_(True), x))

    x = np.full(3, 0.8, np.float32)
    wanted = jax.jit(until_small)(x)
    found = tf.function(until_small)(x)
    assert bool(found[0]) == bool(wanted[0])
    np.testing.assert_allclose(found[1], wanted[1], 1e-5)


@pytest.mark.parametrize("n", [0, 1])
def test_what_a_loop_begins_with_stays_as_it_is(
    connection: tf.function.Connection, backend: Backend, n: int
) -> None:
    devices = list(backend.devices)
    with tf.device(devices[-1]):
        v = tf.Variable(np.ones(4, np.float32), name="v")

    @tf.function
    def added(n: Any) -> Any:
        result = repeated(devices, v.value(), n)
        v.assign_add(result)
        return result

    @tf.function
    def read(n: Any) -> Any:
        return repeated(devices, v.value(), n)

    kept = read(np.int32(n))
    before = np.array(kept)
    result = added(np.int32(n))
    np.testing.assert_allclose(v.numpy(), 1 + result, 1e-6)
    np.testing.assert_allclose(result, before)
    added(np.int32(n))
    np.testing.assert_array_equal(kept, before)  # an update in place did not reach it


@pytest.mark.parametrize("n", [0, 1])
def test_a_value_that_two_loops_begin_with_is_the_same_for_both(
    connection: tf.function.Connection, backend: Backend, n: int
) -> None:
    devices = list(backend.devices)
    compute = there_and_back(devices)

    def twice(a: Any, n: Any) -> Any:
        with tf.device(devices[-1]):
            b = jnp.sin(a) * 2
        first = repeated(devices, b, n)
        second = lax.scan(lambda carry, _: (compute(carry), None), b, None, length=3)[0]
        return first, second

    a = np.arange(4, dtype=np.float32)
    for found, wanted in zip(
        tf.function(twice)(a, np.int32(n)), jax.jit(twice)(a, np.int32(n)), strict=True
    ):
        np.testing.assert_allclose(found, wanted, 1e-5)


def test_numbers_of_python_are_arguments_of_loops(
    connection: tf.function.Connection, backend: Backend
) -> None:
    devices = list(backend.devices)
    found = tf.function(lambda x, n: repeated(devices, x, n))(2, 3)
    wanted = jax.jit(lambda x, n: repeated(devices, x, n))(2.0, 3)
    np.testing.assert_allclose(found, wanted, 1e-5)


@pytest.mark.parametrize("placement", STRATEGIES)
def test_loops_run_under_each_strategy(
    connection: tf.function.Connection, backend: Backend, placement: str
) -> None:
    devices = list(backend.devices)
    compute = there_and_back(devices)

    def several(x: Any, n: Any) -> Any:
        before = jnp.cos(x) * 2
        total, ys = lax.scan(lambda c, row: (c + compute(row), compute(c)), before[0], before)
        chosen = lax.cond(n > 2, compute, lambda y: y * 2, total)
        return repeated(devices, chosen, n) + jnp.sum(ys), ys

    x, n = np.arange(6, dtype=np.float32).reshape(3, 2), np.int32(3)
    found = tf.function(several, placement=placement)(x, n)
    for one, wanted in zip(found, jax.jit(several)(x, n), strict=True):
        np.testing.assert_allclose(one, wanted, 1e-5)


def test_a_stacked_array_can_be_fed(backend: Backend) -> None:
    backend.reset()
    devices = list(backend.devices)
    compute = there_and_back(devices)

    def collected(x: Any) -> Any:
        return lax.scan(lambda c, _: (compute(c), compute(c)), x, None, length=4)[1]

    def added_up(ys: Any) -> Any:
        def body(total: Any, y: Any) -> Any:
            with tf.device(devices[0]):
                half = y * 0.5
            with tf.device(devices[-1]):
                return total + y + half, None

        return lax.scan(body, 0.0, ys)[0]

    with tf.Graph().as_default() as graph:
        x = tf.placeholder("float32", ())
        ys = graph.apply(collected, (x,))
        total = graph.apply(added_up, (ys,))
        with tf.Session(backend.targets[0]) as session:
            np.testing.assert_allclose(
                session.run(total, {x: 1.0}), added_up(jax.jit(collected)(1.0)), 1e-5
            )
            assert session.run(total, {ys: [10.0] * 4}) == 60.0


def test_a_function_called_in_a_body_keeps_what_it_was_given(backend: Backend) -> None:
    kept: list[Any] = []

    def keep(value: Any) -> Any:
        kept.append(value)
        return np.float32(value.sum())

    def called(x: Any) -> Any:
        def body(total: Any, _: Any) -> Any:
            with tf.device(backend.devices[0]):
                y = jax.pure_callback(keep, jax.ShapeDtypeStruct((), "float32"), x)
            with tf.device(backend.devices[-1]):
                return total + y, None

        return lax.scan(body, 0.0, None, length=2)[0]

    backend.reset()
    with tf.connect(backend.targets[0]):
        x = np.ones(1024, np.float32)
        assert float(tf.function(called)(x)) == 2048
        x[:] = 7
    assert [value.max() for value in kept] == [1.0] * len(kept)
    assert len(kept) == 2
