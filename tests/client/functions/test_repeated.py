"""Calls of functions that are like the last one, and those that only look like it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jflow as tf

ONE = jnp.ones(3)


def warmed(fun, *args):
    """A function that was called twice with these arguments, so that a third call is repeated."""
    traced = tf.function(fun)
    for _ in range(2):
        traced(*args)
    return traced


def n_traces(fun):
    """The function, and a list that grows with each of its traces."""
    traces = []

    def counted(*args):
        traces.append(args)
        return fun(*args)

    return counted, traces


@pytest.mark.parametrize("x", [jnp.ones(4), jnp.ones(3, jnp.int32), jnp.full((3,), 1.0)])
def test_a_call_of_other_arrays_gives_what_it_gives_alone(x):
    add = warmed(lambda x: x + 1, ONE)
    result = add(x)
    assert result.aval == jax.jit(lambda x: x + 1)(x).aval
    np.testing.assert_array_equal(result, x + 1)


def test_an_array_is_not_taken_for_a_number_of_weak_type():
    double = warmed(lambda x: x * np.float16(2), jnp.float32(1.0))
    weak = jnp.asarray(1.0)
    assert double(weak).dtype == jax.jit(lambda x: x * np.float16(2))(weak).dtype == jnp.float16


def test_arguments_in_structures_and_by_name_are_not_taken_for_those_before():
    add = warmed(lambda x, y: x - y, ONE, 2 * ONE)
    subtract = tf.function(lambda pair, rest: pair[0] - pair[1])
    subtract([ONE, 2 * ONE], [])
    np.testing.assert_array_equal(subtract([3 * ONE, ONE], []), 2 * ONE)
    np.testing.assert_array_equal(add(y=ONE, x=3 * ONE), 2 * ONE)
    np.testing.assert_array_equal(add(3 * ONE, y=ONE), 2 * ONE)
    np.testing.assert_array_equal(add(ONE, 3 * ONE), -2 * ONE)


def test_arguments_that_the_result_does_not_need_may_be_anywhere():
    pick = warmed(lambda a, b, c, d: (b, d * 2), *(ONE * i for i in range(4)))
    last = warmed(lambda a, b: b + 1, ONE, ONE)
    none = warmed(lambda a: jnp.zeros(2) + 1, ONE)
    np.testing.assert_array_equal(pick(ONE, 5 * ONE, ONE, 7 * ONE), [5 * ONE, 14 * ONE])
    np.testing.assert_array_equal(last(ONE, 4 * ONE), 5 * ONE)
    np.testing.assert_array_equal(none(3 * ONE), [1, 1])


def test_a_call_that_is_traced_is_inlined():
    counted, traces = n_traces(jnp.sin)
    sine = warmed(counted, ONE)
    known = len(traces)
    jax.jit(lambda y: y * sine(ONE))(ONE)
    assert len(traces) == known + 1


def test_another_setting_of_jax_traces_again():
    counted, traces = n_traces(lambda x: x @ x)
    square = warmed(counted, jnp.ones((2, 2)))
    with jax.default_matmul_precision("highest"):
        square(jnp.ones((2, 2)))
    assert len(traces) == 2


def test_nan_is_found_once_that_is_asked_for():
    log = warmed(jnp.log, ONE)
    log(-ONE)
    with jax.debug_nans(True), pytest.raises((FloatingPointError, tf.errors.InvalidArgumentError)):
        log(-ONE)


def test_each_connection_runs_its_own_call():
    counted, traces = n_traces(lambda x: x + 1)
    add = warmed(counted, ONE)
    with tf.connect(""):
        add(ONE)
    assert len(traces) == 2
    add(ONE)
    assert len(traces) == 2


def test_a_call_in_a_block_that_traces_is_traced():
    add = warmed(lambda x: x + 1, ONE)
    with tf.trace_steps() as traces:
        add(ONE)
    assert len(traces) == 1


def test_a_function_of_constants_passes_them_each_time():
    weights = jnp.arange(3.0)
    multiply = warmed(lambda x: x * weights, ONE)
    np.testing.assert_array_equal(multiply(2 * ONE), 2 * weights)
    np.testing.assert_array_equal(multiply(3 * ONE), 3 * weights)


def test_signatures_that_take_turns_keep_their_results():
    add = tf.function(lambda x: x + 1)
    for _ in range(3):
        for size in (2, 3):
            np.testing.assert_array_equal(add(jnp.ones(size)), np.full(size, 2.0))


def test_an_array_on_another_device_is_moved_as_in_any_call():
    other = jax.devices()[1]  # tests have several
    add = warmed(lambda x: x + 1, ONE)
    for _ in range(2):
        np.testing.assert_array_equal(add(jax.device_put(ONE, other)), 2 * ONE)
    np.testing.assert_array_equal(add(ONE), 2 * ONE)


def test_an_argument_that_was_donated_is_refused_as_in_any_call():
    add = warmed(lambda x: x + 1, ONE)
    gone = jnp.ones(3)
    gone.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        add(gone)
    np.testing.assert_array_equal(add(ONE), 2 * ONE)
