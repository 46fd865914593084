"""Every dtype through feeds, constants, variables, transfers and fetches, on every backend."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jflow as tf
from jflow.base.values import NUMBERS
from tests.clusters import Backend
from tests.drawn import examples
from tests.samples import KEYS, NARROW, WIDE, allowing, assert_same, keys, numbers

SHAPES = [(), (0, 2), (2, 3)]

ONE_CLUSTER = pytest.mark.parametrize(
    "opened",
    ["local", pytest.param("in_process", marks=pytest.mark.product), "processes"],
    indirect=True,
)
"""A test that compiles for long; the shorter ones are on servers in this process too."""


def _there_and_back(value: Any, devices: list[str]) -> Any:
    with tf.device(devices[1]):
        there = tf.identity(value)
    with tf.device(devices[0]):
        return tf.identity(there)


def _check_all_ways(backend: Backend, values: list[Any], others: list[Any]) -> None:
    """By feed, constant, initial value, load, assign and read, each over two devices."""
    fed = [tf.placeholder(value.dtype, value.shape) for value in values]
    constants = [tf.constant(value) for value in values]
    with tf.device(backend.devices[1]):
        variables = [tf.Variable(value) for value in values]
    moved = [_there_and_back(x, backend.devices) for x in (*fed, *constants)]
    reads = [_there_and_back(variable, backend.devices) for variable in variables]
    assigned = [v.assign(x) for v, x in zip(variables, fed, strict=True)]
    with backend.session() as session:
        feeds = dict(zip(fed, values, strict=True))
        for got, sent in zip(
            session.run([*constants, *moved, *fed], feeds), values * 4, strict=True
        ):
            assert_same(got, sent)
        session.run([variable.initializer for variable in variables])
        for got, sent in zip(session.run([*variables, *reads]), values * 2, strict=True):
            assert_same(got, sent)
        for variable, other in zip(variables, others, strict=True):
            variable.load(other)
            assert_same(session.run(variable), other)
        for got, sent in zip(session.run(assigned, feeds), values, strict=True):
            assert_same(got, sent)


@ONE_CLUSTER
@pytest.mark.parametrize("names", [NARROW, WIDE], ids=["narrow", "wide"])
def test_numbers_of_every_dtype_come_back_bit_for_bit(
    backend: Backend, names: tuple[str, ...]
) -> None:
    """All dtypes in one graph: a program for each would be compiled a thousand times."""
    with allowing(names[0]):
        _check_all_ways(
            backend,
            [numbers(name, shape, 1) for name in names for shape in SHAPES],
            [numbers(name, shape, 2) for name in names for shape in SHAPES],
        )


@ONE_CLUSTER
def test_random_keys_come_back_as_keys(backend: Backend) -> None:
    _check_all_ways(
        backend,
        [keys(impl, shape, 1) for impl in KEYS for shape in SHAPES],
        [keys(impl, shape, 2) for impl in KEYS for shape in SHAPES],
    )


def test_random_keys_give_jax_s_numbers_wherever_they_are_used(backend: Backend) -> None:
    key = jax.random.key(5)
    fed = tf.placeholder(key.dtype, ())
    with tf.device(backend.devices[1]):
        state = tf.Variable(key, name="state")
        split = tf.random.split(state, 2)
        advance = state.assign(split[0])
        noise = tf.random.normal(split[1], (3,)) + tf.random.uniform(fed, (3,))
    with backend.session() as session:
        session.run(state.initializer)
        got = session.run(noise, {fed: jax.random.key(6)})
        session.run(advance.op)
        first, second = jax.random.split(key)
        assert_same(session.run(state), first)
    expected = jax.random.normal(second, (3,)) + jax.random.uniform(jax.random.key(6), (3,))
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_functions_and_live_variables_take_what_is_carried_by_another_dtype(
    backend: Backend,
) -> None:
    key, small = jax.random.key(2), np.array([1, -2], jnp.int4)

    @tf.function
    def advance(key: jax.Array, small: jax.Array) -> tuple[jax.Array, ...]:
        first, second = jax.random.split(key)
        with tf.device(backend.devices[1]):
            return first, jax.random.normal(second, (2,)), small + small, small

    with tf.connect(backend.targets[0]):
        first, noise, doubled, same = advance(key, small)
        state = tf.Variable(key, name="state")
        count = tf.Variable(lambda: jnp.asarray(small), name="count")
        state.assign(first)
        count.assign_add(small)
        got = [state.value(), count.value(), doubled, same]
    kept, used = jax.random.split(key)
    np.testing.assert_allclose(noise, jax.random.normal(used, (2,)), rtol=1e-6)
    for one, sent in zip(got, [kept, small + small, small + small, small], strict=True):
        assert_same(one, sent)


@pytest.mark.parametrize("name", ["int4", "float8_e5m2", "float32"])
def test_large_constants_travel_in_every_dtype(backend: Backend, name: str) -> None:
    large = numbers(name, (300, 200))
    many = keys("threefry2x32", (3000,))
    wanted = [_there_and_back(large, backend.devices), _there_and_back(many, backend.devices)]
    with backend.session() as session:
        got = session.run([*wanted, *wanted])
    for one, sent in zip(got, [large, many] * 2, strict=True):
        assert_same(one, sent)


@pytest.mark.parametrize("name", ["bfloat16", "int4", "uint2", "float8_e4m3fn", "complex64"])
def test_variables_of_every_dtype_are_updated_in_it(backend: Backend, name: str) -> None:
    one = np.ones(3, NUMBERS[name])
    with tf.device(backend.devices[1]):
        x = tf.Variable(np.zeros(3, one.dtype), name="x")
    with tf.device(backend.devices[0]):
        delta = tf.identity(one)
    add = x.assign_add(delta)
    with backend.session() as session:
        session.run(x.initializer)
        assert_same(session.run(add), one)
        session.run(add.op)
        assert_same(session.run(x), jax.jit(jnp.add)(one, one).__array__())


def test_arithmetic_of_64_bits_is_done_in_64_bits_on_every_device(backend: Backend) -> None:
    with jax.enable_x64(True):
        x = tf.placeholder(tf.float64, ())
        with tf.device(backend.devices[1]):
            third = x / 3
            count = tf.Variable(np.int64(2**40), name="count")
            more = count.assign_add(1)
        with tf.device(backend.devices[0]):
            product = third * third
        with backend.session() as session:
            session.run(count.initializer)
            got, counted = session.run([product, more], {x: 1.0})
    assert got == np.float64(1 / 3) * np.float64(1 / 3)
    assert counted == 2**40 + 1
    assert counted.dtype == np.int64


def test_a_graph_of_64_bits_runs_in_64_bits_and_takes_feeds_where_these_are_allowed(
    backend: Backend,
) -> None:
    with jax.enable_x64(True):
        third = tf.constant(1 / 3, name="third")
        x = tf.placeholder(tf.float64, (), name="x")
        wide, narrow = tf.identity(third), tf.constant(1, tf.int32) + 1
        count = tf.Variable(np.int64(2**40), name="count")
        more = count.assign_add(1)
    with backend.session() as session:
        session.run(count.initializer)
        assert session.run([wide, more]) == [1 / 3, 2**40 + 1]
        with pytest.raises(TypeError, match=r"'x:0'.*jax_enable_x64"):
            session.run(x, {x: 1.0})
        assert session.run(narrow) == 2
        with jax.enable_x64(True):
            assert session.run([wide, x], {x: 1 / 7}) == [1 / 3, 1 / 7]


def test_a_feed_that_would_lose_more_than_precision_is_refused(backend: Backend) -> None:
    x = tf.placeholder(tf.float32, (2,), name="x")
    n = tf.placeholder(tf.int32, (2,), name="n")
    with backend.session() as session:
        for given in (np.random.default_rng(0).random(2), np.arange(2), [1, True]):
            np.testing.assert_array_equal(session.run(x, {x: given}), np.float32(given))
        np.testing.assert_array_equal(session.run(n, {n: np.arange(2)}), [0, 1])
        with pytest.raises(TypeError, match=r"'x:0'.*1e\+300 is out of its range"):
            session.run(x, {x: np.array([0.0, 1e300])})
        with pytest.raises(TypeError, match=r"'n:0'.*jax_enable_x64.*8589934592 is out of"):
            session.run(n, {n: np.array([0, 2**33])})
        with pytest.raises(TypeError, match=r"'n:0'.*float64 is not compatible with int32"):
            session.run(n, {n: np.array([0.0, 1.0])})
        assert session.run(n, {n: [3, 4]}).tolist() == [3, 4]


@settings(max_examples=examples(6), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.sampled_from((*NARROW, *WIDE, *KEYS, "string")),
            st.lists(st.integers(0, 4), max_size=4).map(tuple),
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 2**32),
)
def test_any_values_of_any_dtypes_and_shapes_come_back(
    backend: Backend, kinds: list[tuple[str, tuple[int, ...]]], seed: int
) -> None:
    with tf.Graph().as_default(), jax.enable_x64(True):
        values = [_value(name, shape, seed + i) for i, (name, shape) in enumerate(kinds)]
        fed = [tf.placeholder(_dtype(value), value.shape) for value in values]
        moved = [_there_and_back(x, backend.devices) for x in fed]
        kept = [
            tf.identity(value) if _dtype(value) is tf.string else tf.Variable(value)
            for value in values
        ]
        with backend.session() as session:
            session.run([x.initializer for x in kept if isinstance(x, tf.Variable)])
            got = session.run([*moved, *kept], dict(zip(fed, values, strict=True)))
    backend.reset()
    for one, sent in zip(got, values * 2, strict=True):
        # A string without dimensions comes back as plain bytes.
        assert_same(np.array(one, object) if isinstance(one, bytes) else one, sent)


def _value(name: str, shape: tuple[int, ...], seed: int) -> Any:
    if name in KEYS:
        return keys(name, shape, seed % 1000)
    if name != "string":
        return numbers(name, shape, seed)
    rng = np.random.default_rng(seed)
    strings = np.empty(shape, object)
    strings.reshape(-1)[:] = [rng.bytes(rng.integers(0, 9)) for _ in range(strings.size)]
    return strings


def _dtype(value: Any) -> Any:
    return tf.string if value.dtype == object else value.dtype
