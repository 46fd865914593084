"""What a call gives, to the type, is what `jax.jit` gives; what it does not need costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.random import split

import jflow as tf
from tests.clusters import Backend


def _types(tree: Any) -> list[tuple[Any, bool]]:
    return [(x.dtype, getattr(x, "weak_type", False)) for x in jax.tree.leaves(tree)]


def _numbers(x: Any, y: Any) -> Any:
    return x, x * 2, (x + 1) * jnp.bfloat16(1), 1.5, 2, 1j, jnp.float32(3) * x, y * x, y


def test_results_are_as_weakly_typed_as_under_jit(connection: tf.function.Connection) -> None:
    placed, jitted = tf.function(_numbers), jax.jit(_numbers)
    for args in ((1.5, 2), (2, np.float32(1)), (jnp.asarray(1.5), 1j)):
        assert _types(placed(*args)) == _types(jitted(*args))


def test_a_weakly_typed_result_gives_way_to_what_it_is_multiplied_by(
    connection: tf.function.Connection,
) -> None:
    assert (tf.function(lambda x: x * 2)(1.5) * jnp.bfloat16(1)).dtype == jnp.bfloat16


def test_a_value_stays_weakly_typed_from_device_to_device(
    connection: tf.function.Connection, backend: Backend
) -> None:
    def across(x: Any, *devices: str) -> Any:
        values = [x]
        for device in devices:
            with tf.device(device):
                values.append(values[-1] * 2)
        return values, values[-1] * jnp.bfloat16(1)

    placed = tf.function(lambda x: across(x, *backend.devices[:2]))
    assert _types(placed(1.5)) == _types(jax.jit(lambda x: across(x, "", ""))(1.5))


def _keyed(x: Any, key: Any) -> dict[str, Any]:
    return {"key": key, "x": x, "3x": x * 3, "2x": x * 2, "again": x * 3, "keys": split(key, 3)}


@pytest.mark.parametrize(
    "fun",
    [
        lambda x, key: x + 1,
        lambda x, key: (jax.random.bits(key), key),
        _keyed,
    ],
    ids=["unused", "passed on", "in any order"],
)
def test_arguments_that_are_not_needed_or_passed_on_are_as_under_jit(
    connection: tf.function.Connection, fun: Callable[..., Any]
) -> None:
    x, key = jnp.float32(2), jax.random.key(1)
    placed = tf.function(fun)
    for _ in range(2):
        found, wanted = placed(x, key), jax.jit(fun)(x, key)
        assert jax.tree.structure(found) == jax.tree.structure(wanted)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            assert one.dtype == other.dtype
            assert bool((one == other).all())


def test_derivatives_by_integers_are_as_under_jit(connection: tf.function.Connection) -> None:
    def slopes(x: Any, i: Any) -> Any:
        return jax.grad(lambda x, i: (x * i).sum(), argnums=(0, 1), allow_int=True)(x, i)

    args = jnp.ones(3), jnp.arange(3)
    found, wanted = tf.function(slopes)(*args), jax.jit(slopes)(*args)
    assert [x.dtype for x in found] == [x.dtype for x in wanted]
    assert found[1].shape == wanted[1].shape


def test_an_argument_of_float0_is_passed_on_or_refused_in_words(
    connection: tf.function.Connection,
) -> None:
    slope = np.zeros(3, jax.dtypes.float0)
    unused, passed = tf.function(lambda x, slope: (x * 2, slope))(1.5, slope)
    assert unused == 3.0
    assert passed.dtype == jax.dtypes.float0
    with pytest.raises(TypeError, match="argument 'slope', whose dtype is float0"):
        tf.function(lambda slope: jax.jit(lambda s: (s, 1.0))(slope)[1])(slope)


# Costs, in this process, counted and not timed -----------------------------------------------


def _n_calls(call: Callable[[], Any]) -> int:
    """How many Python functions a call of something that is ready goes through."""
    for _ in range(3):
        call()
    entered = 0

    def note(_: Any, event: str, __: Any) -> None:
        nonlocal entered
        entered += event == "call"

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered


def _n_plain() -> int:
    plain, one = tf.function(lambda x: x * 3 + 1), jnp.float32(1)
    return _n_calls(lambda: plain(one))


def _n_by_key() -> int:
    """As `_n_plain`, for a call that is found by its key: an array is passed by name."""
    plain, one = tf.function(lambda x: x * 3 + 1), jnp.float32(1)
    return _n_calls(lambda: plain(x=one))


def test_an_argument_that_is_not_needed_costs_next_to_nothing() -> None:
    one, other = jnp.float32(1), jnp.float32(2)
    unused, passed = tf.function(lambda x, k: x + 1), tf.function(lambda x, k: (k, x + 1))
    with tf.connect():
        assert _n_calls(lambda: unused(one, other)) <= _n_plain() + 3
        assert _n_calls(lambda: passed(one, other)) <= _n_by_key() + 6


def test_a_random_key_costs_nothing_for_each_other_value() -> None:
    def step(values: Any, key: Any) -> Any:
        return jax.tree.map(lambda x: x + 1, values), jax.random.split(key, 1)[0]

    few, many = ({str(i): jnp.ones(3) for i in range(n)} for n in (1, 40))
    keyed, key = tf.function(step), jax.random.key(0)
    with tf.connect():
        assert _n_calls(lambda: keyed(many, key)) == _n_calls(lambda: keyed(few, key))


def test_an_argument_on_another_device_is_refused_by_jax_only_once() -> None:
    elsewhere = jax.device_put(jnp.ones(3), jax.local_devices(backend="cpu")[1])
    moved = tf.function(lambda x: x + 1)
    with tf.connect():
        assert _n_calls(lambda: moved(elsewhere)) <= _n_plain() + 60
        np.testing.assert_array_equal(moved(elsewhere), [2.0, 2.0, 2.0])


def test_a_session_that_is_fed_more_than_needed_runs_its_program_all_the_same() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        x, y = tf.placeholder("float32", ()), tf.placeholder("float32", ())
        z, w = x - 1, x * 2
        assert session.run([w, z], {y: 9.0, x: 3.0}) == [6.0, 2.0]
        unneeded = _n_calls(lambda: session.run(z, {x: 3.0, y: 9.0}))
        assert unneeded <= _n_calls(lambda: session.run(z, {x: 3.0})) + 12


# NaN -----------------------------------------------------------------------------------------


def test_a_nan_is_an_error_that_names_the_operation_if_jax_looks_for_it(
    connection: tf.function.Connection, backend: Backend
) -> None:
    def steps(x: Any) -> Any:
        with tf.device(backend.devices[-1]):
            inner = jnp.log(x)  # here
            return inner * 2 + 1

    placed = tf.function(steps)
    assert np.isnan(placed(-1.0))
    with jax.debug_nans(True):
        with pytest.raises(FloatingPointError, match=r"nan.* in 'log'.*test_exactness") as caught:
            placed(-1.0)
        assert isinstance(caught.value, tf.errors.InvalidArgumentError)
        assert caught.value.op == "log"
        assert caught.value.task == ("/job:ps/task:0" if backend.targets[0] else None)
        assert placed(1.0) == 1.0
        masked = tf.function(lambda x: jnp.where(x > 0, jnp.log(x), 0.0))
        assert masked(-1.0) == 0.0  # not a result, as under jit
    assert np.isnan(placed(-1.0))


def test_a_nan_in_an_update_is_an_error_and_the_variable_stays_usable(
    connection: tf.function.Connection,
) -> None:
    variable = tf.Variable(jnp.ones(1000), name="v")
    with jax.debug_nans(True):
        with pytest.raises(FloatingPointError, match="'log'"):
            tf.function(lambda x: variable.assign_add(jnp.log(x) * jnp.ones(1000)))(-1.0)
        variable.assign(jnp.ones(1000))
    np.testing.assert_array_equal(variable.numpy(), np.ones(1000))


def test_a_session_looks_for_nan_too(backend: Backend) -> None:
    with tf.Graph().as_default(), jax.debug_nans(True), backend.session() as session:
        x = tf.placeholder("float32", ())
        with pytest.raises(FloatingPointError, match="'root'"):
            session.run(tf.numpy.sqrt(x, name="root") + 1, {x: -1.0})


def test_a_session_looks_for_nan_as_the_setting_is_when_it_runs(backend: Backend) -> None:
    with tf.Graph().as_default(), backend.session() as session:
        x = tf.placeholder("float32", ())
        root = tf.numpy.sqrt(x, name="root") + 1
        assert np.isnan(session.run(root, {x: -1.0}))
        with jax.debug_nans(True), pytest.raises(FloatingPointError, match="'root'"):
            session.run(root, {x: -1.0})
        assert np.isnan(session.run(root, {x: -1.0}))


@pytest.mark.usefixtures("connection")
def test_a_callback_may_look_at_a_nan_that_leads_nowhere() -> None:
    seen: list[float] = []

    def safe(x: Any) -> Any:
        y = jnp.log(x)
        jax.debug.callback(lambda v: seen.append(float(v)), y)
        return jnp.where(jnp.isnan(y), 0.0, y)

    with jax.debug_nans(True):
        assert tf.function(safe)(jnp.float32(-1.0)) == 0
    assert np.isnan(seen).tolist() == [True]


@pytest.mark.usefixtures("connection")
def test_a_derivative_by_a_single_integer_is_a_result() -> None:
    def slopes(x: Any, i: Any) -> Any:
        return jax.grad(lambda x, i: x * i, argnums=(0, 1), allow_int=True)(x, i)

    by_x, by_i = tf.function(slopes)(jnp.float32(1.0), jnp.int32(2))
    assert by_x == 2
    assert (by_i.dtype, by_i.shape) == (jax.dtypes.float0, ())
