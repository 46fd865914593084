"""JAX's own effects in graph code: callbacks of functions that are operations of a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

import jflow as tf
from tests.clusters import Backend


def test_a_use_of_a_result_makes_the_effects_happen(backend: Backend) -> None:
    seen: list[float] = []

    def noting(x: Any) -> Any:
        jax.debug.callback(lambda v: seen.append(float(v)), x[0])
        return x + 1

    graph = tf.Graph()
    with graph.as_default(), backend.session(graph=graph) as session:
        x = tf.placeholder(tf.float32, [2])
        with tf.device(backend.devices[-1]):
            called = tf.function(noting)(x)
            branched = tf.lax.cond(x[0] > 0, noting, lambda a: a, x)
            nothing = tf.function(lambda a: (noting(a), None)[1])(x)
        for fetch, value, wanted in (
            (called, 1, [1]),
            (branched, 2, [2]),
            (branched, -2, []),
            (called + branched, 3, [3, 3]),
            (x + 1, 4, []),
            (nothing, 5, [5]),
        ):
            seen.clear()
            session.run(fetch, {x: np.full(2, value, np.float32)})
            assert seen == wanted


def _ruled(write: Callable[[Any], None]) -> Callable[[Any], Any]:
    @jax.custom_jvp
    def ruled(x: Any) -> Any:
        jax.debug.callback(write, x[0])
        return x * 2

    ruled.defjvp(lambda primals, tangents: (ruled(*primals), tangents[0] * 5))
    return ruled


def test_a_derivative_rule_with_a_callback_still_counts() -> None:
    seen: list[float] = []
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [2])
        y = tf.function(_ruled(lambda v: seen.append(float(v))))(x)
        (slope,) = tf.gradients(y, [x])
        np.testing.assert_array_equal(session.run(slope, {x: [1, 2]}), [5, 5])
        jax.effects_barrier()
        assert seen == [1]
        seen.clear()
        np.testing.assert_array_equal(session.run(y, {x: [3, 4]}), [6, 8])
        jax.effects_barrier()
        assert seen == [3]


@pytest.mark.parametrize("backend", ["in_process"], indirect=True)
def test_a_derivative_rule_with_a_callback_is_refused_on_a_cluster(
    backend: Backend,
) -> None:
    graph = tf.Graph()
    with graph.as_default(), backend.session(graph=graph) as session:
        y = tf.function(_ruled(lambda _: None))(tf.constant([1.0, 2.0]))
        with pytest.raises(tf.errors.UnimplementedError, match=r"in _ruled\.<locals>\.ruled"):
            session.run(y)


def test_a_lifted_function_that_gives_nothing_is_an_operation() -> None:
    seen: list[float] = []
    with tf.Graph().as_default() as graph, tf.Session() as session:
        x = tf.placeholder(tf.float32, ())
        noted = graph.apply(
            lambda v: jax.debug.callback(lambda w: seen.append(float(w)), v), (x,), name="noted"
        )
        assert session.run(noted, {x: 3}) is None
    assert seen == [3]


def test_a_callback_has_no_derivative() -> None:
    def call(x: Any) -> Any:
        return io_callback(np.sin, x, x) * 2

    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [2])
        y = tf.function(call)(x)
        line = call.__code__.co_firstlineno + 1
        with pytest.raises(ValueError, match=r"jax\.custom_jvp") as caught:
            tf.gradients(y, [x])
        assert f"{__file__}:{line} in " in str(caught.value)


def test_a_derivative_goes_around_what_a_callback_makes_of_integers() -> None:
    seen: list[int] = []

    def count(n: Any) -> Any:
        seen.append(int(n))
        return np.float32(n)

    def call(x: Any) -> Any:
        n = jnp.sum(x > 0).astype(jnp.int32)
        return x * io_callback(count, jax.ShapeDtypeStruct((), jnp.float32), n)

    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [2])
        y = tf.function(call)(x)
        (slope,) = tf.gradients(y, [x])
        found = session.run([y, slope], {x: [3, 4]})
        np.testing.assert_array_equal(found, [[6, 8], [2, 2]])
        assert seen == [2]


@jax.custom_vjp
def _with_rule(x: Any) -> Any:
    return jax.jit(lambda x: jax.new_ref(x)[...] * 2)(x)


_with_rule.defvjp(lambda x: (_with_rule(x), x), lambda x, slope: (slope * 100 * x,))


def test_a_ref_does_not_take_the_rules_of_derivatives_away() -> None:
    def relu(x: Any) -> Any:
        ref = jax.new_ref(x)
        ref[...] = jax.nn.relu(ref[...] - 2)
        return ref[...]

    value = np.float32([1, 2, 3])
    for function in (jax.jit(relu), _with_rule):
        with tf.Graph().as_default() as graph, tf.Session() as session:
            x = tf.placeholder(tf.float32, (3,))
            (slope,) = tf.gradients(graph.apply(function, (x,)), [x])
            wanted = jax.grad(lambda x, f=function: f(x).sum())(value)
            np.testing.assert_array_equal(session.run(slope, {x: value}), wanted)
